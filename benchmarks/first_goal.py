"""What became of runs, by when they first met the goal, from the curves of run folders.

    python benchmarks/first_goal.py "results/mazes/groups/*-hyper-paper*" "results/mazes/groups/*-hyper-robust*"

A row for every quoted pattern, a column for every span of steps: how many runs first met the goal in it, their mean
success at the end, and how many of them failed (below 0.2). The last column counts those that never met it. A curve is
written at every evaluation, so the time of a first goal is known to one interval between evaluations.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hyper_rl.training.run_folder import LAST_EVALUATIONS, RunFolder

FAILED = 0.2
NEVER = "never"


class Outcome(NamedTuple):
    first_goal: int | None
    """The evaluation at which one had been met; None: never."""
    success: float


def outcomes(pattern: str) -> list[Outcome]:
    """Of every run in the folders of a pattern."""
    found = []
    for name in sorted(glob(pattern)):
        curve = RunFolder(Path(name)).read_curve()
        for run in np.unique(curve["run"]):
            mine = curve["run"] == run
            steps, met = curve["step"][mine], curve["goals"][mine] > 0
            success = float(curve["success"][mine][-LAST_EVALUATIONS:].mean())
            found.append(Outcome(int(steps[met][0]) if met.any() else None, success))
    if not found:
        raise SystemExit(f"first_goal: {pattern}: no such run folder")
    return found


def said(runs: Sequence[Outcome]) -> str:
    if not runs:
        return "-"
    successes = np.array([run.success for run in runs])
    return f"{len(runs)} runs, {successes.mean():.2f}, {(successes < FAILED).sum()} fail"


def table(patterns: Sequence[str], edges: Sequence[int]) -> str:
    spans = list(zip((0, *edges), (*edges, None), strict=True))
    heads = [f"up to {high // 1000}k" if high is not None else f"after {low // 1000}k" for low, high in spans]
    lines = ["| first goal | " + " | ".join([*heads, NEVER]) + " |", "|---" * (len(heads) + 2) + "|"]
    for pattern in patterns:
        runs = outcomes(pattern)
        cells = [
            said([r for r in runs if r.first_goal is not None and low < r.first_goal <= (high or r.first_goal)])
            for low, high in spans
        ]
        lines.append(
            " | ".join([f"| {Path(pattern).name}", *cells, said([r for r in runs if r.first_goal is None])]) + " |"
        )
    return "\n".join(lines)


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="+", help="run folders, quoted")
    parser.add_argument("--spans", type=int, nargs="+", default=[100_000, 200_000, 400_000], help="where spans end")
    options = parser.parse_args()
    print(table(options.patterns, sorted(options.spans)))


if __name__ == "__main__":
    main()

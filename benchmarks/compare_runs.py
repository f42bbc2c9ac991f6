"""Success of one method minus another's, pooled over beta, with a bootstrap interval, from two run folders.

    python benchmarks/compare_runs.py results/mediummaze-easy/hyper-paper results/mediummaze-easy/curiosity-paper

A side is a run folder, or a quoted pattern for folders that hold the betas of one method between them. Both sides must
have the same betas, unless one has none because it does not explore, and every folder of a side the same number of
steps unless `--at` is given.

Seeds are resampled within each beta and method (a stratified bootstrap), so beta is treated as fixed. `--at STEP`
compares the curves at one step instead of the final results, for runs that were stopped early; `--whole-curve` compares
the mean over all evaluations (up to that step).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from glob import glob
from pathlib import Path

import numpy as np

from hyper_rl.training.run_folder import LAST_EVALUATIONS, RunFolder

RESAMPLES = 10_000


def success_by_beta(path: Path, at: int | None, whole_curve: bool = False) -> dict[float, np.ndarray]:
    """Success of every run, grouped by beta: mean of the last five evaluations up to `at`, or of all of them."""
    curve = RunFolder(path).read_curve()
    step = at if at is not None else int(curve["step"].max())
    grouped: dict[float, list[float]] = {}
    for run in np.unique(curve["run"]):
        mine = (curve["run"] == run) & (curve["step"] <= step)
        success = curve["success"][mine]
        judged = success if whole_curve else success[-LAST_EVALUATIONS:]
        grouped.setdefault(float(curve["beta"][mine][0]), []).append(float(judged.mean()))
    return {beta: np.array(values) for beta, values in grouped.items()}


def side(pattern: str, at: int | None, whole_curve: bool) -> dict[float, np.ndarray]:
    """Success by beta over all folders of a pattern, smallest beta first."""
    found = sorted(Path(name) for name in glob(pattern))
    if not found:
        raise SystemExit(f"compare_runs: {pattern}: no such run folder")
    steps = {int(RunFolder(path).read_curve()["step"].max()) for path in found}
    if at is None and len(steps) > 1:
        raise SystemExit(f"compare_runs: {pattern}: folders with {sorted(steps)} steps; say which to compare, --at")
    together: dict[float, np.ndarray] = {}
    for path in found:
        for beta, values in success_by_beta(path, at, whole_curve).items():
            if beta in together:
                raise SystemExit(f"compare_runs: {pattern}: beta {beta:g} is in several folders ({path.name})")
            together[beta] = values
    return dict(sorted(together.items()))


def explores_not(pattern: str) -> bool:
    return all(json.loads((Path(name) / "config.json").read_text())["method"] == "exploit" for name in glob(pattern))


def bootstrap_means(groups: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Means over strata of resampled means within strata."""
    draws = [group[rng.integers(0, len(group), (RESAMPLES, len(group)))].mean(axis=1) for group in groups]
    return np.mean(draws, axis=0)


def compare(first: dict[float, np.ndarray], second: dict[float, np.ndarray], seed: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    a, b = list(first.values()), list(second.values())
    difference = bootstrap_means(a, rng) - bootstrap_means(b, rng)
    low, high = np.quantile(difference, (0.025, 0.975))
    return {
        "first": {f"{beta:g}": round(float(values.mean()), 3) for beta, values in first.items()},
        "second": {f"{beta:g}": round(float(values.mean()), 3) for beta, values in second.items()},
        "difference": round(float(np.mean([v.mean() for v in a]) - np.mean([v.mean() for v in b])), 3),
        "interval_95": [round(float(low), 3), round(float(high), 3)],
        "above_zero": bool(low > 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--at", type=int, default=None)
    parser.add_argument("--whole-curve", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    first, second = (side(pattern, args.at, args.whole_curve) for pattern in (args.first, args.second))
    if list(first) != list(second) and not any(explores_not(pattern) for pattern in (args.first, args.second)):
        raise SystemExit(f"compare_runs: betas {list(first)} on the first side, {list(second)} on the second")
    document = compare(first, second, args.seed)
    how = {"at": args.at, "whole_curve": args.whole_curve}
    print(json.dumps({"runs": [Path(args.first).name, Path(args.second).name], **how, **document}))


if __name__ == "__main__":
    main()

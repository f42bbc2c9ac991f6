"""Speed of the linear part: 3,000 episodes x 20 seeds x 9 β on RiverSwim, compilation included.

Run as `python benchmarks/linear.py --out results/linear/speed.json`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from hyper_rl.theory import LinearMDP, grid, lock, lowrank, riverswim, run, theory_beta
from hyper_rl.theory.record import save_summary
from hyper_rl.theory.study_table import BETAS


@dataclass(frozen=True)
class SpeedArgs:
    """Wall time of the β sweep at p = 1."""

    episodes: int = 3000
    """Episodes per run."""
    seeds: int = 20
    """Runs per β."""
    out: Path | None = None
    """JSON file for the figures; printed only if left out."""


def seconds_of(mdp: LinearMDP, args: SpeedArgs) -> float:
    betas = [*BETAS, theory_beta(mdp, args.episodes)]
    chosen, seeds = grid(args.seeds, betas, [1.0])
    began = time.perf_counter()
    run(mdp, chosen, seeds, args.episodes)
    return time.perf_counter() - began


def main(args: SpeedArgs) -> None:
    began = time.perf_counter()
    figures: dict[str, dict[str, float]] = {}
    for mdp in (riverswim(), lock(), lowrank()):
        seconds = seconds_of(mdp, args)
        runs = args.seeds * (len(BETAS) + 1)
        per_second = runs * args.episodes * mdp.horizon / seconds
        figures[mdp.name] = {"runs": runs, "seconds": round(seconds, 2), "steps_per_second": round(per_second)}
        print(mdp.name, figures[mdp.name], flush=True)
    if args.out is not None:
        save_summary(args.out, {"episodes": args.episodes, "runs": figures}, time.perf_counter() - began)


if __name__ == "__main__":
    main(tyro.cli(SpeedArgs))

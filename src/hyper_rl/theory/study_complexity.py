"""Episodes to an ε-optimal output policy against H, d and p, β fixed, beside the exponents the paper's proof gives.

Two measures: `settled` (after it, the policy greedy in Q stays within ε to the end of the budget) and `average` (first
K with mean gap over the first K policies <= ε, which is what a regret bound speaks of).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hyper_rl.theory import families
from hyper_rl.theory.censored import slope_with_interval
from hyper_rl.theory.mdp import LinearMDP
from hyper_rl.theory.plots import slope_figure
from hyper_rl.theory.record import save_rows, save_summary
from hyper_rl.theory.runs import grid, run, settled_after

EPSILON, AVERAGE_EPSILON = 0.05, 0.25
"""As shares of V*, which is 1 for the timed lock and grows with H on RiverSwim. An average forgets its first gaps only
slowly (1/K), so 0.05 would be out of every budget's reach; ε does not enter the slopes."""
FIXED_BETA_EXPONENT = {"H": 2.0, "d": 1.0, "1/p": 1.0}
"""Of episodes, from the proof's H·β·sqrt(2dKp)/p <= Kε with β fixed: K >= 2dH²β²/(pε²)."""
THEOREM_EXPONENT = {"H": 4.0, "d": 3.0, "1/p": 2.0}
"""Of episodes, with β = c·dH·sqrt(log) and the 1/p the regret carries as written: K >= d³H⁴/(p²ε²)."""


class Line(NamedTuple):
    """One line of the figure: a family in which one quantity grows."""

    family: str
    axis: str
    beta: float
    budget: int
    cases: tuple[tuple[float, float, Callable[[], LinearMDP]], ...]
    """(size along the axis, p, how to make the MDP)."""


def lines(scale: float = 1.0) -> tuple[Line, ...]:
    """`scale` shrinks the budgets, for a quick look."""

    def budget(episodes: int) -> int:
        return max(int(episodes * scale), 10)

    def timed(horizon: int, actions: int) -> Callable[[], LinearMDP]:
        return lambda: families.timed_lock(horizon, actions)

    def river(states: int, horizon: int) -> Callable[[], LinearMDP]:
        return lambda: families.riverswim(states, horizon)

    ps = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
    lock, swim = "timed lock", "RiverSwim"
    return (
        Line(lock, "H", 1.0, budget(12_000), tuple((h, 1.0, timed(h, 4)) for h in (4, 6, 8, 12, 16, 24, 32))),
        Line(lock, "d", 1.0, budget(6_000), tuple((2 * a, 1.0, timed(6, a)) for a in (2, 4, 8, 16, 32))),
        Line(lock, "1/p", 1.0, budget(6_000), tuple((1 / p, p, timed(6, 4)) for p in ps)),
        Line(swim, "H", 10.0, budget(40_000), tuple((h, 1.0, river(4, h)) for h in (6, 8, 12, 16, 24, 32))),
        Line(swim, "d", 10.0, budget(12_000), tuple((2 * s, 1.0, river(s, 16)) for s in (3, 4, 5, 6, 8, 10))),
        Line(swim, "1/p", 10.0, budget(20_000), tuple((1 / p, p, river(4, 12)) for p in ps)),
    )


def average_reaches(gap: Float[np.ndarray, "R K"], epsilon: float) -> Float[np.ndarray, " R"]:
    """First K whose mean gap over episodes 1..K is at most ε; inf for none."""
    mean = np.cumsum(gap, axis=-1) / np.arange(1, gap.shape[-1] + 1)
    inside = mean <= epsilon
    return np.where(inside.any(-1), np.argmax(inside, axis=-1) + 1.0, np.inf)


def line_times(line: Line, seeds: int) -> dict[str, Float[np.ndarray, "m seeds"]]:
    """Per measure: episodes for every case and seed. Cases that share an MDP share one program."""
    settled, average = [], []
    for made in _grouped(line.cases):
        mdp, ps = made[0][2](), [case[1] for case in made]
        chosen, lanes = grid(seeds, [line.beta], ps)
        result = run(mdp, chosen, lanes, line.budget)
        best = result.optimal_value
        gap = best - result.trace.task_value
        # Episode 0 has no data: "already optimal" would be 0, which has no logarithm.
        settled.append(np.maximum(settled_after(gap, EPSILON * best), 1.0).reshape(len(ps), seeds))
        average.append(average_reaches(gap, AVERAGE_EPSILON * best).reshape(len(ps), seeds))
    return {"settled": np.concatenate(settled), "average": np.concatenate(average)}


def _grouped(cases: Sequence[tuple[float, float, Callable[[], LinearMDP]]]) -> list[list[tuple[float, float, Any]]]:
    """Cases with the same MDP, which differ in p only, side by side."""
    groups: dict[str, list[tuple[float, float, Any]]] = {}
    for case in cases:
        groups.setdefault(case[2]().name, []).append(case)
    return list(groups.values())


def complexity_study(out: Path, seeds: int = 20, scale: float = 1.0) -> None:
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    slopes: list[dict[str, Any]] = []
    for line in lines(scale):
        sizes = np.array([case[0] for case in line.cases])
        budgets = np.full(len(sizes), float(line.budget))
        label = {"family": line.family, "axis": line.axis}
        for measure, times in line_times(line, seeds).items():
            seen = np.isfinite(times)
            rows += [
                {
                    **label,
                    "measure": measure,
                    "beta": line.beta,
                    "size": float(size),
                    "p": case[1],
                    "budget": line.budget,
                    "seeds": seeds,
                    "median": float(np.median(np.where(seen[i], times[i], line.budget))),
                    "low": float(np.quantile(np.where(seen[i], times[i], line.budget), 0.1)),
                    "high": float(np.quantile(np.where(seen[i], times[i], line.budget), 0.9)),
                    "censored": int((~seen[i]).sum()),
                }
                for i, (size, case) in enumerate(zip(sizes, line.cases, strict=True))
            ]
            if seen.any(-1).sum() < 2:
                print(
                    f"{line.family} against {line.axis}, {measure}: fewer than two sizes got there, no slope",
                    flush=True,
                )
                continue
            fitted = slope_with_interval(sizes, times, budgets)._asdict()
            exponents = {"fixed_beta": FIXED_BETA_EXPONENT[line.axis], "theorem": THEOREM_EXPONENT[line.axis]}
            slopes.append({**label, "measure": measure, **fitted, **exponents})
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in slopes[-1].items()}, flush=True)
        print(f"{time.perf_counter() - began:.0f} s so far", flush=True)
    save_rows(out / "complexity.csv", rows)
    save_rows(out / "complexity_slopes.csv", slopes)
    summary = {"epsilon_share": EPSILON, "average_epsilon_share": AVERAGE_EPSILON, "slopes": slopes}
    save_summary(out / "complexity.json", summary, time.perf_counter() - began)
    slope_figure(out / "complexity.png", rows, slopes)

"""Do Q̂ >= Q* and Q̌ <= Q* hold, at every (h,s,a) and every episode, in a share 1-δ of the seeds?

At the paper's β they do, but almost every entry is clipped, so the check says little; hence the share of free entries,
and a sweep for the smallest β that still holds.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.theory import families
from hyper_rl.theory.mdp import LinearMDP
from hyper_rl.theory.record import save_rows, save_summary
from hyper_rl.theory.runs import grid, run
from hyper_rl.theory.settings import make_settings, theory_beta
from hyper_rl.theory.solve import optimal, reachable

ROUNDING = 1e-9
"""Q* and the estimates are sums of some hundred float64 terms; a slack above -1e-9 counts as holding."""
SWEEP = np.array(
    [0, 0.01, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1, 1.05, 1.1, 1.25, 1.5, 2]
)
"""β as multiples of max Q*: an entry without data has Q̂ = β (λ = 1, ||φ|| = 1), so no smaller β can hold throughout."""


def confidence_rows(
    mdp: LinearMDP,
    betas: Sequence[float],
    ps: Sequence[float],
    seeds: int,
    episodes: int,
    beta_lows: Sequence[float] | None = None,
) -> list[dict[str, Any]]:
    """One row per (p, β): in what share of the seeds each bound holds throughout, and what share is not clipped.

    `beta_lows` gives each β its own β'; β' = β if left out.
    """
    lows = np.asarray(betas if beta_lows is None else beta_lows, dtype=np.float64)
    chosen, lanes = grid(seeds, betas, ps)
    low = np.tile(np.repeat(lows, seeds), len(ps))
    chosen = make_settings(chosen.beta.tolist(), chosen.p.tolist(), chosen.ridge.tolist(), low.tolist())
    trace = run(mdp, chosen, lanes, episodes).trace
    shape = (len(ps), len(betas), seeds, episodes)
    upper = trace.upper_slack.reshape(shape) >= -ROUNDING
    reached = trace.upper_slack_reachable.reshape(shape) >= -ROUNDING
    lower = trace.lower_slack.reshape(shape) >= -ROUNDING
    upper_free, lower_free = trace.upper_free.reshape(shape), trace.lower_free.reshape(shape)
    return [
        {
            "mdp": mdp.name,
            "p": p,
            "beta": float(beta),
            "beta_low": float(lows[j]),
            "episodes": episodes,
            "seeds": seeds,
            "upper_holds": float(upper[i, j].all(-1).mean()),
            "upper_holds_reachable": float(reached[i, j].all(-1).mean()),
            "lower_holds": float(lower[i, j].all(-1).mean()),
            "both_hold": float((upper[i, j].all(-1) & lower[i, j].all(-1)).mean()),
            "upper_free_mean": float(upper_free[i, j].mean()),
            "upper_free_last": float(upper_free[i, j, :, -1].mean()),
            "lower_free_mean": float(lower_free[i, j].mean()),
            "lower_free_last": float(lower_free[i, j, :, -1].mean()),
        }
        for i, p in enumerate(ps)
        for j, beta in enumerate(betas)
    ]


def smallest_holding(rows: list[dict[str, Any]], column: str, share: float, along: str = "beta") -> float | None:
    """The least β (or β') from which on the bound holds in at least `share` of the seeds at every larger one tried."""
    ordered = sorted(rows, key=lambda row: float(row[along]))
    failing = [i for i, row in enumerate(ordered) if row[column] < share]
    first = failing[-1] + 1 if failing else 0
    return float(ordered[first][along]) if first < len(ordered) else None


def confidence_study(
    out: Path, seeds: int = 200, episodes: int = 3000, sweep_episodes: int = 1000, delta: float = 0.1
) -> None:
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    summary: dict[str, Any] = {"delta": delta}
    for mdp in (families.riverswim(), families.lock()):
        theory = theory_beta(mdp, episodes, delta)
        at_theory = confidence_rows(mdp, [theory], [1.0, 0.1], seeds, episodes)
        q_star = optimal(mdp).q
        best, best_reachable = float(np.max(q_star)), float(np.max(q_star[reachable(mdp)]))
        betas = sorted({*(SWEEP * best).tolist(), best_reachable})
        swept = confidence_rows(mdp, betas, [1.0], seeds, sweep_episodes)
        # The lower bound is put to the test where the data are varied: β explores, β' alone is swept.
        lows = (SWEEP[SWEEP <= 0.5] * best).tolist()
        lower = confidence_rows(mdp, [best] * len(lows), [1.0], seeds, sweep_episodes, lows)
        rows += at_theory + swept + lower
        summary[mdp.name] = {
            "max_q_star": best,
            "max_q_star_reachable": best_reachable,
            "theory_beta": theory,
            "at_theory_beta": at_theory,
            "sweep_episodes": sweep_episodes,
            "smallest_beta_upper": smallest_holding(swept, "upper_holds", 1 - delta),
            "smallest_beta_upper_reachable": smallest_holding(swept, "upper_holds_reachable", 1 - delta),
            "smallest_beta_low": smallest_holding(lower, "lower_holds", 1 - delta, "beta_low"),
            "smallest_beta_both": smallest_holding(swept, "both_hold", 1 - delta),
        }
        print(f"{mdp.name}: {summary[mdp.name]}, {time.perf_counter() - began:.0f} s so far", flush=True)
    save_rows(out / "confidence.csv", rows)
    save_summary(out / "confidence.json", summary, time.perf_counter() - began)

"""V/V* over β for LSVI-UCB and Linear-UCB-Hyper at several p: rows of a table, a CSV and a figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.theory import families
from hyper_rl.theory.mdp import LinearMDP
from hyper_rl.theory.plots import beta_figure
from hyper_rl.theory.record import save_rows, save_summary
from hyper_rl.theory.runs import Result, grid, run, settled_after
from hyper_rl.theory.settings import theory_beta

BETAS = (0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
PS = (1.0, 0.5, 0.1, 0.05)
MDPS: tuple[Callable[[], LinearMDP], ...] = (families.riverswim, families.lock, families.lowrank)
WITHIN = 0.05


def rows_of(
    mdp: LinearMDP, result: Result, betas: list[float], ps: tuple[float, ...], seeds: int
) -> list[dict[str, Any]]:
    """LSVI-UCB is the p = 1 run judged by Q̂; every p gives a row judged by Q."""
    trace, best = result.trace, result.optimal_value
    episodes = trace.task_value.shape[1]
    late = slice(-max(episodes // 10, 1), None)
    policies = [("LSVI-UCB", 0, trace.explorer_value)]
    policies += [(f"Hyper p={p:g}", i, trace.task_value) for i, p in enumerate(ps)]
    shape = (len(ps), len(betas), seeds, episodes)
    rows = []
    for policy, which, values in policies:
        for j, beta in enumerate(betas):
            value = values.reshape(shape)[which, j]
            acted = trace.behaviour_value.reshape(shape)[which, j]
            share = value[:, late].mean(-1) / best
            settled = settled_after(best - value, WITHIN * best)
            rows.append(
                {
                    "mdp": mdp.name,
                    "policy": policy,
                    "beta": beta,
                    "theory_beta": int(j == len(betas) - 1),
                    "value_share": float(share.mean()),
                    "value_share_sd": float(share.std(ddof=1)),
                    "settled_median": float(np.median(np.where(np.isfinite(settled), settled, episodes))),
                    "never_settled": int(np.isinf(settled).sum()),
                    "regret": float((best - value).sum(-1).mean()),
                    "behaviour_share": float(acted[:, late].mean() / best),
                }
            )
    return rows


def table_study(out: Path, seeds: int = 20, episodes: int = 3000) -> None:
    began = time.perf_counter()
    rows: list[dict[str, Any]] = []
    for make in MDPS:
        mdp = make()
        betas = [*BETAS, theory_beta(mdp, episodes)]
        chosen, lanes = grid(seeds, betas, PS)
        result = run(mdp, chosen, lanes, episodes)
        rows += rows_of(mdp, result, betas, PS, seeds)
        print(f"{mdp.name}: V* = {result.optimal_value:.4f}, {time.perf_counter() - began:.0f} s so far", flush=True)
    save_rows(out / "table.csv", rows)
    note = "value_share: V/V* over the last tenth of the episodes; settled: stays within 5% of V*, budget if never"
    save_summary(out / "table.json", {"seeds": seeds, "episodes": episodes, "note": note}, time.perf_counter() - began)
    (out / "table.md").write_text(markdown(rows, episodes))
    beta_figure(out / "table.png", rows)


def markdown(rows: list[dict[str, Any]], episodes: int) -> str:
    """The table of the docs page: V/V* @ median episode after which the policy stays within 5% of V*."""
    heads = [*(f"{b:g}" for b in BETAS), "theory β (c=1)"]
    lines = [f"| MDP, policy | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name in dict.fromkeys((row["mdp"], row["policy"]) for row in rows):
        cells = [row for row in rows if (row["mdp"], row["policy"]) == name]
        texts = [
            f"{c['value_share']:.2f}" + (f"@{c['settled_median']:.0f}" if c["settled_median"] < episodes else "")
            for c in cells
        ]
        texts[-1] += f" ({cells[-1]['beta']:.0f})"
        lines.append(f"| {name[0]}: {name[1]} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"

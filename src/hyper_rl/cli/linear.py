"""`hyper-rl linear`: LSVI-UCB and Linear-UCB-Hyper on a linear MDP, over seeds, β and p, in one program."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from hyper_rl.errors import UserError
from hyper_rl.theory import families
from hyper_rl.theory.mdp import LinearMDP
from hyper_rl.theory.plots import run_figure
from hyper_rl.theory.record import save_rows, versions
from hyper_rl.theory.runs import Algorithm, Result, grid, output_value, run, settled_after
from hyper_rl.theory.settings import theory_beta
from hyper_rl.theory.study_confidence import ROUNDING

SIZES: dict[str, dict[str, str]] = {
    "riverswim": {"states": "states", "horizon": "horizon"},
    "lock": {"horizon": "horizon", "actions": "actions"},
    "deepsea": {"horizon": "size"},
    "lowrank": {"states": "states", "actions": "actions", "dimension": "dimension", "horizon": "horizon"},
}
"""Which size options a family takes, and the name of the argument each one sets."""


@dataclass(frozen=True)
class LinearArgs:
    """The paper's Algorithm 1 on a linear MDP with known solution."""

    mdp: tyro.conf.Positional[Literal["riverswim", "lock", "deepsea", "lowrank"]]
    """Which family of linear MDPs."""
    algorithm: Algorithm = "linear-ucb-hyper"
    """linear-ucb-hyper puts out the policy greedy in Q; lsvi-ucb (p = 1) the one greedy in the optimistic Q."""
    beta: tuple[str, ...] = ("1", "10", "theory")
    """Bonus coefficients: numbers >= 0, or the word theory for c·d·H·sqrt(log(2dT/delta))."""
    p: tuple[float, ...] = ()
    """Truncation probabilities in (0, 1]; 0.1 if left out (lsvi-ucb: always 1)."""
    episodes: int = 3000
    """Episodes per run."""
    seeds: int = 5
    """Runs per setting."""
    horizon: int | None = None
    """Steps per episode (deepsea: also its size); the family's own if left out."""
    states: int | None = None
    """Number of states (riverswim, lowrank)."""
    actions: int | None = None
    """Number of actions (lock, lowrank)."""
    dimension: int | None = None
    """Feature dimension d (lowrank)."""
    ridge: float = 1.0
    """Lambda > 0, the ridge of the least-squares fits."""
    delta: float = 0.1
    """Failure probability in (0, 1) of the theory beta."""
    c: float = 1.0
    """Constant > 0 of the theory beta."""
    out: Path | None = None
    """Folder for linear.csv, linear.json and linear.png (V/V* and regret)."""
    json: bool = False
    """Print one JSON document on standard output instead of the table."""


def run_linear(args: LinearArgs) -> int:
    """Runs the command; 0 on success, 2 with one line on stderr for bad input."""
    try:
        _run(args)
    except UserError as error:
        print(f"hyper-rl linear: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: LinearArgs) -> None:
    mdp = make_mdp(args)
    betas = [_beta(i, text, mdp, args) for i, text in enumerate(args.beta)]
    ps = _ps(args)
    if args.episodes < 1:
        raise UserError(f"episodes = {args.episodes}: must be at least 1")
    if not betas:
        raise UserError("beta: none given; needs at least one number or theory")
    chosen, lanes = grid(args.seeds, betas, ps, args.ridge)
    began = time.perf_counter()
    with _progress(mdp.name) as tell:
        result = run(mdp, chosen, lanes, args.episodes, tell)
    seconds = time.perf_counter() - began
    rows = summarise(result, args.algorithm, betas, ps, args.seeds)
    document = {
        "mdp": mdp.name,
        "algorithm": args.algorithm,
        "states": mdp.states,
        "actions": mdp.actions,
        "horizon": mdp.horizon,
        "dimension": mdp.dimension,
        "optimal_value": result.optimal_value,
        "episodes": args.episodes,
        "seeds": args.seeds,
        "ridge": args.ridge,
        "rows": rows,
        "seconds": round(seconds, 2),
        "versions": versions(),
    }
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        save_rows(args.out / "linear.csv", rows)
        (args.out / "linear.json").write_text(json.dumps(document, indent=1) + "\n")
        _plot(args.out / "linear.png", mdp, result, args, betas, ps)
    if args.json:
        print(json.dumps(document))
    else:
        _print_table(mdp, result, rows, seconds)


def make_mdp(args: LinearArgs) -> LinearMDP:
    """The family at the asked size; an option the family does not have is refused."""
    takes, sizes = SIZES[args.mdp], {}
    for option in ("horizon", "states", "actions", "dimension"):
        value: int | None = getattr(args, option)
        if value is None:
            continue
        if option not in takes:
            raise UserError(f"{option} = {value}: {args.mdp} takes only {', '.join(takes)}")
        if option == "horizon" and value < 1:
            raise UserError(f"horizon = {value}: must be at least 1")
        sizes[takes[option]] = value
    make: Callable[..., LinearMDP] = getattr(families, args.mdp)
    return make(**sizes)


def _beta(index: int, text: str, mdp: LinearMDP, args: LinearArgs) -> float:
    if text == "theory":
        return theory_beta(mdp, args.episodes, args.delta, args.c)
    try:
        return float(text)
    except ValueError:
        raise UserError(f"beta[{index}] = {text!r}: must be a number >= 0 or the word theory") from None


def _ps(args: LinearArgs) -> list[float]:
    if args.algorithm == "lsvi-ucb":
        if any(p != 1 for p in args.p):
            raise UserError(f"p = {list(args.p)}: lsvi-ucb has no repositioning, leave p out or give 1")
        return [1.0]
    return list(args.p) or [0.1]


def summarise(
    result: Result, algorithm: Algorithm, betas: list[float], ps: list[float], seeds: int
) -> list[dict[str, Any]]:
    """One row per (p, β), means over seeds."""
    trace, best = result.trace, result.optimal_value
    episodes = trace.task_value.shape[1]
    late = slice(-max(episodes // 10, 1), None)
    shape = (len(ps), len(betas), seeds, episodes)
    value = output_value(trace, algorithm).reshape(shape)
    acted = trace.behaviour_value.reshape(shape)
    upper = np.all(trace.upper_slack.reshape(shape) >= -ROUNDING, axis=-1)
    lower = np.all(trace.lower_slack.reshape(shape) >= -ROUNDING, axis=-1)
    rows = []
    for i, p in enumerate(ps):
        for j, beta in enumerate(betas):
            settled = settled_after(best - value[i, j], 0.05 * best)
            median = float(np.median(settled))
            rows.append(
                {
                    "p": p,
                    "beta": beta,
                    "value_share": float(value[i, j, :, late].mean() / best),
                    "settled_median": None if math.isinf(median) else median,
                    "never_settled": int(np.isinf(settled).sum()),
                    "regret": float((best - value[i, j]).sum(-1).mean()),
                    "behaviour_share": float(acted[i, j, :, late].mean() / best),
                    "upper_bound_holds": float(upper[i, j].mean()),
                    "lower_bound_holds": float(lower[i, j].mean()),
                }
            )
    return rows


def _plot(path: Path, mdp: LinearMDP, result: Result, args: LinearArgs, betas: list[float], ps: list[float]) -> None:
    values = output_value(result.trace, args.algorithm).reshape(len(ps), len(betas), args.seeds, -1)
    curves = {
        f"β = {beta:.4g}" + (f", p = {p:g}" if len(ps) > 1 else ""): values[i, j]
        for i, p in enumerate(ps)
        for j, beta in enumerate(betas)
    }
    run_figure(path, f"{args.algorithm} on {mdp.name}, {args.seeds} seeds", curves, result.optimal_value)


def _print_table(mdp: LinearMDP, result: Result, rows: list[dict[str, Any]], seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    title = f"{mdp.name}: d = {mdp.dimension}, V* = {result.optimal_value:.4f}, {seconds:.1f} s"
    caption = "V/V*: last tenth of the episodes. settled: median episode after which V stays within 5% of V*"
    table = Table(title=title, caption=caption)
    for head in ("p", "beta", "V/V*", "settled", "never", "regret", "acting V/V*", "Q̂ >= Q*", "Q̌ <= Q*"):
        table.add_column(head, justify="right")
    for row in rows:
        settled = row["settled_median"]
        table.add_row(
            f"{row['p']:g}",
            f"{row['beta']:.4g}",
            f"{row['value_share']:.3f}",
            "never" if settled is None else f"{settled:.0f}",
            str(row["never_settled"]),
            f"{row['regret']:.1f}",
            f"{row['behaviour_share']:.3f}",
            f"{row['upper_bound_holds']:.2f}",
            f"{row['lower_bound_holds']:.2f}",
        )
    Console().print(table)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


if __name__ == "__main__":
    sys.exit(run_linear(tyro.cli(LinearArgs)))

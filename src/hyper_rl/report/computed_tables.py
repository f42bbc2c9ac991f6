"""The stored numbers of studies that are computed and not trained, as tables for the page, the terminal and figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hyper_rl.studies.store import StudyResult

Tables = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    figure: bool = False
    """Whether it is a figure of the study by itself."""

    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def computed_tables(result: StudyResult) -> list[Table]:
    """Of all finished parts."""
    return [TABLES[name](tables) for name, tables in result.parts.items() if name in TABLES]


def cell_text(value: Any) -> str:
    """Short, for a reader: three significant digits where it is not a whole number."""
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"
    return str(value)


def _pick(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row[key] for key in columns) for row in rows)


def _layouts(tables: Tables) -> Table:
    rows = [
        {**maze, "start": _cell(maze["start"]), "goal": _cell(maze["goal"])} for maze in tables["layouts.json"]["mazes"]
    ]
    columns = {
        "task": "task", "horizon": "horizon H", "start": "start cell", "goal": "goal cell",
        "shortest_path_cells": "cells on the way", "free_cells": "free cells",
    }  # fmt: skip
    note = "Cells are (row, column), rows counted downwards. The paper does not print its cells."
    return Table("Maze tasks", note, tuple(columns.values()), _pick(rows, columns))


def _controller(tables: Tables) -> Table:
    rows = tables["table-2.csv"]
    columns = {
        "task": "task", "paper_steps": "paper: about", "steps_mean": "mean steps", "steps_5%": "5%", "steps_95%": "95%",
        "reached": "share reached", "horizon": "horizon H", "horizon_per_step": "H / mean steps",
        "episodes": "episodes",
    }  # fmt: skip
    note = "Steps of a scripted controller: an upper bound on what an optimal policy needs."
    return Table("Table 2: steps to the goal and horizon", note, tuple(columns.values()), _pick(rows, columns), True)


def _values(tables: Tables) -> Table:
    """One row for each MDP and policy, one column for each beta; the theory's beta differs between MDPs."""
    rows = tables["table.csv"]
    numbers = list(dict.fromkeys(row["beta"] for row in rows if not row["theory_beta"]))
    found = []
    for mdp, policy in dict.fromkeys((row["mdp"], row["policy"]) for row in rows):
        mine = [row for row in rows if (row["mdp"], row["policy"]) == (mdp, policy)]
        by_beta = {row["beta"]: row["value_share"] for row in mine if not row["theory_beta"]}
        theory = next(row["value_share"] for row in mine if row["theory_beta"])
        found.append((mdp, policy, *(float(by_beta[beta]) for beta in numbers), float(theory)))
    columns = ("MDP", "policy", *(f"β = {beta:g}" for beta in numbers), "β of the theory")
    note = "V/V* of the output policy, mean over seeds and the last tenth of the episodes."
    return Table("V/V* over β", note, columns, tuple(found))


def _confidence(tables: Tables) -> Table:
    document = tables["confidence.json"]
    rows = [
        row
        for about in document.values()
        if isinstance(about, dict) and "at_theory_beta" in about
        for row in about["at_theory_beta"]
    ]
    columns = {
        "mdp": "MDP", "p": "p", "beta": "β of the theory", "seeds": "seeds", "episodes": "episodes",
        "upper_holds": "share Q̂ ≥ Q*", "lower_holds": "share Q̌ ≤ Q*", "upper_free_mean": "share of Q̂ not clipped",
    }  # fmt: skip
    note = "Share of the seeds in which the bound holds at every step, state, action and episode."
    return Table("Do the confidence bounds hold?", note, tuple(columns.values()), _pick(rows, columns))


def _complexity(tables: Tables) -> Table:
    columns = {
        "family": "family", "axis": "against", "measure": "measure", "slope": "slope", "low": "95% from", "high": "to",
        "censored": "never", "runs": "runs", "fixed_beta": "proof, β fixed", "theorem": "theorem",
    }  # fmt: skip
    note = "Slope of log episodes until an ε-optimal policy against the logarithm of H, d or 1/p."
    slopes = tables["complexity.json"]["slopes"]
    return Table("Episodes needed", note, tuple(columns.values()), _pick(slopes, columns))


def _cell(cell: Sequence[int]) -> str:
    return f"({cell[0]}, {cell[1]})"


TABLES: Mapping[str, Callable[[Tables], Table]] = {
    "layouts": _layouts,
    "controller": _controller,
    "table": _values,
    "confidence": _confidence,
    "complexity": _complexity,
}
"""By part."""

"""Results as tables on standard output."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any


def print_result(result: dict[str, Any], folder: Path, *, has_cells: bool) -> None:
    """One line per beta: means over seeds. Without `has_cells` the task is all one cell, of which nothing is told."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{result['method']} on {result['task']}, {result['steps']:,} steps, preset {result['preset']}")
    for name in ("beta", "seeds", "success", "return", "behaviour success", "goals", "cells visited", "finite"):
        table.add_column(name, justify="right")
    by_beta: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for run in result["runs"]:
        by_beta[run["beta"]].append(run)
    for beta, runs in by_beta.items():
        table.add_row(
            f"{beta:g}",
            str(len(runs)),
            *(show(mean(runs, name)) for name in ("success", "return", "behaviour_success")),
            show(mean(runs, "goals"), 0),
            show(mean(runs, "cells_visited") if has_cells else None),
            "yes" if all(run["finite"] for run in runs) else "NO",
        )
    console = Console()
    console.print(table)
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)


def mean(runs: list[dict[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return sum(values) / len(values) if values else None


def show(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"

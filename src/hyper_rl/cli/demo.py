"""`hyper-rl demo`: the paper's first figure in half a minute.

Hyper and UCB-Q (curiosity with a table) in the 30x30 room over three betas. UCB-Q needs the right beta; Hyper only
needs it not to be too small.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyper_rl.cli.tables import mean, show
from hyper_rl.cli.train import progress_for
from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.envs.room import Room
from hyper_rl.errors import require_count
from hyper_rl.report.plots import plot_curves, plot_visits, require_matplotlib
from hyper_rl.training.trainer import train

BETAS = (0.005, 0.1, 10.0)
LABELS = {"hyper": "Hyper", "curiosity": "UCB-Q"}


@dataclass(frozen=True)
class DemoOptions:
    """Hyper and UCB-Q in the room over three betas: a table, success curves and visitation maps."""

    out: Path | None = None
    """Folder to create; default runs/demo, or the next free runs/demo-N."""
    steps: int = 300_000
    """Environment steps of each run."""
    seeds: int = 5
    """Seeds for each beta."""
    json: bool = False
    """Print one JSON object."""


def run_demo(options: DemoOptions) -> int:
    require_count("steps", options.steps)
    require_count("seeds", options.seeds)
    require_matplotlib()
    out = options.out or _free_folder(Path("runs/demo"))
    results, folders = {}, {}
    for method in LABELS:
        chosen = dataclasses.replace(
            default_options("paper"), task="Room", method=method, beta=BETAS, steps=options.steps,
            seeds=options.seeds, eval_every=max(1, options.steps // 60),
        )  # fmt: skip
        config = resolve(chosen)
        folders[method] = out / LABELS[method].lower()
        results[method] = train(config, folders[method], open_progress=progress_for(config, config.steps))
    room = Room()
    marks = {"S": (room.size // 2, room.size // 2), "g": room.subgoal, "G": (room.size - 1, room.size - 1)}
    title = "30x30 room: success of the judged policy (mean and range over seeds)"
    pictures = [
        plot_curves(folders, LABELS, "success", title, out / "curves.png"),
        plot_visits(folders, LABELS, (room.size, room.size), marks, out / "visits.png"),
    ]
    rows = table_rows(results)
    if options.json:
        print(json.dumps({"rows": rows, "pictures": [str(path) for path in pictures], "folder": str(out)}))
    else:
        _print(rows, pictures, options)
    return 0


def table_rows(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per beta: what is judged and what was done while training."""
    rows = []
    for beta in BETAS:
        row: dict[str, Any] = {"beta": beta}
        for method, label in LABELS.items():
            runs = [run for run in results[method]["runs"] if run["beta"] == beta]
            row[f"{label} success"] = mean(runs, "success")
            row[f"{label} behaviour"] = mean(runs, "behaviour_success")
        rows.append(row)
    return rows


def _print(rows: list[dict[str, Any]], pictures: list[Path], options: DemoOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"30x30 room, {options.steps:,} steps, {options.seeds} seeds: share of episodes that reach the far goal"
    )
    for name in rows[0]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(f"{row['beta']:g}", *(show(value) for name, value in row.items() if name != "beta"))
    console = Console()
    console.print(table)
    console.print("success: the judged policy, without noise; behaviour: episodes of the last tenth of training")
    for path in pictures:
        console.print(f"picture: {path}", highlight=False, soft_wrap=True)


def _free_folder(base: Path) -> Path:
    path, count = base, 2
    while path.exists():
        path, count = base.with_name(f"{base.name}-{count}"), count + 1
    return path

"""`hyper-rl tasks`: what can be trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hyper_rl.envs.base import Box, Discrete
from hyper_rl.envs.registry import TASKS


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks."""

    json: bool = False
    """Print one JSON object."""


def run_tasks(options: TasksOptions) -> int:
    entries: list[dict[str, Any]] = []
    for name, entry in TASKS.items():
        if not entry.listed:
            continue
        task = entry.make() if entry.make is not None else None
        entries.append(
            {
                "task": name,
                "backends": list(entry.backends),
                "gymnasium_id": entry.gym_id,
                # Without a JAX version one would have to make the environment to know: `check-env` does.
                "observation": None if task is None else _describe(task.spec.observation),
                "action": None if task is None else _describe(task.spec.action),
                "horizon": entry.horizon if task is None else int(task.horizon),
                "learner": entry.learner,
                "bonus": entry.bonus,
                "about": entry.about,
            }
        )
    probes = [name for name, entry in TASKS.items() if not entry.listed]
    if options.json:
        print(json.dumps({"tasks": entries, "probes": probes}))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tasks")
    for column, wrap in (("task", False), ("backends", False), ("H", False), ("learner", False), ("about", True)):
        table.add_column(column, no_wrap=not wrap)
    for row in entries:
        horizon = "-" if row["horizon"] is None else str(row["horizon"])
        table.add_row(str(row["task"]), ", ".join(row["backends"]), horizon, str(row["learner"]), str(row["about"]))
    console = Console()
    console.print(table)
    console.print("Any other Gymnasium environment by its id; see: hyper-rl check-env ID", highlight=False)
    console.print(f"Probes, which check a learner in seconds: {', '.join(probes)}", highlight=False)
    return 0


def _describe(space: Box | Discrete) -> str:
    return f"{space.size} numbers" if isinstance(space, Box) else f"1 of {space.n}"

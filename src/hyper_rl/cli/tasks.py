"""`hyper-rl tasks`: what can be trained on."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hyper_rl.envs.base import Box, Discrete
from hyper_rl.envs.registry import TASKS


@dataclass(frozen=True)
class TasksOptions:
    """List the tasks."""

    json: bool = False
    """Print one JSON object."""


def run_tasks(options: TasksOptions) -> int:
    entries = []
    for name, entry in TASKS.items():
        if not entry.listed:
            continue
        task = entry.make()
        entries.append(
            {
                "task": name,
                "observation": _describe(task.spec.observation),
                "action": _describe(task.spec.action),
                "horizon": int(task.horizon),
                "learner": entry.learner,
                "bonus": entry.bonus,
                "about": entry.about,
            }
        )
    if options.json:
        print(json.dumps({"tasks": entries}))
        return 0
    from rich.console import Console
    from rich.table import Table

    table = Table(title="tasks")
    for column, wrap in (("task", False), ("H", False), ("learner", False), ("about", True)):
        table.add_column(column, no_wrap=not wrap)
    for row in entries:
        table.add_row(str(row["task"]), str(row["horizon"]), str(row["learner"]), str(row["about"]))
    Console().print(table)
    return 0


def _describe(space: Box | Discrete) -> str:
    return f"{space.size} numbers" if isinstance(space, Box) else f"1 of {space.n}"

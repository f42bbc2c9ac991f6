"""The tasks by name, and what each of them is usually run with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from hyper_rl.envs.base import Task
from hyper_rl.envs.maze import make_maze
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.envs.probes import PROBES
from hyper_rl.envs.room import Room
from hyper_rl.errors import unknown_name


@dataclass(frozen=True)
class TaskEntry:
    """How to make a task and what to run on it when the user says nothing."""

    make: Callable[..., Task]
    about: str
    learner: str
    bonus: str
    steps: int
    listed: bool = True
    """Shown by `hyper-rl tasks`; probes for tests are not."""


def _maze(name: str, about: str, steps: int) -> TaskEntry:
    return TaskEntry(partial(make_maze, name), about, "td3", "disagreement", steps)


TASKS: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "Room": TaskEntry(Room, "30x30 room, small goal near, large goal far", "tabular_q", "counts", 1_000_000),
        "MediumMaze-Easy": _maze("MediumMaze-Easy", "point maze, 8x8, H=500, about 140 steps long", 1_000_000),
        "MediumMaze-Medium": _maze("MediumMaze-Medium", "point maze, 8x8, H=200, about 140 steps long", 1_000_000),
        "LargeMaze-Easy": _maze("LargeMaze-Easy", "point maze, 9x12, H=1000, about 250 steps long", 2_000_000),
        "LargeMaze-Medium": _maze("LargeMaze-Medium", "point maze, 9x12, H=500, about 250 steps long", 2_000_000),
        "LargeMaze-Hard": _maze("LargeMaze-Hard", "point maze, 9x12, H=300, about 250 steps long", 2_000_000),
        "Pendulum": TaskEntry(Pendulum, "swing-up, dense reward, to check a learner", "td3", "disagreement", 20_000),
        **{
            name: TaskEntry(probe.make, probe.about, probe.learner, probe.bonus, 5_000, listed=False)
            for name, probe in PROBES.items()
        },
    }
)  # fmt: skip


def find_task(name: str) -> TaskEntry:
    if name not in TASKS:
        raise unknown_name("task", name, [task for task, entry in TASKS.items() if entry.listed])
    return TASKS[name]

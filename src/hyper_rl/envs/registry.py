"""The tasks by name, and what each of them is usually run with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from hyper_rl.envs.base import Task
from hyper_rl.envs.cartpole import CartPole
from hyper_rl.envs.maze import make_maze
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.envs.probes import PROBES
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError, unknown_name


@dataclass(frozen=True)
class TaskEntry:
    """How to make a task and what to run on it when the user says nothing."""

    make: Callable[..., Task] | None
    """None: there is no JAX version, only a Gymnasium environment."""
    about: str
    learner: str
    bonus: str
    steps: int
    listed: bool = True
    """Shown by `hyper-rl tasks`; probes for tests are not."""
    gym_id: str | None = None
    """The same task as a Gymnasium environment."""
    units_of_one: bool = False
    """What is observed is of order one in every dimension: no preset asks learners to see it in other units."""
    has_success: bool = True
    """Whether there is a success to reach, or only returns."""
    horizon: int | None = None
    """Episode limit of a task that has no JAX version to ask, and whose environment is not made to list it."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Where it can run, the default first."""
        real = "mujoco" if self.bonus == "disagreement" else "gymnasium"
        return (("jax",) if self.make is not None else ()) + ((real,) if self.gym_id is not None else ())


def _maze(name: str, about: str, steps: int) -> TaskEntry:
    make = partial(make_maze, name)
    return TaskEntry(make, about, "td3", "disagreement", steps, gym_id=_ours(name), units_of_one=True)


def _ours(name: str) -> str:
    return f"hyper_rl/{name}-v0"


def _locomotion(name: str) -> TaskEntry:
    sparse = name.startswith("Sparse")
    about = "MuJoCo locomotion, " + ("1 a step above a forward speed, else 0" if sparse else "Gymnasium's v5 reward")
    return TaskEntry(
        None, about, "td3", "disagreement", 1_000_000, gym_id=_ours(name), has_success=sparse, horizon=1000
    )


def _minigrid(name: str) -> TaskEntry:
    about = "MiniGrid, cut after 100 steps"
    return TaskEntry(None, about, "dqn", "rnd", 1_000_000, gym_id=_ours(name), horizon=100)


LOCOMOTION = (
    "Hopper", "Walker2d", "HalfCheetah", "Ant", "Humanoid",
    "SparseHopper", "SparseWalker2d", "SparseHalfCheetah", "SparseHumanoid",
)  # fmt: skip
MINIGRID = ("Empty-5x5", "Empty-16x16", "Fetch-8x8", "UnlockPickup", "LavaCrossingS9N1")


TASKS: Mapping[str, TaskEntry] = MappingProxyType(
    {
        "Room": TaskEntry(
            Room, "30x30 room, small goal near, large goal far", "tabular_q", "counts", 1_000_000, gym_id=_ours("Room")
        ),
        "MediumMaze-Easy": _maze("MediumMaze-Easy", "point maze, 8x8, H=500, about 140 steps long", 1_000_000),
        "MediumMaze-Medium": _maze("MediumMaze-Medium", "point maze, 8x8, H=200, about 140 steps long", 1_000_000),
        "LargeMaze-Easy": _maze("LargeMaze-Easy", "point maze, 9x12, H=1000, about 250 steps long", 2_000_000),
        "LargeMaze-Medium": _maze("LargeMaze-Medium", "point maze, 9x12, H=500, about 250 steps long", 2_000_000),
        "LargeMaze-Hard": _maze("LargeMaze-Hard", "point maze, 9x12, H=300, about 250 steps long", 2_000_000),
        "Pendulum": TaskEntry(
            Pendulum, "swing-up, dense reward, to check a learner", "td3", "disagreement", 20_000, has_success=False
        ),
        "CartPole": TaskEntry(
            CartPole, "balance a pole, 1 a step, to check a learner", "dqn", "rnd", 100_000, has_success=False
        ),
        **{name: _locomotion(name) for name in LOCOMOTION},
        **{name: _minigrid(name) for name in MINIGRID},
        **{
            name: TaskEntry(probe.make, probe.about, probe.learner, probe.bonus, 5_000, listed=False)
            for name, probe in PROBES.items()
        },
    }
)  # fmt: skip


def is_gymnasium_id(name: str) -> bool:
    """Not one of our names, but in the form of Gymnasium's: `namespace/Name-v0`, the namespace optional."""
    return name not in TASKS and re.fullmatch(r"([\w:-]+/)?[\w:.-]+-v\d+", name) is not None


def entry_of_id(name: str) -> TaskEntry:
    """For a Gymnasium id: that of our task where it is one of ours, so that either name means the same settings."""
    for entry in TASKS.values():
        if entry.gym_id == name.rpartition(":")[2]:  # what stands before a colon is a module to import
            return replace(entry, make=None, listed=False)
    return any_environment(name)


def has_success(name: str, host: Mapping[str, Any] | None) -> bool:
    """Whether a task may report successes; `host` is what a configuration says of its environments (None: a JAX task).

    Of an environment of the user's own, which may have any name, nobody knows it: one that mentions a success only when
    there is one looks like one that never does, and a failure must not look like nothing.
    """
    if host is not None and (host["given"] or host["success"] != "info"):
        return True
    return (TASKS.get(name) or entry_of_id(name)).has_success


def any_environment(name: str) -> TaskEntry:
    return TaskEntry(None, "a Gymnasium environment", "", "", 1_000_000, listed=False, gym_id=name)


def find_task(name: str) -> TaskEntry:
    if name in TASKS:
        return TASKS[name]
    if is_gymnasium_id(name):
        return entry_of_id(name)
    known = unknown_name("task", name, [task for task, entry in TASKS.items() if entry.listed])
    raise UserError(f"{known}; or any Gymnasium id, such as MountainCarContinuous-v0")

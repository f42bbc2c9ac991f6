"""The paper's tasks under Gymnasium ids, on the real MuJoCo, gymnasium-robotics and MiniGrid.

    import gymnasium
    import hyper_rl.envs.gym_tasks

    env = gymnasium.make("hyper_rl/MediumMaze-Easy-v0")

Importing this package enters the ids into Gymnasium's registry, which has loaded no entry points of other packages
since its version 1.0; `gymnasium.make("hyper_rl.envs.gym_tasks:hyper_rl/Room-v0")` does the import by itself. An entry
names its maker as a string, so neither JAX nor a simulator is imported before a task is made, and a missing simulator
breaks only the tasks that need it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from hyper_rl.errors import missing_extra

NAMESPACE = "hyper_rl"


@dataclass(frozen=True)
class Registration:
    """What Gymnasium has to know of a task before it is made."""

    maker: str
    """Module in this package and name in it, as `module:name`."""
    max_episode_steps: int | None
    """None where the maker itself applies the limit, because a keyword of the task chooses it."""
    keywords: Mapping[str, Any] = field(default_factory=dict)


def _maze(name: str, limit: int) -> Registration:
    return Registration("maze:MazeEnv", limit, {"name": name})


def _locomotion(maker: str, *names: str) -> dict[str, Registration]:
    prefix = "Sparse" if maker == "SparseLocomotionEnv" else ""
    return {prefix + name: Registration(f"locomotion:{maker}", 1000, {"name": name}) for name in names}


# The mazes' limits stand here a second time (after `envs.maze.SETTINGS`) so that registering need not start JAX.
REGISTRATIONS: Mapping[str, Registration] = MappingProxyType(
    {
        "MediumMaze-Easy": _maze("MediumMaze-Easy", 500),
        "MediumMaze-Medium": _maze("MediumMaze-Medium", 200),
        "LargeMaze-Easy": _maze("LargeMaze-Easy", 1000),
        "LargeMaze-Medium": _maze("LargeMaze-Medium", 500),
        "LargeMaze-Hard": _maze("LargeMaze-Hard", 300),
        **_locomotion("make_dense", "Hopper", "Walker2d", "HalfCheetah", "Ant", "Humanoid"),
        **_locomotion("SparseLocomotionEnv", "Hopper", "Walker2d", "HalfCheetah", "Humanoid"),
        "Room": Registration("jax_task:RoomEnv", 100),
        **{
            name: Registration("minigrid:make_minigrid", None, {"name": name})
            for name in ("Empty-5x5", "Empty-16x16", "Fetch-8x8", "UnlockPickup", "LavaCrossingS9N1")
        },
    }
)


def task_id(name: str) -> str:
    """The Gymnasium id of a task of `REGISTRATIONS`."""
    return f"{NAMESPACE}/{name}-v0"


def register_all() -> None:
    """Enter every task into Gymnasium's registry. Calling it again changes nothing."""
    require_packages("registering Gymnasium tasks", "gymnasium", "gymnasium")
    from gymnasium.envs import registration

    for name, entry in REGISTRATIONS.items():
        if task_id(name) not in registration.registry:
            registration.register(
                task_id(name),
                entry_point=f"{__name__}.{entry.maker}",
                max_episode_steps=entry.max_episode_steps,
                kwargs=dict(entry.keywords),
            )


def require_packages(what: str, extra: str, *packages: str) -> None:
    """Say which extra to install unless all packages are there. Nothing is imported."""
    if any(importlib.util.find_spec(package) is None for package in packages):
        raise missing_extra(what, extra)


if importlib.util.find_spec("gymnasium") is not None:
    register_all()

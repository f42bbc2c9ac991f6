"""Curiosity-driven exploration that needs no tuning of the curiosity coefficient."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from hyper_rl.agent import Curiosity, Decouple, Exploit, Hyper, Lesson, load
    from hyper_rl.sweeping import Sweep, sweep

__all__ = ["Curiosity", "Decouple", "Exploit", "Hyper", "Lesson", "Sweep", "__version__", "load", "sweep"]


if importlib.util.find_spec("gymnasium") is not None:
    # Enters the tasks into Gymnasium's registry, so that `gymnasium.make("hyper_rl/MediumMaze-Easy-v0")` works.
    import hyper_rl.envs.gym_tasks  # noqa: F401


def __getattr__(name: str) -> Any:
    # Imported when asked for: `hyper-rl --help` and worker processes need none of it.
    if name in ("Sweep", "sweep"):
        from hyper_rl import sweeping

        return getattr(sweeping, name)
    if name in __all__:
        from hyper_rl import agent

        return getattr(agent, name)
    raise AttributeError(f"module 'hyper_rl' has no attribute {name!r}")

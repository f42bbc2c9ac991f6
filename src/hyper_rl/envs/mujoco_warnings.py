"""Loading MuJoCo's models without its complaints about how their authors wrote them.

MuJoCo 4 finds a deprecated attribute in the locomotion models of Gymnasium and says so for every environment, on
standard error and in a file in the current folder. A hundred environments say it a hundred times, and nobody who reads
it can do anything about it. Other complaints become Python's warnings, and those of the simulation are left alone.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator

USERS = ("mujoco", "robotics", "gym_tasks", "shimmy", "metaworld")
"""Words in the place of an environment's code that say that it will load MuJoCo."""


@contextlib.contextmanager
def models_loaded_quietly(place: str = "") -> Iterator[None]:
    """Around the making of an environment whose code is at `place`."""
    if "mujoco" not in sys.modules and not any(word in place for word in USERS):
        yield
        return
    try:
        import mujoco
    except ImportError:
        yield
        return
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(_pass_on)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _pass_on(message: str) -> None:
    if "deprecated" not in message:
        warnings.warn(f"MuJoCo: {message}", stacklevel=2)

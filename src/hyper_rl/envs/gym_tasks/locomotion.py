"""Locomotion: Gymnasium's MuJoCo v5 tasks, as they are and with a sparse reward.

The paper's sparse tasks pay for moving forward fast and for nothing else, but it gives no speeds. The thresholds here
lie above almost everything that random and untrained behaviour reaches by falling forward
(`benchmarks/sparse_thresholds.py` measures it) and below what trained agents are known to run at.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from jaxtyping import Float32, Float64

from hyper_rl.envs.gym_tasks import require_packages
from hyper_rl.errors import require_finite, unknown_name

Observation = Float64[np.ndarray, " observations"]
Action = Float32[np.ndarray, " actions"]

MAKERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "Hopper": ("hopper_v5", "HopperEnv"),
        "Walker2d": ("walker2d_v5", "Walker2dEnv"),
        "HalfCheetah": ("half_cheetah_v5", "HalfCheetahEnv"),
        "Ant": ("ant_v5", "AntEnv"),
        "Humanoid": ("humanoid_v5", "HumanoidEnv"),
    }
)

THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {"Hopper": 2.0, "Walker2d": 2.0, "HalfCheetah": 4.0, "Humanoid": 2.0}
)
"""Forward speed in m/s above which a step of the sparse task pays."""


def make_dense(name: str, **options: Any) -> gymnasium.Env[Observation, Action]:
    """Gymnasium's v5 task of this name, unchanged; `options` are its own keywords.

    For the two that exist in several flavours, the v5 defaults mean: Ant observes 105 numbers, contact forces included
    and x, y left out, and its reward is forward speed + 1 while healthy - 0.5 |action|^2 - 0.0005 |contact forces|^2;
    Humanoid observes 348 numbers (inertias, velocities, actuator and contact forces included), and its reward is
    1.25 forward speed + 5 while healthy - 0.1 |action|^2 - contact cost (weight 5e-7, at most 10). Both end the
    episode when the torso leaves its range of healthy heights (Ant 0.2 to 1, Humanoid 1 to 2).
    """
    if name not in MAKERS:
        raise unknown_name("name", name, MAKERS)
    require_packages(f"{name} on MuJoCo", "mujoco", "mujoco")
    module, maker = MAKERS[name]
    build = getattr(importlib.import_module(f"gymnasium.envs.mujoco.{module}"), maker)
    with _quiet_about_total_mass():
        made: gymnasium.Env[Observation, Action] = build(**options)
    return made


@contextlib.contextmanager
def _quiet_about_total_mass() -> Iterator[None]:
    """Some of Gymnasium's models use a keyword that MuJoCo 4 calls deprecated.

    Left to itself MuJoCo says so on standard error and in a file `MUJOCO_LOG.TXT` in whatever folder the user is in,
    at every making of a task. Anything else it has to say becomes a Python warning.
    """
    mujoco = importlib.import_module("mujoco")
    said: list[str] = []
    usual = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(usual)
    for message in said:
        if "settotalmass" not in message:
            warnings.warn(f"MuJoCo: {message}", RuntimeWarning, stacklevel=4)


class SparseLocomotionEnv(gymnasium.Env[Observation, Action], EzPickle):
    """A v5 task that pays 1 on every step with forward speed above `threshold`, and nothing else.

    No term for being healthy, none for control; falling ends the episode as in the dense task. `info` is the dense
    task's (`x_velocity` in m/s and the terms of its reward) and `success`: this very step paid.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self, name: str, threshold: float | None = None, render_mode: str | None = None, **options: Any
    ) -> None:
        EzPickle.__init__(self, name, threshold, render_mode, **options)
        if name not in THRESHOLDS:
            raise unknown_name("name", name, THRESHOLDS)
        self.threshold = THRESHOLDS[name] if threshold is None else threshold
        require_finite("threshold", self.threshold)
        self._dense = make_dense(name, render_mode=render_mode, **options)
        self.metadata = self._dense.metadata
        self.render_mode = render_mode
        self.observation_space = self._dense.observation_space
        self.action_space = self._dense.action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        observation, info = self._dense.reset(seed=seed, options=options)
        info["success"] = False
        return observation, info

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = self._dense.step(action)
        fast = bool(info["x_velocity"] > self.threshold)
        info["success"] = fast
        return observation, float(fast), terminated, truncated, info

    def render(self) -> Any:
        return self._dense.render()

    def close(self) -> None:
        self._dense.close()

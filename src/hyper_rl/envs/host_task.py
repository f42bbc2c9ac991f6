"""A Gymnasium environment as the compiled functions see it: spaces and a horizon, and observations for states.

What the environment does happens on the host; here only its description is needed, which fits in a JSON file, so that
an agent can act without the environment being installed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

import equinox as eqx
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete, EnvState, StepResult, TaskSpec


class HostTask(eqx.Module):
    """The state of the task is its current observation."""

    horizon: int
    described: TaskSpec = eqx.field(static=True)

    @property
    def spec(self) -> TaskSpec:
        return self.described

    def observe(self, state: EnvState) -> Shaped[Array, "..."]:
        return state

    def reset(self, key: PRNGKeyArray) -> NoReturn:
        raise AssertionError("a Gymnasium environment is reset by the host loop")

    def step(self, state: EnvState, action: Shaped[Array, "..."], key: PRNGKeyArray) -> StepResult:
        raise AssertionError("a Gymnasium environment is stepped by the host loop")

    def cell(self, state: EnvState) -> Int[Array, ""]:
        raise AssertionError("a Gymnasium environment reports its cell with every step")


def spec_to_json(spec: TaskSpec, horizon: int) -> dict[str, Any]:
    return {
        "name": spec.name,
        "observation": _space_to_json(spec.observation),
        "action": _space_to_json(spec.action),
        "cells": spec.cells,
        "grid": None if spec.grid is None else list(spec.grid),
        "horizon": horizon,
    }


def task_from_json(data: Mapping[str, Any]) -> HostTask:
    grid = data["grid"]
    spec = TaskSpec(
        name=data["name"],
        observation=_space_from_json(data["observation"], math.inf),
        action=_space_from_json(data["action"], 1.0),
        cells=data["cells"],
        grid=None if grid is None else (grid[0], grid[1]),
    )
    return HostTask(data["horizon"], spec)


def _space_to_json(space: Box | Discrete) -> dict[str, Any]:
    # An action is always in [-1, 1] here, an observation is not bounded, which JSON could not say.
    if isinstance(space, Discrete):
        return {"discrete": space.n}
    return {"box": space.size} if space.image is None else {"box": space.size, "image": list(space.image)}


def _space_from_json(data: Mapping[str, Any], bound: float) -> Box | Discrete:
    if "image" in data:
        height, width, channels = data["image"]
        return Box(data["box"], 0.0, 255.0, (height, width, channels))
    return Box(data["box"], -bound, bound) if "box" in data else Discrete(data["discrete"])


def same_spaces(one: TaskSpec, other: TaskSpec) -> bool:
    return (one.observation, one.action) == (other.observation, other.action)

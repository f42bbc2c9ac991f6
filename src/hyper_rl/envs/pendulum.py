"""Pendulum: swing up and hold a pole with a motor too weak to lift it. Gymnasium's Pendulum-v1, equation by equation.

A small dense-reward task, for checking that a learner learns at all before it meets a sparse one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Box, StepResult, TaskSpec

GRAVITY = 10.0
MASS = 1.0
LENGTH = 1.0
TIME_STEP = 0.05
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
HORIZON = 200


class PendulumState(NamedTuple):
    angle: Float[Array, ""]
    """Radians from upright, not wrapped."""
    speed: Float[Array, ""]


class Pendulum(eqx.Module):
    """Never terminates and has no notion of success."""

    horizon: Int[Array, ""]

    def __init__(self, horizon: int = HORIZON) -> None:
        if horizon < 1:
            raise ValueError(f"the horizon must be at least 1, not {horizon}")
        self.horizon = jnp.asarray(horizon, jnp.int32)

    @property
    def spec(self) -> TaskSpec:
        # One bound serves all three numbers: cosine and sine stay within 1, the speed within 8.
        return TaskSpec(
            name="Pendulum",
            observation=Box(3, -MAX_SPEED, MAX_SPEED),
            action=Box(1, -MAX_TORQUE, MAX_TORQUE),
            cells=1,
        )

    def reset(self, key: PRNGKeyArray) -> PendulumState:
        draw = jax.random.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return PendulumState(angle=math.pi * draw[0], speed=draw[1])

    def step(self, state: PendulumState, action: Float[Array, "1"], key: PRNGKeyArray) -> StepResult:
        del key  # deterministic
        torque = jnp.clip(action[0].astype(state.angle.dtype), -MAX_TORQUE, MAX_TORQUE)
        # The reward judges the state the action was chosen in, not the one it leads to.
        from_upright = jnp.mod(state.angle + math.pi, 2.0 * math.pi) - math.pi
        cost = from_upright * from_upright + 0.1 * state.speed * state.speed + 0.001 * torque * torque

        pull = 3.0 * GRAVITY / (2.0 * LENGTH) * jnp.sin(state.angle) + 3.0 / (MASS * LENGTH**2) * torque
        speed = jnp.clip(state.speed + TIME_STEP * pull, -MAX_SPEED, MAX_SPEED)
        never = jnp.zeros((), bool)
        return StepResult(
            state=PendulumState(angle=state.angle + TIME_STEP * speed, speed=speed),
            reward=-cost,
            terminated=never,
            success=never,
        )

    def observe(self, state: PendulumState) -> Float[Array, "3"]:
        return jnp.stack([jnp.cos(state.angle), jnp.sin(state.angle), state.speed])

    def cell(self, state: PendulumState) -> Int[Array, ""]:
        del state
        return jnp.zeros((), jnp.int32)

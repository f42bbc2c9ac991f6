"""CartPole: keep a pole upright by pushing its cart left or right. Gymnasium's CartPole-v1, equation by equation.

A small task with a finite set of actions, for checking that a discrete learner learns at all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Box, Discrete, StepResult, TaskSpec

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = 1.0 + POLE_MASS
HALF_LENGTH = 0.5
FORCE = 10.0
TIME_STEP = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = 12.0 * 2.0 * math.pi / 360.0
HORIZON = 500


class CartPoleState(NamedTuple):
    position: Float[Array, ""]
    speed: Float[Array, ""]
    angle: Float[Array, ""]
    """Radians from upright."""
    turning: Float[Array, ""]
    """Radians per second."""


class CartPole(eqx.Module):
    """One point for every step, the last included. Terminates when the pole leans or the cart leaves; no success."""

    horizon: Int[Array, ""]

    def __init__(self, horizon: int = HORIZON) -> None:
        if horizon < 1:
            raise ValueError(f"the horizon must be at least 1, not {horizon}")
        self.horizon = jnp.asarray(horizon, jnp.int32)

    @property
    def spec(self) -> TaskSpec:
        # One bound serves all four numbers, and nothing bounds the speeds.
        return TaskSpec(name="CartPole", observation=Box(4, -math.inf, math.inf), action=Discrete(2), cells=1)

    def reset(self, key: PRNGKeyArray) -> CartPoleState:
        return CartPoleState(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05, dtype=float))

    def step(self, state: CartPoleState, action: Int[Array, ""], key: PRNGKeyArray) -> StepResult:
        del key  # deterministic
        position, speed, angle, turning = state
        force = jnp.where(action == 1, FORCE, -FORCE).astype(angle.dtype)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        push = (force + POLE_MASS * HALF_LENGTH * turning * turning * sine) / TOTAL_MASS
        angular = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine * cosine / TOTAL_MASS)
        )
        linear = push - POLE_MASS * HALF_LENGTH * angular * cosine / TOTAL_MASS
        # Explicit Euler: positions move with the speeds as they were.
        after = CartPoleState(
            position=position + TIME_STEP * speed,
            speed=speed + TIME_STEP * linear,
            angle=angle + TIME_STEP * turning,
            turning=turning + TIME_STEP * angular,
        )
        terminated = (jnp.abs(after.position) > MAX_POSITION) | (jnp.abs(after.angle) > MAX_ANGLE)
        return StepResult(after, jnp.ones((), angle.dtype), terminated, jnp.zeros((), bool))

    def observe(self, state: CartPoleState) -> Float[Array, "4"]:
        return jnp.stack(state)

    def cell(self, state: CartPoleState) -> Int[Array, ""]:
        del state
        return jnp.zeros((), jnp.int32)

"""A JAX task that costs nothing, with HalfCheetah's dimensions: what is measured is the learner."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyper_rl.envs.base import Box, StepResult, TaskSpec


class SyntheticTask(eqx.Module):
    horizon: int = 1000
    observations: int = eqx.field(static=True, default=17)
    actions: int = eqx.field(static=True, default=6)

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec("Synthetic", Box(self.observations, -jnp.inf, jnp.inf), Box(self.actions, -1.0, 1.0), 1)

    def reset(self, key: PRNGKeyArray) -> Float[Array, " n"]:
        return jax.random.normal(key, (self.observations,), dtype=float)

    def step(self, state: Float[Array, " n"], action: Float[Array, " m"], key: PRNGKeyArray) -> StepResult:
        push = jnp.resize(action, (self.observations,))
        moved = 0.9 * state + 0.1 * push
        no = jnp.zeros((), bool)
        return StepResult(moved, action.sum() * 0.1, no, no)

    def observe(self, state: Float[Array, " n"]) -> Float[Array, " n"]:
        return state

    def cell(self, state: Float[Array, " n"]) -> Array:
        return jnp.zeros((), jnp.int32)

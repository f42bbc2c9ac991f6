"""The tabular bonus of UCB-Q: b(s, a) = 1 / sqrt(n(s, a)), n counted after the visit."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.types import Transition


class Counts(eqx.Module):
    """State-action visit counts; needs discrete observations and actions."""

    @property
    def largest(self) -> float:
        return 1.0

    def check(self, spec: TaskSpec) -> None:
        if not (isinstance(spec.observation, Discrete) and isinstance(spec.action, Discrete)):
            raise UserError(
                f"bonus: 'counts' counts discrete states and actions, and {spec.name} has continuous ones; "
                "use 'disagreement'"
            )

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> Int[Array, " states actions"]:
        assert isinstance(spec.observation, Discrete) and isinstance(spec.action, Discrete)
        return jnp.zeros((spec.observation.n, spec.action.n), jnp.int32)

    def observe(self, state: Int[Array, "states actions"], newest: Transition) -> Int[Array, "states actions"]:
        return state.at[newest.observation, newest.action].add(1)

    def reward(self, state: Int[Array, "states actions"], batch: Transition) -> Float[Array, " batch"]:
        visits = state[batch.observation, batch.action]
        return jax.lax.rsqrt(jnp.maximum(visits, 1).astype(float))

    def learn(
        self, state: Int[Array, "states actions"], batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], Int[Array, "states actions"], Float[Array, ""]]:
        return self.reward(state, batch), state, jnp.zeros((), float)

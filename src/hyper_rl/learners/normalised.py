"""Any learner on observations in units of their own running deviation, clipped.

The statistics are part of the learner's state and of its policy, so an agent file carries what its policy needs.
Every observation that is collected counts once; batches are normalised with the statistics of the moment they are
learned from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner, LearnerState, UpdateIndex, UpdateInfo, period_of
from hyper_rl.normalise import RunningMoments, moments_add, moments_deviation, moments_init
from hyper_rl.types import Transition

LARGEST = 10.0
"""Normalised observations are clipped here: an early outlier must not become a thousand deviations."""


class NormalisedState(NamedTuple):
    inner: LearnerState
    moments: RunningMoments


class Normalised(eqx.Module):
    """`inner`, looking through running normalisation."""

    inner: Learner

    @property
    def batch_size(self) -> int:
        return self.inner.batch_size

    @property
    def uses_newest(self) -> bool:
        return self.inner.uses_newest

    @property
    def period(self) -> int:
        return period_of(self.inner)

    @property
    def gamma(self) -> float:
        return self.inner.gamma

    def check(self, spec: TaskSpec) -> None:
        if not isinstance(spec.observation, Box):
            raise UserError(f"normalise_observations: {spec.name} has discrete observations; leave the option out")
        if spec.observation.image is not None:
            raise UserError(f"normalise_observations: {spec.name} shows images, as bytes; leave the option out")
        self.inner.check(spec)

    def init(self, key: PRNGKeyArray, spec: TaskSpec, optimism: Float[Array, ""]) -> NormalisedState:
        assert isinstance(spec.observation, Box)
        return NormalisedState(self.inner.init(key, spec, optimism), moments_init(spec.observation.size))

    def observe(self, state: NormalisedState, newest: Transition) -> NormalisedState:
        inner = self.inner.observe(state.inner, newest)
        return NormalisedState(inner, moments_add(state.moments, newest.observation))

    def act(self, state: NormalisedState, observation: Float[Array, " obs"], key: PRNGKeyArray) -> Shaped[Array, "..."]:
        return self.inner.act(state.inner, normalise(state.moments, observation), key)

    def judge(
        self, state: NormalisedState, observation: Float[Array, " obs"], key: PRNGKeyArray
    ) -> Shaped[Array, "..."]:
        return self.inner.judge(state.inner, normalise(state.moments, observation), key)

    def estimate(self, state: NormalisedState, observation: Float[Array, " obs"]) -> Float[Array, ""]:
        return self.inner.estimate(state.inner, normalise(state.moments, observation))

    def update(
        self,
        state: NormalisedState,
        batch: Transition,
        rewards: Float[Array, " batch"],
        key: PRNGKeyArray,
        index: UpdateIndex,
    ) -> tuple[NormalisedState, UpdateInfo]:
        seen = jax.vmap(normalise, in_axes=(None, 0))
        batch = batch._replace(
            observation=seen(state.moments, batch.observation),
            next_observation=seen(state.moments, batch.next_observation),
        )
        inner, info = self.inner.update(state.inner, batch, rewards, key, index)
        return state._replace(inner=inner), info

    def policy(self, state: NormalisedState) -> Any:
        return NormalisedState(self.inner.policy(state.inner), state.moments)


def normalise(moments: RunningMoments, observation: Float[Array, " obs"]) -> Float[Array, " obs"]:
    scaled = (observation - moments.mean) / moments_deviation(moments)
    return jnp.clip(scaled, -LARGEST, LARGEST)

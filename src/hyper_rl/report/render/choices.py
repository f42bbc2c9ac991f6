"""Who acts and how, in judged and in training-style episodes; the same for JAX tasks and Gymnasium environments.

Judged episodes draw their random numbers as `hyper_rl.training.evaluation` does, so the same seed gives the very
episodes that `hyper-rl evaluate` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, Shaped, UInt32

from hyper_rl.learners.base import Learner, LearnerState
from hyper_rl.methods.policies import Policies
from hyper_rl.threefry import make_key, seed_of

Choose: TypeAlias = Callable[[Shaped[Array, "..."], Int[Array, ""], PRNGKeyArray], tuple[Array, Bool[Array, ""]]]
"""(observation, step of the episode, key) -> (action in the learner's units, is it the explorer's?)."""


def episode_keys(seed: int, episodes: int) -> PRNGKeyArray:
    """One key for each episode; the first ones stay the same when more are asked for."""
    return jax.random.split(make_key(seed), episodes)


def reset_seed(key: PRNGKeyArray) -> UInt32[Array, ""]:
    """The seed an episode's environment is reset with."""
    return seed_of(jax.random.fold_in(key, 0))


def step_keys(key: PRNGKeyArray, t: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """For the action and for the task, at step `t` of the episode."""
    act, env = jax.random.split(jax.random.fold_in(key, t + 1))
    return act, env


def draw_length(policies: Policies, key: PRNGKeyArray, horizon: int) -> Int[Array, ""]:
    """L of a training-style episode, at the truncation probability `policies` starts with."""
    zero, limit = jnp.zeros((), jnp.int32), jnp.asarray(horizon, jnp.int32)
    # A number beyond the steps of the episode, whose keys are taken.
    return policies.draw_length(jax.random.fold_in(key, horizon + 1), zero, limit, limit)


def judged_choice(learner: Learner, policy: Any) -> Choose:
    """The judged policy, without noise."""

    def choose(observation: Array, t: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Bool[Array, ""]]:
        return learner.judge(policy, observation, key), jnp.zeros((), bool)

    return choose


def training_choice(learner: Learner, policies: Policies, learners: LearnerState, length: Int[Array, ""]) -> Choose:
    """Whoever's turn it is, with the learner's action noise. `learners`: stacked over the roles of the method."""
    explores = jnp.asarray([role == "explorer" for role in policies.roles])

    def choose(observation: Array, t: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, Bool[Array, ""]]:
        who = policies.acting(t, length)
        acting = jax.tree.map(lambda leaf: leaf[who], learners)
        return learner.act(acting, observation, key), explores[who]

    return choose

"""Linear-UCB-Hyper when the features are a function, so the state space may be infinite.

Without a table of states the sums over next states cannot be kept as statistics: max_a Q_{h+1}(s', a) changes with
every fit and has to be taken again at each stored s'. So the history is kept, as the features of every (s, a) taken
and of every action at the s' it led to, and a fit costs O(K·A·d²) after K episodes. Λ^-1 is still updated by rank one.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyper_rl.errors import UserError
from hyper_rl.theory.lsvi import OPTIMISTIC, PLAIN, greedy, pick, repositioning_length
from hyper_rl.theory.settings import Settings

State: TypeAlias = Any
"""Any pytree of arrays; only the task looks inside."""


class FeatureTask(Protocol):
    """A linear MDP given by its features and a way to sample it."""

    @property
    def horizon(self) -> int: ...
    @property
    def actions(self) -> int: ...
    @property
    def dimension(self) -> int: ...

    def features(self, state: State) -> Float[Array, "A d"]:
        """φ(s, a) for every action."""
        ...

    def reset(self, key: PRNGKeyArray) -> State: ...

    def step(
        self, key: PRNGKeyArray, h: Int[Array, ""], state: State, action: Int[Array, ""]
    ) -> tuple[State, Float[Array, ""]]:
        """The next state and the reward."""
        ...


class History(eqx.Module):
    """Room for `capacity` episodes; entries from `count` on are zero and add nothing to any sum."""

    phi: Float[Array, "H K d"]
    reward: Float[Array, "H K"]
    next_features: Float[Array, "H K A d"]
    inverse_gram: Float[Array, "H d d"]
    count: Int[Array, ""]


class FunctionEstimates(eqx.Module):
    """Enough to evaluate the three estimates at any state; rows are optimistic, plain, pessimistic."""

    weights: Float[Array, "H 3 d"]
    inverse_gram: Float[Array, "H d d"]
    """Of the last fit, which may be older than the history's."""


class Visit(NamedTuple):
    phi: Float[Array, " d"]
    reward: Float[Array, ""]
    next_features: Float[Array, "A d"]


def empty(task: FeatureTask, capacity: int, ridge: Float[Array, ""]) -> History:
    if capacity < 1:
        raise UserError(f"capacity = {capacity}: must be at least 1")
    shape, dtype = (task.horizon, capacity), ridge.dtype
    nothing = jnp.eye(task.dimension, dtype=dtype) / ridge
    return History(
        phi=jnp.zeros((*shape, task.dimension), dtype),
        reward=jnp.zeros(shape, dtype),
        next_features=jnp.zeros((*shape, task.actions, task.dimension), dtype),
        inverse_gram=jnp.broadcast_to(nothing, (task.horizon, *nothing.shape)),
        count=jnp.zeros((), jnp.int32),
    )


def remember(history: History, episode: Visit) -> History:
    """Stores one episode (leading axis H) and updates Λ^-1."""

    def rank_one(inverse: Float[Array, "d d"], phi: Float[Array, " d"]) -> Float[Array, "d d"]:
        direction = inverse @ phi
        return inverse - direction[:, None] * direction[None, :] / (1.0 + phi @ direction)

    k = history.count
    return History(
        phi=history.phi.at[:, k].set(episode.phi),
        reward=history.reward.at[:, k].set(episode.reward),
        next_features=history.next_features.at[:, k].set(episode.next_features),
        inverse_gram=jax.vmap(rank_one)(history.inverse_gram, episode.phi),
        count=k + 1,
    )


def values_at(
    features: Float[Array, "A d"],
    weights: Float[Array, "3 d"],
    inverse_gram: Float[Array, "d d"],
    settings: Settings,
    horizon: int,
) -> Float[Array, "3 A"]:
    """Q̂, Q, Q̌ at one state."""
    beta, beta_low = jnp.asarray(settings.beta), jnp.asarray(settings.beta_low)
    bonus = jnp.stack([beta, jnp.zeros_like(beta), -beta_low])
    width = jnp.sqrt(jnp.maximum(jnp.sum((features @ inverse_gram) * features, axis=-1), 0.0))
    return jnp.clip(weights @ features.T + bonus[:, None] * width[None, :], 0.0, horizon)


def fit_history(history: History, settings: Settings) -> FunctionEstimates:
    """The three least-squares fits, with every stored target taken anew, from the last step to the first."""
    horizon, capacity, _ = history.phi.shape

    def step(
        v: Float[Array, "3 K"], at_h: tuple[Array, Array, Array, Array]
    ) -> tuple[Float[Array, "3 K"], Float[Array, "3 d"]]:
        phi, reward, inverse, arrived_here = at_h
        weights = (reward[None, :] + v) @ phi @ inverse
        each = jax.vmap(values_at, in_axes=(0, None, None, None, None))
        return each(arrived_here, weights, inverse, settings, horizon).max(axis=-1).T, weights

    # The targets of step h-1 need Q_h at the states that step h-1 led to. The first step has none before it.
    arrived = jnp.concatenate([jnp.zeros_like(history.next_features[:1]), history.next_features[:-1]])
    last = jnp.zeros((3, capacity), history.phi.dtype)
    _, weights = jax.lax.scan(step, last, (history.phi, history.reward, history.inverse_gram, arrived), reverse=True)
    return FunctionEstimates(weights, history.inverse_gram)


def q_values(
    task: FeatureTask, estimates: FunctionEstimates, settings: Settings, h: Int[Array, ""], state: State
) -> Float[Array, "3 A"]:
    return values_at(task.features(state), estimates.weights[h], estimates.inverse_gram[h], settings, task.horizon)


class FunctionRun(NamedTuple):
    """Returns of what acted, which episodes refitted the weights, and the estimates after the last episode."""

    returns: Float[np.ndarray, " K"]
    updated: Bool[np.ndarray, " K"]
    estimates: FunctionEstimates
    history: History


def run_function(task: FeatureTask, settings: Settings, seed: int, episodes: int) -> FunctionRun:
    """One run (settings with scalar leaves) of `episodes` episodes, in float64."""
    with jax.enable_x64(True):
        chosen: Settings = jax.tree.map(jnp.asarray, settings)
        returns, updated, estimates, history = _run(task, chosen, jax.random.key(seed), episodes)
    return FunctionRun(np.asarray(returns), np.asarray(updated), estimates, history)


@eqx.filter_jit
def _run(
    task: FeatureTask, settings: Settings, key: PRNGKeyArray, episodes: int
) -> tuple[Array, Array, FunctionEstimates, History]:
    def body(
        carry: tuple[History, FunctionEstimates], k: Int[Array, ""]
    ) -> tuple[tuple[History, FunctionEstimates], tuple[Array, Array]]:
        history, estimates = carry
        length_key, roll_key = jax.random.split(jax.random.fold_in(key, k))
        length = repositioning_length(length_key, jnp.asarray(settings.p))
        episode = _rollout(task, roll_key, estimates, settings, length)
        history = remember(history, episode)
        update = length == 0
        estimates = jax.lax.cond(update, lambda: fit_history(history, settings), lambda: estimates)
        return (history, estimates), (episode.reward.sum(), update)

    history = empty(task, episodes, jnp.asarray(settings.ridge))
    (history, estimates), (returns, updated) = jax.lax.scan(
        body, (history, fit_history(history, settings)), jnp.arange(episodes)
    )
    return returns, updated, estimates, history


def _rollout(
    task: FeatureTask, key: PRNGKeyArray, estimates: FunctionEstimates, settings: Settings, length: Float[Array, ""]
) -> Visit:
    reset_key, *step_keys = jax.random.split(key, task.horizon + 1)

    def step(state: State, at_h: tuple[Int[Array, ""], PRNGKeyArray]) -> tuple[State, Visit]:
        h, step_key = at_h
        tie_key, next_key = jax.random.split(step_key)
        q = q_values(task, estimates, settings, h, state)
        acting = jnp.where(h.astype(length.dtype) < length, q[PLAIN], q[OPTIMISTIC])
        action = pick(jnp.cumsum(greedy(acting)), jax.random.uniform(tie_key, dtype=acting.dtype))
        arrived, reward = task.step(next_key, h, state, action)
        return arrived, Visit(task.features(state)[action], reward, task.features(arrived))

    _, episode = jax.lax.scan(step, task.reset(reset_key), (jnp.arange(task.horizon), jnp.stack(step_keys)))
    return episode

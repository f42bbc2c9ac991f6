"""The numerics of Linear-UCB-Hyper (the paper's Algorithm 1) and LSVI-UCB, one unbatched run at a time.

An episode k of Algorithm 1, with the readings of docs/linear.md:

1. draw L ~ Geometric(p) on {0, 1, ...};
2. act greedily on Q for the first L steps, on the optimistic Q̂ for the rest (ties at random);
3. add the episode to Λ_h and to the least-squares sums, for every h;
4. if L = 0: for h = H .. 1, refit ŵ_h, w_h, w̌_h by least squares on r + max_a Q_{h+1}(s', a) and set
   Q̂ = clip(ŵ·φ + β·||φ||), Q = clip(w·φ), Q̌ = clip(w̌·φ - β'·||φ||), with ||φ|| in the norm of Λ_h^-1.

LSVI-UCB is p = 1 with the policy greedy in Q̂ as its output.

Step 4 never revisits the data. With B_h = Σ φ r and M_h = Σ φ 1[s'], the fit is w_h = Λ_h^-1 (B_h + M_h V_{h+1})
= θ̂_h + μ̂_h V_{h+1}, where θ̂ = Λ^-1 B and μ̂ = Λ^-1 M are ridge estimates of the linear MDP's own θ and μ. A rank-one
(Sherman-Morrison) update of Λ^-1 updates θ̂, μ̂ and the widths φ·Λ^-1·φ as well, so an episode costs the same
whatever came before it.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.theory.mdp import LinearMDP
from hyper_rl.theory.settings import Settings

OPTIMISTIC, PLAIN, PESSIMISTIC = 0, 1, 2
"""Rows of every array that holds the three estimates."""


class Tables(NamedTuple):
    """A `LinearMDP` as jax arrays, with the transition law given for every step."""

    features: Float[Array, "S A d"]
    rewards: Float[Array, "H S A"]
    transitions: Float[Array, "H S A S"]
    cumulative: Float[Array, "H S A S"]
    start: Float[Array, " S"]


class Statistics(eqx.Module):
    """All that the data say, per step."""

    inverse_gram: Float[Array, "H d d"]
    theta: Float[Array, "H d"]
    measures: Float[Array, "H d S"]
    squared_width: Float[Array, "H S A"]


class Estimates(eqx.Module):
    """What the last fit made of them: rows are optimistic, plain, pessimistic."""

    weights: Float[Array, "H 3 d"]
    q: Float[Array, "H 3 S A"]


class Episode(NamedTuple):
    states: Int[Array | np.ndarray, " H"]
    actions: Int[Array | np.ndarray, " H"]
    next_states: Int[Array | np.ndarray, " H"]


def tables(mdp: LinearMDP) -> Tables:
    law = jnp.broadcast_to(jnp.asarray(mdp.transitions), (mdp.horizon, *mdp.transitions.shape[1:]))
    features, rewards, start = (jnp.asarray(x) for x in (mdp.features, mdp.rewards, mdp.start))
    return Tables(features, rewards, law, jnp.cumsum(law, axis=-1), start)


def no_data(mdp: Tables, ridge: Float[Array, ""]) -> Statistics:
    """Λ = λI before the first episode."""
    horizon, states, _ = mdp.rewards.shape
    d = mdp.features.shape[-1]
    width = jnp.sum(mdp.features**2, axis=-1) / ridge
    return Statistics(
        inverse_gram=jnp.broadcast_to(jnp.eye(d, dtype=width.dtype) / ridge, (horizon, d, d)),
        theta=jnp.zeros((horizon, d), width.dtype),
        measures=jnp.zeros((horizon, d, states), width.dtype),
        squared_width=jnp.broadcast_to(width, (horizon, *width.shape)),
    )


def observe(mdp: Tables, statistics: Statistics, episode: Episode) -> Statistics:
    """Adds one episode, by a rank-one update at every step."""
    phi = mdp.features[episode.states, episode.actions]
    reward = mdp.rewards[jnp.arange(len(phi)), episode.states, episode.actions]
    arrived = jax.nn.one_hot(episode.next_states, mdp.start.shape[0], dtype=phi.dtype)
    return jax.vmap(_rank_one, in_axes=(None, 0, 0, 0, 0))(mdp.features, statistics, phi, reward, arrived)


def _rank_one(
    features: Float[Array, "S A d"],
    old: Statistics,
    phi: Float[Array, " d"],
    reward: Float[Array, ""],
    arrived: Float[Array, " S"],
) -> Statistics:
    direction = jnp.sum(old.inverse_gram * phi[None, :], axis=-1)
    gain = direction / (1.0 + jnp.sum(phi * direction))  # = (new Λ^-1) φ
    surprise = arrived - jnp.sum(phi[:, None] * old.measures, axis=0)
    return Statistics(
        inverse_gram=old.inverse_gram - gain[:, None] * direction[None, :],
        theta=old.theta + gain * (reward - jnp.sum(phi * old.theta)),
        measures=old.measures + gain[:, None] * surprise[None, :],
        squared_width=old.squared_width - (features @ direction) * (features @ gain),
    )


def fit(mdp: Tables, statistics: Statistics, settings: Settings) -> Estimates:
    """Step 4: weights and clipped values of the three estimates, from the last step to the first."""
    horizon, states, _ = mdp.rewards.shape
    widths = jnp.sqrt(jnp.maximum(statistics.squared_width, 0.0))
    beta, beta_low = jnp.asarray(settings.beta), jnp.asarray(settings.beta_low)
    bonus = jnp.stack([beta, jnp.zeros_like(beta), -beta_low])

    def step(
        v: Float[Array, "3 S"], at_h: tuple[Float[Array, " d"], Float[Array, "d S"], Float[Array, "S A"]]
    ) -> tuple[Float[Array, "3 S"], Estimates]:
        theta, measures, width = at_h
        weights = theta[None, :] + jnp.sum(measures[None, :, :] * v[:, None, :], axis=-1)
        linear = jnp.einsum("sad,id->isa", mdp.features, weights)
        q = jnp.clip(linear + bonus[:, None, None] * width[None], 0.0, horizon)
        return q.max(axis=-1), Estimates(weights, q)

    nothing_left = jnp.zeros((3, states), widths.dtype)
    _, estimates = jax.lax.scan(step, nothing_left, (statistics.theta, statistics.measures, widths), reverse=True)
    return estimates


def greedy(q: Float[Array, "*batch A"]) -> Float[Array, "*batch A"]:
    """Action probabilities: uniform over the maximisers."""
    best = (q == q.max(axis=-1, keepdims=True)).astype(q.dtype)
    return best / best.sum(axis=-1, keepdims=True)


def repositioning_length(key: PRNGKeyArray, p: Float[Array, ""]) -> Float[Array, ""]:
    """L ~ Geometric(p) on {0, 1, ...}: P(L = 0) = p. A length beyond the horizon is an episode without exploration."""
    u = jax.random.uniform(key, dtype=p.dtype)
    return jnp.floor(jnp.log1p(-u) / jnp.log1p(-p))


def rollout(mdp: Tables, key: PRNGKeyArray, policy: Float[Array, "H S A"]) -> Episode:
    """One episode of a policy given as action probabilities."""
    horizon = policy.shape[0]
    u = jax.random.uniform(key, (2 * horizon + 1,), dtype=policy.dtype)
    u_action, u_next = u[:horizon], u[horizon:-1]
    # Actions are drawn for every state at once, so that the sequential part is two lookups.
    action_at = pick(jnp.cumsum(policy, axis=-1), u_action[:, None])

    def step(
        s: Int[Array, ""], at_h: tuple[Int[Array, " S"], Float[Array, "S A S"], Float[Array, ""]]
    ) -> tuple[Int[Array, ""], Episode]:
        actions, cumulative, chance = at_h
        a = actions[s]
        nxt = pick(cumulative[s, a], chance)
        return nxt, Episode(s, a, nxt)

    first = pick(jnp.cumsum(mdp.start), u[-1])
    _, episode = jax.lax.scan(step, first, (action_at, mdp.cumulative, u_next))
    return episode


def pick(cumulative: Float[Array, "*batch n"], u: Float[Array, "*batch"]) -> Int[Array, "*batch"]:
    """The index u falls in; the last one takes what rounding leaves."""
    return jnp.sum((u[..., None] >= cumulative[..., :-1]).astype(jnp.int32), axis=-1, dtype=jnp.int32)


def policy_values(mdp: Tables, policies: Float[Array, "H m S A"]) -> Float[Array, " m"]:
    """Exact expected returns from the start distribution of m policies."""

    def step(
        v: Float[Array, "m S"], at_h: tuple[Float[Array, "S A"], Float[Array, "S A S"], Float[Array, "m S A"]]
    ) -> tuple[Float[Array, "m S"], None]:
        rewards, law, policy = at_h
        q = rewards[None] + jnp.einsum("san,mn->msa", law, v)
        return jnp.sum(policy * q, axis=-1), None

    nothing_left = jnp.zeros(policies.shape[1:3], policies.dtype)
    v, _ = jax.lax.scan(step, nothing_left, (mdp.rewards, mdp.transitions, policies), reverse=True)
    return v @ mdp.start

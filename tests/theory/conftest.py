"""Fixtures of the linear part: the re-summing reference, and streams of data that do not depend on what is learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.theory import LinearMDP, greedy, lsvi, optimal
from hyper_rl.theory.settings import Settings


class Resummed(NamedTuple):
    """Λ [H,d,d], weights [H,3,d] and Q [H,3,S,A]; rows optimistic, plain, pessimistic."""

    gram: np.ndarray
    weights: np.ndarray
    q: np.ndarray


def resum(mdp: LinearMDP, stream: lsvi.Episode, beta: float, beta_low: float, ridge: float) -> Resummed:
    """Algorithm 1's policy improvement, written as the paper writes it: every sum runs over the whole history."""
    h_max, d = mdp.horizon, mdp.dimension
    gram, weights = np.zeros((h_max, d, d)), np.zeros((h_max, 3, d))
    q = np.zeros((h_max, 3, mdp.states, mdp.actions))
    value = np.zeros((3, mdp.states))
    for h in reversed(range(h_max)):
        s, a, nxt = (np.asarray(x)[:, h] for x in stream)
        phi = mdp.features[s, a]
        gram[h] = ridge * np.eye(d) + sum((np.outer(f, f) for f in phi), start=np.zeros((d, d)))
        width = np.sqrt(np.einsum("sad,de,sae->sa", mdp.features, np.linalg.inv(gram[h]), mdp.features))
        for row, bonus in enumerate((beta, 0.0, -beta_low)):
            targets = mdp.rewards[h, s, a] + value[row, nxt]
            weights[h, row] = np.linalg.solve(gram[h], phi.T @ targets)
            q[h, row] = np.clip(mdp.features @ weights[h, row] + bonus * width, 0, h_max)
        value = q[h].max(-1)
    return Resummed(gram, weights, q)


@pytest.fixture
def resummed() -> Callable[..., Resummed]:
    return resum


@pytest.fixture
def fixed_stream() -> Callable[[LinearMDP, int], lsvi.Episode]:
    """Episodes (leading axis) of a policy that is optimal seven times in ten, so that every depth is reached."""

    def make(mdp: LinearMDP, episodes: int) -> lsvi.Episode:
        policy = 0.7 * greedy(optimal(mdp).q) + 0.3 / mdp.actions
        with jax.enable_x64(True):
            world = lsvi.tables(mdp)
            keys = jax.random.split(jax.random.key(7), episodes)
            drawn = jax.jit(jax.vmap(lambda key: lsvi.rollout(world, key, jnp.asarray(policy))))(keys)
            return lsvi.Episode(*(np.asarray(x) for x in drawn))

    return make


@pytest.fixture
def absorb() -> Callable[..., tuple[lsvi.Statistics, lsvi.Estimates]]:
    """The incremental path over a stream; statistics and estimates after every episode, or after the last one only."""

    def over(
        mdp: LinearMDP, stream: lsvi.Episode, beta: float, beta_low: float, ridge: float, every: bool = False
    ) -> tuple[lsvi.Statistics, lsvi.Estimates]:
        with jax.enable_x64(True):
            world = lsvi.tables(mdp)
            chosen = Settings(*(jnp.asarray(x) for x in (beta, beta_low, 1.0, ridge)))

            def body(old: lsvi.Statistics, episode: lsvi.Episode) -> tuple[lsvi.Statistics, object]:
                new = lsvi.observe(world, old, episode)
                return new, (new, lsvi.fit(world, new, chosen)) if every else None

            @jax.jit
            def scan(episodes: lsvi.Episode) -> Any:
                last, each = jax.lax.scan(body, lsvi.no_data(world, jnp.asarray(ridge)), episodes)
                return each if every else (last, lsvi.fit(world, last, chosen))

            found = scan(lsvi.Episode(*(jnp.asarray(x) for x in stream)))
            return jax.tree.map(np.asarray, found)

    return over

"""Features as a function: the table version's numbers on a finite MDP, and an infinite state space learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.theory import LinearMDP, history, lowrank, lsvi
from hyper_rl.theory.interval import host_features, interval_walk, optimal_weights
from hyper_rl.theory.settings import Settings


def test_equals_the_table_version(
    fixed_stream: Callable[[LinearMDP, int], lsvi.Episode], absorb: Callable[..., Any]
) -> None:
    mdp = lowrank(8, 3, 4, 5)
    stream = fixed_stream(mdp, 80)
    _, tables = absorb(mdp, stream, 1.5, 0.8, 1.2)
    with jax.enable_x64(True):
        chosen = Settings(*(jnp.asarray(x) for x in (1.5, 0.8, 1.0, 1.2)))
        s, a, nxt = (np.asarray(x).T for x in stream)
        phi = jnp.asarray(mdp.features[s, a])
        seen = history.History(
            phi=phi,
            reward=jnp.asarray(mdp.rewards[np.arange(mdp.horizon)[:, None], s, a]),
            next_features=jnp.asarray(mdp.features[nxt]),
            inverse_gram=jnp.linalg.inv(1.2 * jnp.eye(mdp.dimension)[None] + jnp.einsum("hkd,hke->hde", phi, phi)),
            count=jnp.asarray(80),
        )
        found = jax.jit(history.fit_history)(seen, chosen)
        at_states = jax.vmap(history.values_at, in_axes=(0, None, None, None, None), out_axes=1)
        at_steps = jax.jit(jax.vmap(at_states, in_axes=(None, 0, 0, None, None)), static_argnums=4)
        q = at_steps(jnp.asarray(mdp.features), found.weights, found.inverse_gram, chosen, mdp.horizon)
    np.testing.assert_allclose(np.asarray(found.weights), tables.weights, rtol=0, atol=1e-9)
    np.testing.assert_allclose(np.asarray(q), tables.q, rtol=0, atol=1e-9)


def test_an_infinite_state_space_is_learned() -> None:
    """β = 12 > H·sqrt(2): a mixture of two nodes has ||φ|| >= 1/sqrt(2), so entries without data start above any Q*."""
    task = interval_walk()
    best = optimal_weights(task)
    chosen = Settings(*np.array([12.0, 12.0, 0.5, 1.0]))
    found = history.run_function(task, chosen, seed=0, episodes=1500)
    start = host_features(task, np.array(0.0))
    value = (start @ best[0]).max()
    assert found.updated.mean() < 0.6
    assert found.returns[-200:].mean() > 0.9 * value
    plain = np.asarray(found.estimates.weights)[0, lsvi.PLAIN]
    assert abs((start @ plain).max() - value) < 0.05 * value

    places = np.linspace(0, 1, 101)
    phi = host_features(task, places)
    for h in range(task.horizon):
        with jax.enable_x64(True):
            each = jax.vmap(history.values_at, in_axes=(0, None, None, None, None))
            q = each(
                jnp.asarray(phi), found.estimates.weights[h], found.estimates.inverse_gram[h], chosen, task.horizon
            )
        assert (np.asarray(q)[:, lsvi.OPTIMISTIC] >= phi @ best[h] - 1e-3).all()
        assert (np.asarray(q)[:, lsvi.PESSIMISTIC] <= phi @ best[h] + 1e-3).all()

    seen = np.asarray(found.history.phi)
    gram = np.eye(5) + np.einsum("hkd,hke->hde", seen, seen)
    np.testing.assert_allclose(np.asarray(found.history.inverse_gram), np.linalg.inv(gram), rtol=0, atol=1e-9)
    assert int(found.history.count) == 1500

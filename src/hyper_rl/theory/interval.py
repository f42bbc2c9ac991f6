"""A linear MDP on the interval [0, 1]: infinitely many states, known solution.

From x, action a aims at y = clip(x + drift_a, 0, 1). The feature φ(x,a) is y written as a mixture of the d evenly
spaced nodes (hat functions, so φ >= 0 and Σφ = 1); the next state is uniform on a small interval around the node
drawn from that mixture. Hence P(.|x,a) = Σ_i φ_i(x,a)·μ_i exactly, with μ_i the uniform laws, and r = φ·θ pays 1 at
the far node and a little at the near one.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


class IntervalWalk(eqx.Module):
    """Start at 0; `drift` holds one move per action."""

    drift: Float[np.ndarray, " A"]
    theta: Float[np.ndarray, " d"]
    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    horizon: int = eqx.field(static=True)

    @property
    def actions(self) -> int:
        return int(self.drift.shape[0])

    @property
    def dimension(self) -> int:
        return int(self.theta.shape[0])

    def features(self, state: Float[Array, ""]) -> Float[Array, "A d"]:
        aim = jnp.clip(state + jnp.asarray(self.drift), 0.0, 1.0)
        away = aim[:, None] * (self.dimension - 1) - jnp.arange(self.dimension, dtype=aim.dtype)[None, :]
        return jnp.maximum(1.0 - jnp.abs(away), 0.0)

    def reset(self, key: PRNGKeyArray) -> Float[Array, ""]:
        return jnp.zeros((), jnp.asarray(self.drift).dtype)

    def step(
        self, key: PRNGKeyArray, h: Int[Array, ""], state: Float[Array, ""], action: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        node_key, place_key = jax.random.split(key)
        phi = self.features(state)[action]
        node = jnp.searchsorted(jnp.cumsum(phi)[:-1], jax.random.uniform(node_key, dtype=phi.dtype), side="right")
        low, high = jnp.asarray(self.low)[node], jnp.asarray(self.high)[node]
        return jax.random.uniform(place_key, dtype=phi.dtype) * (high - low) + low, phi @ jnp.asarray(self.theta)


def interval_walk(nodes: int = 5, horizon: int = 8, drift: float = 0.2) -> IntervalWalk:
    centres = np.linspace(0.0, 1.0, nodes)
    half = 0.5 / (nodes - 1)
    theta = np.zeros(nodes)
    theta[0], theta[-1] = 0.02, 1.0
    low, high = np.clip(centres - half, 0.0, 1.0), np.clip(centres + half, 0.0, 1.0)
    return IntervalWalk(np.array([-drift, drift]), theta, low, high, horizon)


def optimal_weights(task: IntervalWalk, points: int = 4000) -> Float[np.ndarray, "H d"]:
    """w*_h = θ + ∫ V*_{h+1} dμ, each integral by the midpoint rule (V* is Lipschitz, so the error is O(1/points))."""
    share = (np.arange(points) + 0.5) / points
    places = task.low[:, None] + share[None, :] * (task.high - task.low)[:, None]
    phi = host_features(task, places)
    weights = np.zeros((task.horizon, task.dimension))
    value = np.zeros_like(places)
    for h in reversed(range(task.horizon)):
        weights[h] = task.theta + value.mean(-1)
        value = (phi @ weights[h]).max(-1)
    return weights


def host_features(task: IntervalWalk, x: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "*batch A d"]:
    """`IntervalWalk.features` in numpy, for any batch of states."""
    aim = np.clip(x[..., None] + task.drift, 0.0, 1.0)
    return np.asarray(np.maximum(1.0 - np.abs(aim[..., None] * (task.dimension - 1) - np.arange(task.dimension)), 0.0))

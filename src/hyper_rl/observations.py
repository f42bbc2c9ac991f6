"""How an observation becomes the numbers a network reads: a vector as it is, one of n choices as a one-hot vector."""

from __future__ import annotations

import math

import jax
from jaxtyping import Array, Float, Shaped

from hyper_rl.envs.base import Box, Discrete


def feature_size(space: Box | Discrete) -> int:
    return space.size if isinstance(space, Box) else space.n


def features(space: Box | Discrete, observations: Shaped[Array, "batch ..."]) -> Float[Array, "batch n"]:
    """`n` is `feature_size(space)`."""
    if isinstance(space, Box):
        return observations.astype(float)
    return jax.nn.one_hot(observations, space.n, dtype=float)


def as_vectors(values: Shaped[Array, "batch ..."], size: int) -> Float[Array, "batch {size}"]:
    """Observations or actions as vectors; the numbered ones are those without an axis of their own."""
    return features(Discrete(size) if values.ndim == 1 else Box(size, -math.inf, math.inf), values)

"""How an observation becomes the numbers a network reads: a vector as it is, one of n choices as a one-hot vector.

An image is a vector, too; what is special about it is that its numbers are bytes and that they have neighbours.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError


def feature_size(space: Box | Discrete) -> int:
    return space.size if isinstance(space, Box) else space.n


def image_of(space: Box | Discrete) -> tuple[int, int, int] | None:
    """Height, width and channels of an image; None for what is none."""
    return space.image if isinstance(space, Box) else None


def observation_dtype(space: Box | Discrete) -> Any:
    """What an observation is on the device: a choice, bytes or real numbers."""
    if isinstance(space, Discrete):
        return jnp.dtype(jnp.int32)
    return jnp.zeros((), float).dtype if space.image is None else jnp.dtype(jnp.uint8)


def refuse_images(spec: TaskSpec, part: str, name: str) -> None:
    """For a learner or a bonus of vectors: one line that names what fits."""
    image = image_of(spec.observation)
    if image is None:
        return
    size = "x".join(map(str, image))
    instead = "use 'dqn', with 'rnd' as the bonus"
    if isinstance(spec.action, Box):
        instead = "only 'dqn' does, for finitely many actions; give the environment a wrapper that returns vectors"
    raise UserError(f"{part}: '{name}' does not learn from images, and {spec.name} shows {size} bytes; {instead}")


def features(space: Box | Discrete, observations: Shaped[Array, "batch ..."]) -> Float[Array, "batch n"]:
    """`n` is `feature_size(space)`."""
    if isinstance(space, Box):
        return observations.astype(float)
    return jax.nn.one_hot(observations, space.n, dtype=float)


def as_vectors(values: Shaped[Array, "batch ..."], size: int) -> Float[Array, "batch {size}"]:
    """Observations or actions as vectors; the numbered ones are those without an axis of their own."""
    return features(Discrete(size) if values.ndim == 1 else Box(size, -math.inf, math.inf), values)

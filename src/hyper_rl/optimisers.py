"""RMSprop with its rate as data, as PyTorch computes it: what LESSON's published numbers were made with."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hyper_rl.types import PyTree


class RMSpropState(NamedTuple):
    steps: Int[Array, ""]
    """Not needed by the rule itself; learners read the number of updates made from it, as from Adam's."""
    second: PyTree


def rmsprop_init(params: PyTree) -> RMSpropState:
    return RMSpropState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params))


def rmsprop_step(
    params: PyTree,
    grads: PyTree,
    state: RMSpropState,
    lr: Float[Array, ""] | float,
    *,
    decay: float = 0.99,
    eps: float = 1e-8,
) -> tuple[PyTree, RMSpropState]:
    """v <- decay v + (1 - decay) g^2; p <- p - lr g / (sqrt(v) + eps). No momentum, no centring, no bias correction."""
    second = jax.tree.map(lambda v, g: decay * v + (1 - decay) * jnp.square(g), state.second, grads)
    params = jax.tree.map(lambda p, g, v: p - lr * g / (jnp.sqrt(v) + eps), params, grads, second)
    return params, RMSpropState(state.steps + 1, second)

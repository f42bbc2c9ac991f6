"""A fused network as a function that can be differentiated: forward and backward kernels put together."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hyper_rl.fused import Mode, forward
from hyper_rl.fused_backward import gradient

Layers = tuple[Array, ...]
INTERPRET = False
"""For tests, on machines without a GPU."""


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def fused_network(
    weights: Layers, biases: Layers, x: Float[Array, "batch fan_in"], layer_norm: bool, half: bool
) -> Float[Array, "batch fan_out"]:
    return forward(weights, biases, x, Mode(layer_norm, half, INTERPRET))


class _Saved(eqx.Module):
    weights: Layers
    biases: Layers
    x: Array
    needs_x: bool = eqx.field(static=True)


def _forward(weights: Layers, biases: Layers, x: Array, layer_norm: bool, half: bool) -> tuple[Array, _Saved]:
    # With symbolic zeros each argument says whether its slope is wanted: that in x takes a sum over units a column.
    needs_x: bool = x.perturbed  # type: ignore[attr-defined]
    weights, biases, x = jax.tree.map(lambda leaf: leaf.value, (weights, biases, x))
    return fused_network(weights, biases, x, layer_norm, half), _Saved(weights, biases, x, needs_x)


def _backward(layer_norm: bool, half: bool, saved: _Saved, dy: Array) -> tuple[Layers, Layers, Array]:
    if isinstance(dy, jax.custom_derivatives.SymbolicZero):
        return jax.tree.map(jnp.zeros_like, (saved.weights, saved.biases, saved.x))
    mode = Mode(layer_norm, half, INTERPRET)
    slopes = gradient(saved.weights, saved.biases, saved.x, dy, mode, needs_x=saved.needs_x)
    dx = slopes.x if slopes.x is not None else jnp.zeros_like(saved.x)
    return slopes.weights, slopes.biases, dx


fused_network.defvjp(_forward, _backward, symbolic_zeros=True)

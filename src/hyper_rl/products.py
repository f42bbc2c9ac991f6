"""Affine layers: x W + b with its derivative written out, in the number format that is asked for."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_ROWS_BY_COLUMNS, _OVER_OUTPUTS, _OVER_BATCH = ((((i,), (j,)), ((), ())) for i, j in ((1, 0), (1, 1), (0, 0)))


def affine(
    x: Float[Array, "batch fan_in"],
    weight: Float[Array, "fan_in fan_out"],
    bias: Float[Array, " fan_out"],
    result: Any = None,
) -> Float[Array, "batch fan_out"]:
    """x W + b, computed and given in the number format of x, or given in that of `result`."""
    return _affine(x, weight, bias, jnp.dtype(result or x.dtype))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _affine(x: Array, weight: Array, bias: Array, result: Any) -> Array:
    """With its derivative written out.

    The automatic one computes the transposed gradient of W and turns it round element by element; here it comes out
    the right way round. Measured on two cores: 8% of a step of Hyper, and another 5% for not transposing W.
    """
    return _product(x, weight.astype(x.dtype), _ROWS_BY_COLUMNS, result) + bias.astype(result)[None, :]


def _affine_forward(x: Array, weight: Array, bias: Array, result: Any) -> tuple[Array, tuple[Array, Array]]:
    return _affine(x, weight, bias, result), (x, weight)


def affine_backward(result: Any, saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array, Array]:
    """Slopes of sum(dy * (x W + b)) in x, W and b, from (x, W)."""
    x, weight = saved
    rounded, rounded_weight = dy.astype(x.dtype), weight.astype(x.dtype)
    dx = _product(rounded, rounded_weight, _OVER_OUTPUTS, x.dtype)
    dweight = _product(x, rounded, _OVER_BATCH, weight.dtype)
    return dx, dweight, dy.astype(weight.dtype).sum(axis=0)


_affine.defvjp(_affine_forward, affine_backward)


def _product(a: Array, b: Array, over: Any, result: Any) -> Array:
    """Of two matrices in one number format. From bfloat16 to something wider, the sums are float32 on every device."""
    if a.dtype == result:
        return jax.lax.dot_general(a, b, over)
    # Written as float32 because CPUs have no such product; a GPU sees that the numbers are bfloat16 and takes them so.
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    return jax.lax.dot_general(a, b, over, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32).astype(result)

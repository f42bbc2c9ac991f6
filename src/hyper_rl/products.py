"""Affine layers: x W + b with its derivative, in the form that each device computes fastest.

Two things are decided here and nowhere else: the number format of products (`half` networks hand in bfloat16), and
how a GPU computes the thin ones (a handful of inputs or of outputs, as in the first and the last layer of every network
for a small task). A matrix product writes its result to memory, and something else reads it again to add a bias or
apply a ReLU; written as a sum it is computed together with its neighbours, in one pass over the memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hyper_rl import backend

THIN_INPUTS, THIN_OUTPUTS = 8, 4
"""Up to here a layer is thin. The sums are unrolled, and those over outputs keep that many numbers in registers."""

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
    weight = weight.astype(x.dtype)
    fan_in, fan_out = weight.shape
    if backend.on_gpu() and fan_in <= THIN_INPUTS:
        product = sum_over_inputs(x, weight, result)
    elif backend.on_gpu() and fan_out <= THIN_OUTPUTS:
        product = sum_for_each_output(x, weight, result)
    else:
        product = _product(x, weight, _ROWS_BY_COLUMNS, result)
    return product + bias.astype(result)[None, :]


def _affine_forward(x: Array, weight: Array, bias: Array, result: Any) -> tuple[Array, tuple[Array, Array]]:
    return _affine(x, weight, bias, result), (x, weight)


def affine_backward(result: Any, saved: tuple[Array, Array], dy: Array) -> tuple[Array, Array, Array]:
    """Slopes of sum(dy * (x W + b)) in x, W and b, from (x, W)."""
    x, weight = saved
    rounded, rounded_weight = dy.astype(x.dtype), weight.astype(x.dtype)
    if backend.on_gpu() and weight.shape[1] <= THIN_OUTPUTS:
        dx = sum_over_inputs(rounded, rounded_weight.T, x.dtype)
    else:
        dx = _product(rounded, rounded_weight, _OVER_OUTPUTS, x.dtype)
    if backend.on_gpu() and weight.shape[0] <= THIN_INPUTS:
        return dx, *slopes_of_few_inputs(x, weight, rounded)
    dweight = _product(x, rounded, _OVER_BATCH, weight.dtype)
    return dx, dweight, dy.astype(weight.dtype).sum(axis=0)


_affine.defvjp(_affine_forward, affine_backward)


def sum_over_inputs(
    x: Float[Array, "batch fan_in"], weight: Float[Array, "fan_in fan_out"], result: Any
) -> Float[Array, "batch fan_out"]:
    """Term by term, so that it fuses with what comes after it. The sum is in `result` or float32, never in bfloat16."""
    kind = wide(result)
    x, weight = x.astype(kind), weight.astype(kind)
    terms = (x[:, i, None] * weight[None, i, :] for i in range(x.shape[1]))
    return sum(terms, start=jnp.zeros((), kind)).astype(result)


def sum_for_each_output(
    x: Float[Array, "batch fan_in"], weight: Float[Array, "fan_in fan_out"], result: Any
) -> Float[Array, "batch fan_out"]:
    """One reduction with a sum for each output, so that it fuses with what comes before it and reads that once."""
    kind = wide(result)
    x, weight = x.astype(kind), weight.astype(kind)
    terms = tuple(x * weight[None, :, j] for j in range(weight.shape[1]))
    zeros = tuple(jnp.zeros((), kind) for _ in terms)
    sums = jax.lax.reduce(terms, zeros, lambda a, b: tuple(i + j for i, j in zip(a, b, strict=True)), (1,))
    return jnp.stack(sums, axis=1).astype(result)


def slopes_of_few_inputs(
    x: Float[Array, "batch fan_in"], weight: Float[Array, "fan_in fan_out"], dy: Float[Array, "batch fan_out"]
) -> tuple[Float[Array, "fan_in fan_out"], Float[Array, " fan_out"]]:
    """Those in W and b as one product, the bias being the weight of an input that is always one: dy is read once.

    Where networks share x, the compiler would put their dy side by side first, a pass over all of it; so x is made to
    look as if it were each network's own.
    """
    with_one = jnp.concatenate([x, jnp.ones((x.shape[0], 1), x.dtype)], axis=1)
    both = _product(as_if_other(with_one, weight), dy, _OVER_BATCH, weight.dtype)
    return both[:-1], both[-1]


def as_if_other(x: Array, weight: Array) -> Array:
    """x, but to the compiler something of the network: a choice between the two that always takes x.

    A barrier keeps the compiler from seeing that it does, and so from using again what it has computed from x.
    """
    never = jax.lax.optimization_barrier(jnp.zeros((), bool))
    return jnp.where(never, weight[0, 0].astype(x.dtype), x)


def wide(result: Any) -> Any:
    """The number format for sums: never below float32."""
    return result if jnp.dtype(result).itemsize >= 4 else jnp.float32


def _product(a: Array, b: Array, over: Any, result: Any) -> Array:
    """Of two matrices in one number format. From bfloat16 to something wider, the sums are float32 on every device."""
    if a.dtype == result:
        return jax.lax.dot_general(a, b, over)
    # Written as float32 because CPUs have no such product; a GPU sees that the numbers are bfloat16 and takes them so.
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    return jax.lax.dot_general(a, b, over, precision=jax.lax.DotAlgorithmPreset.BF16_BF16_F32).astype(result)

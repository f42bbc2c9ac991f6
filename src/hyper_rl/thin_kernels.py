"""A thin hidden layer on a GPU, relu(x W + b) of a few inputs: its units in one kernel, its gradient in another.

Left to the compiler, the units are written at half the speed of the memory. For the gradient, slopes in W and b of
sum(dy * relu(x W + b)), the slopes dy are masked where the layer's ReLU was off, which writes a layer to memory, and
what was written is multiplied by the layer's few inputs; the kernel reads the slopes, computes the mask from the inputs
and adds up the products, in one pass over the memory. A layer that is normalised before its ReLU goes the same way.
What is rounded is rounded where `hidden_layers` does it without the kernels, so both give the same but for the order of
sums.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from hyper_rl.backend import usable_devices

Layer = tuple[Array, Array, Array]
"""x, W and b."""
Column = Float[Array, "batch 1"]

ROWS, UNITS = 64, 128
"""Of the slopes that are in registers at a time."""
FORWARD_ROWS, FORWARD_UNITS = 32, 256
"""Of the layer that one block of the forward kernel computes; fewer units where a layer is no multiple of them."""
COLUMNS = 16
"""Of the matrix of inputs: as few as a product takes."""
BESIDE = 5
"""Columns that stand beside the inputs: a one for the bias, and the four numbers of a normalised row."""
WARPS, STAGES = 4, 3
OLDEST = 8.0
"""Compute capability of the first NVIDIA GPUs that have TF32 products."""
PRECISIONS = (None, "default", "tensorfloat32", "TF32_TF32_F32")
"""Of products, as `jax_default_matmul_precision` says it, under which the compiler's own products are TF32, too."""


def interpreted() -> bool:
    """Whether the kernels run step by step as plain JAX, as they must where there is no GPU."""
    return usable_devices()[0].platform != "gpu"


def runs_here() -> bool:
    """Whether this process may use the kernels at all: they are written for recent NVIDIA GPUs, and in TF32."""
    if getattr(jax.config, "jax_default_matmul_precision", None) not in PRECISIONS:
        return False
    return interpreted() or _capability(usable_devices()[0]) >= OLDEST


def _capability(device: Any) -> float:
    """0 for what is no NVIDIA GPU."""
    try:
        return float(device.compute_capability)
    except (AttributeError, ValueError):
        return 0.0


def fits(layer: Layer) -> bool:
    """Whether the kernels take a layer: of whole blocks, few inputs, and numbers of at most 32 bits."""
    (batch, fan_in), width = layer[0].shape, layer[1].shape[1]
    units = min(UNITS, width)
    whole = batch % ROWS == 0 and width % units == 0 and units >= 16 and units.bit_count() == 1
    return whole and fan_in + BESIDE <= COLUMNS and all(part.dtype in (jnp.float32, jnp.bfloat16) for part in layer)


def units(layer: Layer, rows: tuple[Column, ...] = ()) -> Float[Array, "batch n"]:
    """relu(x W + b), for a layer that `fits`; with `rows` (mean, one over the deviation) normalised before its ReLU."""
    x, weight, bias = layer
    (batch, fan_in), width = x.shape, weight.shape[1]
    wide = FORWARD_UNITS if width % FORWARD_UNITS == 0 else min(UNITS, width)
    return pl.pallas_call(
        partial(_units, fan_in=fan_in, normalised=bool(rows)),
        out_shape=jax.ShapeDtypeStruct((batch, width), x.dtype),
        grid=(batch // FORWARD_ROWS, width // wide),
        in_specs=[
            pl.BlockSpec((FORWARD_ROWS, fan_in), lambda i, j: (i, 0)),
            pl.BlockSpec((fan_in, wide), lambda i, j: (0, j)),
            pl.BlockSpec((wide,), lambda i, j: (j,)),
            *(pl.BlockSpec((FORWARD_ROWS, 1), lambda i, j: (i, 0)) for _ in rows),
        ],
        out_specs=pl.BlockSpec((FORWARD_ROWS, wide), lambda i, j: (i, j)),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpreted(),
    )(x, weight.astype(x.dtype), bias.astype(x.dtype), *rows)


def _units(x: Any, weight: Any, bias: Any, *rest: Any, fan_in: int, normalised: bool) -> None:
    *rows, y = rest
    terms = (x[:, i].astype(jnp.float32)[:, None] * weight[i, :].astype(jnp.float32)[None, :] for i in range(fan_in))
    result = sum(terms, start=jnp.zeros((), jnp.float32)).astype(y.dtype) + bias[:][None, :]
    if normalised:
        mean, scale = (row[:, 0][:, None] for row in rows)
        result = (result.astype(jnp.float32) - mean) * scale
    # No maximum: Triton's takes the 0 where the other is no number, and a network that has diverged must show it.
    y[:, :] = jnp.where(result < 0, 0.0, result).astype(y.dtype)


def weight_slopes(
    layer: Layer, dy: Float[Array, "batch n"], rows: tuple[Column, ...] = ()
) -> tuple[Float[Array, "fan_in n"], Float[Array, " n"]]:
    """Slopes in W and b, for a layer that `fits`.

    With `rows` (mean, one over the deviation, mean of g, mean of g times the unit, as `normalise_slopes` has them) of a
    layer that is normalised before its ReLU.
    """
    x, weight, bias = layer
    (batch, fan_in), width = x.shape, weight.shape[1]
    units = min(UNITS, width)
    # What belongs to a row stands beside its inputs; its products are computed too, and left where they are.
    columns = [x, jnp.ones((batch, 1), x.dtype), *rows]
    columns.append(jnp.zeros((batch, COLUMNS - fan_in - 1 - len(rows)), x.dtype))
    inputs = jnp.concatenate([column.astype(jnp.float32) for column in columns], axis=1)
    sums = pl.pallas_call(
        partial(_masked_sums, fan_in=fan_in, normalised=bool(rows), kind=x.dtype),
        out_shape=jax.ShapeDtypeStruct((COLUMNS, width), jnp.float32),
        grid=(width // units,),
        in_specs=[
            pl.BlockSpec((batch, COLUMNS), lambda i: (0, 0)),
            pl.BlockSpec((fan_in, units), lambda i: (0, i)),
            pl.BlockSpec((units,), lambda i: (i,)),
            pl.BlockSpec((batch, units), lambda i: (0, i)),
        ],
        out_specs=pl.BlockSpec((COLUMNS, units), lambda i: (0, i)),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=interpreted(),
    )(inputs, weight, bias, dy)
    return sums[:fan_in].astype(weight.dtype), sums[fan_in].astype(weight.dtype)


def _masked_sums(
    inputs: Any, weight: Any, bias: Any, dy: Any, sums: Any, *, fan_in: int, normalised: bool, kind: Any
) -> None:
    def rounded(numbers: Array) -> Array:
        return numbers.astype(kind).astype(jnp.float32)

    def add_rows(k: Array, total: Array) -> Array:
        rows = pl.ds(k * ROWS, ROWS)
        terms = (inputs[rows, i][:, None] * rounded(weight[i, :])[None, :] for i in range(fan_in))
        product = sum(terms, start=jnp.zeros((), jnp.float32))
        units = rounded(rounded(product) + rounded(bias[:])[None, :])
        slopes = dy[rows, :].astype(jnp.float32)
        if normalised:
            mean, scale, g, along = (inputs[rows, fan_in + 1 + i][:, None] for i in range(4))
            slopes = normalise_slopes(slopes, (units - mean) * scale, scale, g, along)
        else:
            slopes = jnp.where(units > 0, slopes, 0.0)
        return total + _product(inputs[rows, :], rounded(slopes))

    zeros = jnp.zeros(sums.shape, jnp.float32)
    sums[:, :] = jax.lax.fori_loop(0, dy.shape[0] // ROWS, add_rows, zeros)


def _product(inputs: Array, slopes: Array) -> Array:
    """Over the rows. In TF32 on a GPU, which holds every bfloat16 number exactly."""
    precision = None if interpreted() else jax.lax.DotAlgorithmPreset.TF32_TF32_F32
    return jax.lax.dot_general(inputs, slopes, (((0,), (0,)), ((), ())), precision=precision)


def normalise_slopes(dy: Array, units: Array, scale: Column, mean: Column, along: Column) -> Array:
    """Slopes in a layer before ReLU and normalisation, from `units`, the layer after its normalisation.

    `mean` and `along` are the means over a sample of g and of g times the unit, with g = dy where a unit is positive.
    """
    return scale * (jnp.where(units > 0, dy, 0.0) - mean - units * along)

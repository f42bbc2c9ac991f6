"""A whole network in one kernel, for GPUs.

Layer by layer, a pass of 256 rows through a layer of 256 units writes and reads several times the bytes of the layer's
matrix, and on a GPU that, not the products, is what it costs. Here each kernel takes a block of rows through all
layers: the first is computed piece by piece as the second one's product needs it, the last is summed up from what that
product left in registers. Memory sees the weights, the rows and the result. The backward pass (`fused_backward.py`)
computes the hidden layers again instead of having kept them.

Networks have two hidden layers and are thin at both ends; for others, and on other devices, `MLP.with_layers` computes
the same layer by layer. It is the reference of the tests too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from hyper_rl.networks import EPSILON
from hyper_rl.products import THIN_INPUTS, THIN_OUTPUTS

PIECE = 32
"""Units that a product takes in at a time."""
ROWS, FEWEST_ROWS = 128, 64
"""Rows that one kernel takes through the network: the first where the batch is a multiple of it."""
WARPS, STAGES = 8, 3
LARGEST = 256
"""Widest hidden layer: a kernel keeps a number for each unit and row in registers."""


@dataclass(frozen=True)
class Mode:
    """What kind of network, and how to compute it."""

    layer_norm: bool
    half: bool
    """Products from operands rounded to bfloat16."""
    interpret: bool = False
    """Without a GPU, slowly, for tests."""


def fits(weights: tuple[Array, ...], x: Float[Array, "batch fan_in"]) -> bool:
    """Two hidden layers, thin at both ends, in float32 as GPUs multiply it by default."""
    by_default = jax.config.jax_default_matmul_precision is None  # type: ignore[attr-defined]
    if len(weights) != 3 or x.dtype != jnp.float32 or not by_default:
        return False
    (fan_in, width), (_, second), (_, fan_out) = (weight.shape for weight in weights)
    return (
        fan_in <= THIN_INPUTS
        and fan_out <= THIN_OUTPUTS
        and all(PIECE <= n <= LARGEST and n & (n - 1) == 0 for n in (width, second))
        and x.shape[0] % FEWEST_ROWS == 0
    )


def forward(
    weights: tuple[Array, ...], biases: tuple[Array, ...], x: Float[Array, "batch fan_in"], mode: Mode
) -> Float[Array, "batch fan_out"]:
    """What the network makes of x."""
    batch, fan_in = x.shape
    fan_out = weights[2].shape[1]
    rows = ROWS if batch % ROWS == 0 else FEWEST_ROWS
    parameters = [array for layer in zip(weights, biases, strict=True) for array in layer]
    return pl.pallas_call(
        partial(_through_network, mode=mode),
        out_shape=jax.ShapeDtypeStruct((batch, fan_out), x.dtype),
        grid=(batch // rows,),
        in_specs=[block_of_rows(rows, fan_in), *map(whole, parameters)],
        out_specs=block_of_rows(rows, fan_out),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
        interpret=mode.interpret,
    )(x, *parameters)


def block_of_rows(rows: int, columns: int) -> pl.BlockSpec:
    return pl.BlockSpec((rows, columns), lambda i: (i, 0))


def whole(array: Array) -> pl.BlockSpec:
    return pl.BlockSpec(array.shape, lambda i: (0,) * array.ndim)


def _through_network(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, y: Any, *, mode: Mode) -> None:
    rows, units = x.shape[0], first_layer(x, w1, b1, mode)
    moments = moments_by_piece(units, rows, w1.shape[1]) if mode.layer_norm else None
    hidden = second_layer(units, moments, w2, b2, rows, mode)
    if mode.layer_norm:
        mean, scale = row_moments(hidden)
        hidden = (hidden - mean) * scale
    hidden = jnp.maximum(hidden, 0.0)
    for j in range(w3.shape[1]):
        y[:, j] = (hidden * w3[:, j][None, :]).sum(axis=1) + b3[j]


FirstLayer = Callable[[Any], Array]
"""From a slice of units to their values before normalisation and ReLU, a row for each row."""


def first_layer(x: Any, w1: Any, b1: Any, mode: Mode) -> FirstLayer:
    # Column by column: a kernel's arrays have powers of two as sizes, a task has as many numbers as it has.
    columns = [x[:, i][:, None] for i in range(x.shape[1])]

    def units(piece: Any) -> Array:
        total = b1[piece][None, :]
        for i, column in enumerate(columns):
            total = multiply_add(column, w1[i, piece][None, :], total, mode)
        return total

    return units


def multiply_add(a: Array, b: Array, c: Array, mode: Mode) -> Array:
    """a b + c in one instruction; the compiler would keep the two apart, because one rounds and two round twice."""
    if mode.interpret:
        return a * b + c
    shape = jnp.broadcast_shapes(a.shape, b.shape, c.shape)
    (result,) = triton.elementwise_inline_asm(
        "fma.rn.f32 $0, $1, $2, $3;",
        args=[jnp.broadcast_to(array, shape) for array in (a, b, c)],
        constraints="=r,r,r,r",
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(shape, jnp.float32)],
    )
    return result


Moments = tuple[Array, Array]
"""Mean of each row and one over its deviation, as columns."""


def second_layer(units: FirstLayer, moments: Moments | None, w2: Any, b2: Any, rows: int, mode: Mode) -> Array:
    """Before normalisation and ReLU; `moments` are those of the first layer where it is normalised."""
    width, second = w2.shape

    def add_piece(k: Array, total: Array) -> Array:
        piece = pl.ds(k * PIECE, PIECE)
        hidden = units(piece)
        hidden = jnp.maximum(hidden if moments is None else (hidden - moments[0]) * moments[1], 0.0)
        return total + product(hidden, w2[piece, :], mode)

    return jax.lax.fori_loop(0, width // PIECE, add_piece, jnp.zeros((rows, second), jnp.float32)) + b2[:][None, :]


def row_moments(x: Float[Array, "rows n"]) -> Moments:
    """As `networks.normalise_features` has them."""
    return _mean_and_scale(x, x * x, x.shape[1])


def moments_by_piece(units: FirstLayer, rows: int, width: int) -> Moments:
    """The same for a layer that is never there as a whole."""

    def add_piece(k: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
        hidden = units(pl.ds(k * PIECE, PIECE))
        return sums[0] + hidden, sums[1] + hidden * hidden

    # Piece upon piece first: adding up within a row is what costs, and so it is done once.
    zeros = jnp.zeros((rows, PIECE), jnp.float32)
    total, squares = jax.lax.fori_loop(0, width // PIECE, add_piece, (zeros, zeros))
    return _mean_and_scale(total, squares, width)


def _mean_and_scale(values: Array, squares: Array, n: int) -> Moments:
    mean = values.sum(axis=1) / n
    variance = jnp.maximum(squares.sum(axis=1) / n - mean * mean, 0.0)
    return mean[:, None], jax.lax.rsqrt(variance + EPSILON)[:, None]


def product(a: Array, b: Array, mode: Mode, over: tuple[int, int] = (1, 0)) -> Array:
    """Of two matrices, summed over these dimensions of a and b."""
    if mode.half:
        a, b = a.astype(jnp.bfloat16), b.astype(jnp.bfloat16)
    dimensions = (((over[0],), (over[1],)), ((), ()))
    if mode.interpret:  # on a CPU, which multiplies neither TF32 nor bfloat16
        return jax.lax.dot_general(a.astype(jnp.float32), b.astype(jnp.float32), dimensions)
    algorithm = jax.lax.DotAlgorithmPreset.BF16_BF16_F32 if mode.half else jax.lax.DotAlgorithmPreset.TF32_TF32_F32
    return jax.lax.dot_general(a, b, dimensions, precision=algorithm)

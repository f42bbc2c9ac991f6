"""The derivative of a fused network, in three kernels that keep no hidden layer in memory.

    x -> z1 -> LN, ReLU -> h1 -> z2 -> LN, ReLU -> h2 -> y

1. `_down_to_second`: z2 again, and from it and dy the slope in z2, which is written down, and those in W3 and b2;
2. `_down_to_first`: from the slope in z2 that in h1, and with z1 computed again those in W1, b1 and x;
3. `_second_weights`: the slope in W2 from h1, computed again piece by piece, and the slope in z2.

Slopes of parameters are sums over rows. Each kernel sums over its block of them, as a product with the columns of x (or
of dy) and a column of ones; adding up the blocks is left to the compiler, which does so where the sums are used.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from hyper_rl.fused import (
    FEWEST_ROWS,
    PIECE,
    Mode,
    block_of_rows,
    first_layer,
    moments_by_piece,
    multiply_add,
    product,
    row_moments,
    second_layer,
    whole,
)

UNITS = 128
"""Rows of the slope in W2 that one kernel computes."""
WARPS, STAGES = 8, 3
COLUMNS = 16
"""Of the matrix for sums over rows: as few as a product takes."""
EVERY_UNIT = slice(None)


class Slopes(NamedTuple):
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    x: Array | None


def gradient(
    weights: tuple[Array, ...],
    biases: tuple[Array, ...],
    x: Float[Array, "batch fan_in"],
    dy: Float[Array, "batch fan_out"],
    mode: Mode,
    *,
    needs_x: bool,
) -> Slopes:
    """Of sum(dy * forward(x))."""
    (w1, w2, w3), (b1, b2, _) = weights, biases
    (batch, fan_in), (width, second), fan_out = x.shape, w2.shape, w3.shape[1]
    rows = FEWEST_ROWS
    blocks = batch // rows
    between = jnp.bfloat16 if mode.half else x.dtype

    def kernel(body: Any, outs: list[tuple[pl.BlockSpec, tuple[int, ...], Any]], inputs: list[Any], n: int) -> Any:
        return pl.pallas_call(
            partial(body, mode=mode),
            out_shape=[jax.ShapeDtypeStruct(shape, dtype) for _, shape, dtype in outs],
            grid=(n,),
            in_specs=[spec for spec, _ in inputs],
            out_specs=[spec for spec, _, _ in outs],
            compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=STAGES),
            interpret=mode.interpret,
        )(*[array for _, array in inputs])

    def sums(columns: int) -> tuple[pl.BlockSpec, tuple[int, ...], Any]:
        return block_of_rows(COLUMNS, columns), (blocks * COLUMNS, columns), x.dtype

    def added_up(sums: Array, low: int, high: int) -> Array:
        return sums.reshape(blocks, COLUMNS, -1)[:, low:high].sum(axis=0)

    def for_each_row(columns: int, dtype: Any) -> tuple[pl.BlockSpec, tuple[int, ...], Any]:
        return block_of_rows(rows, columns), (batch, columns), dtype

    x_rows = (block_of_rows(rows, fan_in), x)
    first = [(whole(w1), w1), (whole(b1), b1)]
    dz2, moments, dw3, db2 = kernel(
        _down_to_second,
        [for_each_row(second, between), for_each_row(2, x.dtype), sums(second), sums(second)],
        [x_rows, *first, (whole(w2), w2), (whole(b2), b2), (whole(w3), w3), (block_of_rows(rows, COLUMNS), _wide(dy))],
        blocks,
    )
    outs = [sums(width), *([for_each_row(fan_in, x.dtype)] if needs_x else [])]
    wide_x = (block_of_rows(rows, COLUMNS), _wide(x))
    dw1, *dx = kernel(
        _down_to_first,
        outs,
        [
            x_rows,
            *first,
            (whole(w2), w2),
            (block_of_rows(rows, second), dz2),
            (block_of_rows(rows, 2), moments),
            wide_x,
        ],
        blocks,
    )
    dw1 = added_up(dw1, 0, fan_in + 1)
    units = min(UNITS, width)
    some = [(pl.BlockSpec((fan_in, units), lambda i: (0, i)), w1), (pl.BlockSpec((units,), lambda i: (i,)), b1)]
    (dw2,) = kernel(
        _second_weights,
        [(block_of_rows(units, second), (width, second), x.dtype)],
        [(whole(x), x), *some, (whole(moments), moments), (whole(dz2), dz2)],
        width // units,
    )
    return Slopes(
        (dw1[:-1], dw2, added_up(dw3, 0, fan_out).T),
        (dw1[-1], added_up(db2, fan_out, fan_out + 1)[0], dy.sum(axis=0)),
        dx[0] if needs_x else None,
    )


def _wide(columns: Float[Array, "batch n"]) -> Float[Array, "batch COLUMNS"]:
    """With a column of ones behind them and zeros behind that."""
    batch, n = columns.shape
    rest = [jnp.ones((batch, 1), columns.dtype), jnp.zeros((batch, COLUMNS - n - 1), columns.dtype)]
    return jnp.concatenate([columns, *rest], axis=1)


def _down_to_second(
    x: Any, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, dy: Any, dz2: Any, moments: Any, dw3: Any, db2: Any, *,
    mode: Mode,
) -> None:  # fmt: skip
    rows, fan_out = x.shape[0], w3.shape[1]
    units = first_layer(x, w1, b1, mode)
    found = moments_by_piece(units, rows, w1.shape[1]) if mode.layer_norm else None
    if found is not None:  # for the other kernels
        moments[:, 0], moments[:, 1] = found[0][:, 0], found[1][:, 0]
    z2 = second_layer(units, found, w2, b2, rows, mode)
    if mode.layer_norm:
        mean, scale = row_moments(z2)
        z2 = (z2 - mean) * scale
    _store_sums(dw3, dy, jnp.maximum(z2, 0.0), mode, 0, fan_out)
    slope = jnp.zeros_like(z2)
    for j in range(fan_out):
        slope = multiply_add(dy[:, j][:, None], w3[:, j][None, :], slope, mode)
    slope = jnp.where(z2 > 0, slope, 0.0)
    if mode.layer_norm:
        slope = _through_normalisation(z2, scale, slope)
    _store_sums(db2, dy, slope, mode, fan_out, fan_out + 1)
    dz2[:, :] = slope.astype(dz2.dtype)


def _down_to_first(
    x: Any, w1: Any, b1: Any, w2: Any, dz2: Any, moments: Any, wide_x: Any, dw1: Any, *dx: Any, mode: Mode
) -> None:
    (rows, fan_in), (width, second) = x.shape, w2.shape

    def add_piece(k: Array, total: Array) -> Array:
        piece = pl.ds(k * PIECE, PIECE)
        return total + product(dz2[:, piece], w2[:, piece], mode, over=(1, 1))

    slope = jax.lax.fori_loop(0, second // PIECE, add_piece, jnp.zeros((rows, width), jnp.float32))
    z1 = first_layer(x, w1, b1, mode)(EVERY_UNIT)
    if mode.layer_norm:
        scale = moments[:, 1][:, None]
        z1 = (z1 - moments[:, 0][:, None]) * scale
    slope = jnp.where(z1 > 0, slope, 0.0)
    if mode.layer_norm:
        slope = _through_normalisation(z1, scale, slope)
    _store_sums(dw1, wide_x, slope, mode, 0, fan_in + 1)
    for out in dx:
        for i in range(fan_in):
            out[:, i] = (slope * w1[i, :][None, :]).sum(axis=1)


def _store_sums(out: Any, columns: Any, values: Array, mode: Mode, low: int, high: int) -> None:
    """Sums over rows of values times each column, of which those from low to high are stored."""
    sums = product(columns[:, :], values, dataclasses.replace(mode, half=False), over=(0, 0))
    number = jax.lax.broadcasted_iota(jnp.int32, sums.shape, 0)
    triton.store(out.at[:, :], sums, mask=(number >= low) & (number < high))


def _second_weights(x: Any, w1: Any, b1: Any, moments: Any, dz2: Any, dw2: Any, *, mode: Mode) -> None:
    units, second = dw2.shape

    def add_piece(k: Array, total: Array) -> Array:
        piece = pl.ds(k * PIECE, PIECE)
        hidden = b1[:][None, :]
        for i in range(x.shape[1]):
            hidden = multiply_add(x[piece, i][:, None], w1[i, :][None, :], hidden, mode)
        if mode.layer_norm:
            hidden = (hidden - moments[piece, 0][:, None]) * moments[piece, 1][:, None]
        return total + product(jnp.maximum(hidden, 0.0), dz2[piece, :], mode, over=(0, 0))

    dw2[:, :] = jax.lax.fori_loop(0, x.shape[0] // PIECE, add_piece, jnp.zeros((units, second), jnp.float32))


def _through_normalisation(normalised: Array, scale: Array, slope: Array) -> Array:
    """The slope before the normalisation of each row, from that after it."""
    n = normalised.shape[1]
    mean = slope.sum(axis=1, keepdims=True) / n
    along = (slope * normalised).sum(axis=1, keepdims=True) / n
    return scale * (slope - mean - normalised * along)

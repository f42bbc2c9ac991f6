"""Other ways to compute a part of a step on a GPU, each beside what the package does; in the package once it has won.

    python benchmarks/gpu_variants.py --runs 128
    python benchmarks/gpu_variants.py --check        # the same numbers? On a CPU too, where kernels are interpreted

`slopes`: the gradient of a thin first layer in one kernel. The package masks the slopes where the layer's ReLU was off,
which writes a layer to memory, and multiplies what it has written by the layer's few inputs; the kernel reads the
slopes, computes the mask from the inputs and adds up products in one pass. By bytes that is 65 us of 2.66 ms for the
critics of 128 runs (TF32, preset `paper`) and some more for the actors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

sys.path.insert(0, str(Path(__file__).parent))

from gpu_kernels import program_parser
from hyper_rl import backend, hidden_layers
from hyper_rl.hidden_layers import Column, Layer, normalise_slopes
from hyper_rl.products import affine, affine_backward
from speed import make_program, measure

ROWS, UNITS = 64, 128
"""Of the slopes that are in registers at a time."""
COLUMNS = 16
"""Of the matrix of inputs: as few as a product takes."""
WARPS, STAGES = 4, 3


def slopes_in_one_kernel(
    layer: Layer, dy: Float[Array, "batch n"], rows: tuple[Column, ...] = ()
) -> tuple[Array, Array]:
    """Slopes in W and b of sum(dy * relu(x W + b)), for a batch and a width of whole blocks.

    With `rows` (mean, one over the deviation, mean of g, mean of g times the unit, as `normalise_slopes` has them) of a
    layer that is normalised before its ReLU.
    """
    x, weight, bias = layer
    (batch, fan_in), width = x.shape, weight.shape[1]
    units = min(UNITS, width)
    assert batch % ROWS == 0 and width % units == 0, "a remainder would be left out"
    # What belongs to a row stands beside its inputs; its products are computed too, and left where they are.
    columns = [x, jnp.ones((batch, 1), x.dtype), *rows]
    columns.append(jnp.zeros((batch, COLUMNS - fan_in - 1 - len(rows)), x.dtype))
    sums = pl.pallas_call(
        partial(_masked_sums, fan_in=fan_in, normalised=bool(rows)),
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
        interpret=not backend.on_gpu(),
    )(jnp.concatenate(columns, axis=1), weight, bias, dy)
    return sums[:fan_in].astype(weight.dtype), sums[fan_in].astype(bias.dtype)


def _masked_sums(inputs: Any, weight: Any, bias: Any, dy: Any, sums: Any, *, fan_in: int, normalised: bool) -> None:
    def add_rows(k: Array, total: Array) -> Array:
        rows = pl.ds(k * ROWS, ROWS)
        units, slopes = bias[:][None, :], dy[rows, :]
        for i in range(fan_in):
            units = units + inputs[rows, i][:, None] * weight[i, :][None, :]
        if normalised:
            mean, scale, g, along = (inputs[rows, fan_in + 1 + i][:, None] for i in range(4))
            slopes = normalise_slopes(slopes, (units - mean) * scale, scale, g, along)
        else:
            slopes = jnp.where(units > 0, slopes, 0.0)
        return total + _product(inputs[rows, :], slopes)

    zeros = jnp.zeros(sums.shape, jnp.float32)
    sums[:, :] = jax.lax.fori_loop(0, dy.shape[0] // ROWS, add_rows, zeros)


def _product(inputs: Array, slopes: Array) -> Array:
    over_rows = (((0,), (0,)), ((), ()))
    if not backend.on_gpu():
        return jax.lax.dot_general(inputs, slopes, over_rows)
    return jax.lax.dot_general(inputs, slopes, over_rows, precision=jax.lax.DotAlgorithmPreset.TF32_TF32_F32)


def thin_with_kernel() -> Callable[..., Array]:
    """`hidden_layers._thin` with another derivative."""

    @jax.custom_vjp
    def thin(x: Array, weight: Array, bias: Array) -> Array:
        return jax.nn.relu(affine(x, weight, bias))

    def backward(layer: Layer, dy: Array) -> Layer:
        masked = jnp.where(hidden_layers._again(layer) > 0, dy, jnp.zeros_like(dy))
        return slopes_of_inputs(layer, masked), *slopes_in_one_kernel(layer, dy)

    thin.defvjp(lambda x, weight, bias: (thin(x, weight, bias), (x, weight, bias)), backward)
    return thin


def thin_normalised_with_kernel() -> Callable[..., Array]:
    """`hidden_layers._thin_normalised` with another derivative."""

    @jax.custom_vjp
    def thin(x: Array, weight: Array, bias: Array) -> Array:
        return hidden_layers._thin_normalised_forward(x, weight, bias)[0]

    def backward(saved: Any, dy: Array) -> Layer:
        layer, mean, scale, y = saved
        sums = hidden_layers._two_means(jnp.where(y > 0, dy, 0.0), dy * y)
        units = (hidden_layers._again(layer) - mean) * scale
        dx = slopes_of_inputs(layer, normalise_slopes(dy, units, scale, *sums))
        return dx, *slopes_in_one_kernel(layer, dy, (mean, scale, *sums))

    thin.defvjp(hidden_layers._thin_normalised_forward, backward)
    return thin


def slopes_of_inputs(layer: Layer, slopes: Array) -> Array:
    """Not computed where nobody uses it, as for critics that learn."""
    return affine_backward(None, layer[:2], slopes)[0]


@contextmanager
def variant(name: str) -> Iterator[None]:
    before = hidden_layers._thin, hidden_layers._thin_normalised
    ways: Any = before if name == "package" else (thin_with_kernel(), thin_normalised_with_kernel())
    hidden_layers._thin, hidden_layers._thin_normalised = ways
    jax.clear_caches()
    try:
        yield
    finally:
        hidden_layers._thin, hidden_layers._thin_normalised = before
        jax.clear_caches()


def check() -> None:
    """Gradients of some networks side by side by both ways, relative to the package's."""
    keys = jax.random.split(jax.random.key(0), 4)
    x, weight = jax.random.normal(keys[0], (3, 256, 6)), jax.random.normal(keys[1], (3, 2, 6, 256))
    bias, dy = jax.random.normal(keys[2], (3, 2, 256)), jax.random.normal(keys[3], (3, 2, 256, 256))

    def gradient(layer: Callable[..., Array]) -> Any:
        def loss(w: Array, b: Array, x: Array, dy: Array) -> Array:
            return (layer(x, w, b) * dy).sum()

        over_networks = jax.vmap(jax.grad(loss, argnums=(0, 1, 2)), in_axes=(0, 0, None, 0))
        return jax.jit(jax.vmap(over_networks))(weight, bias, x, dy)

    pairs = {
        "plain": (hidden_layers._thin, thin_with_kernel()),
        "normalised": (hidden_layers._thin_normalised, thin_normalised_with_kernel()),
    }
    for kind, (ours, theirs) in pairs.items():
        for name, a, b in zip(("weights", "biases", "inputs"), gradient(ours), gradient(theirs), strict=True):
            print(f"{kind}, {name}: {float(jnp.linalg.norm(a - b) / jnp.linalg.norm(a)):.1e} apart", flush=True)


def main() -> None:
    parser = program_parser(__doc__)
    parser.add_argument("--runs", nargs="+", type=int, default=[128])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--check", action="store_true", help="compare numbers, measure nothing")
    args = parser.parse_args()
    check()
    if args.check:
        return
    if jax.default_backend() != "gpu":
        parser.error("measuring needs a GPU: elsewhere the package takes neither way; --check compares their numbers")
    rows = []
    for runs in args.runs:
        for name in ("package", "slopes", "package", "slopes"):
            with variant(name):
                program = make_program(args.task, args.method, runs, args.preset, 100_000, 2)
                compiled, step = measure(program, args.seconds)
            row = {"runs": runs, "variant": name, "ms_per_step": round(step * 1e3, 4)}
            rows.append(row | {"run_steps_per_second": round(runs / step), "compile_seconds": round(compiled, 1)})
            print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    print(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": rows}))


if __name__ == "__main__":
    main()

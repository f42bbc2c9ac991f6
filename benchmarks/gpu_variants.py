"""Other ways to compute a part of a step on a GPU, each beside what the package does; in the package once it has won.

    python benchmarks/gpu_variants.py --runs 128
    python benchmarks/gpu_variants.py --check        # do they compute the same? Also on a CPU, kernels interpreted

In the package, and here without: `serial` lets no two kernels run side by side, `two-pass` takes the gradient of a thin
first layer in two passes over it instead of one kernel. Not in the package: `units` computes thin first layers forward
in a kernel of their own, too (the compiler's reach half the memory's speed).
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
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array

sys.path.insert(0, str(Path(__file__).parent))

from gpu_kernels import program_parser
from hyper_rl import backend, hidden_layers, slopes_kernel
from hyper_rl.products import affine
from hyper_rl.training import device_loop
from speed import WARMUP, make_program, measure

VARIANTS = ("package", "serial", "two-pass", "units")
ROWS, UNITS, WARPS = 32, 256, 4
"""Of the layer that one block of `units` computes."""


def units_in_one_kernel(layer: slopes_kernel.Layer, rows: tuple[Array, ...] = ()) -> Array:
    """relu(x W + b) of a layer that `slopes_kernel.fits`.

    With `rows` (mean and one over the deviation) normalised before its ReLU.
    """
    x, weight, bias = layer
    (batch, fan_in), width = x.shape, weight.shape[1]
    units = UNITS if width % UNITS == 0 else min(slopes_kernel.UNITS, width)
    return pl.pallas_call(
        partial(_units, fan_in=fan_in, normalised=bool(rows)),
        out_shape=jax.ShapeDtypeStruct((batch, width), x.dtype),
        grid=(batch // ROWS, width // units),
        in_specs=[
            pl.BlockSpec((ROWS, fan_in), lambda i, j: (i, 0)),
            pl.BlockSpec((fan_in, units), lambda i, j: (0, j)),
            pl.BlockSpec((units,), lambda i, j: (j,)),
            *(pl.BlockSpec((ROWS, 1), lambda i, j: (i, 0)) for _ in rows),
        ],
        out_specs=pl.BlockSpec((ROWS, units), lambda i, j: (i, j)),
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=slopes_kernel.interpreted(),
    )(x, weight.astype(x.dtype), bias.astype(x.dtype), *rows)


def _units(x: Any, weight: Any, bias: Any, *rest: Any, fan_in: int, normalised: bool) -> None:
    *rows, y = rest
    terms = (x[:, i].astype(jnp.float32)[:, None] * weight[i, :].astype(jnp.float32)[None, :] for i in range(fan_in))
    product = sum(terms, start=jnp.zeros((), jnp.float32)).astype(y.dtype) + bias[:][None, :]  # rounded as in `affine`
    if normalised:
        mean, scale = (row[:, 0][:, None] for row in rows)
        product = (product.astype(jnp.float32) - mean) * scale
    y[:, :] = jnp.maximum(product, 0.0).astype(y.dtype)


def thin_with_kernel() -> Callable[..., Array]:
    """`hidden_layers._thin` with another forward pass."""

    @jax.custom_vjp
    def thin(x: Array, weight: Array, bias: Array) -> Array:
        layer = (x, weight, bias)
        return units_in_one_kernel(layer) if slopes_kernel.fits(layer) else jax.nn.relu(affine(*layer))

    thin.defvjp(lambda *layer: (thin(*layer), layer), hidden_layers._thin_backward)
    return thin


def thin_normalised_with_kernel() -> Callable[..., Array]:
    def forward(x: Array, weight: Array, bias: Array) -> Any:
        layer = (x, weight, bias)
        if not slopes_kernel.fits(layer):
            return hidden_layers._thin_normalised_forward(*layer)
        mean, scale = hidden_layers.thin_moments(layer)
        y = units_in_one_kernel(layer, (mean, scale))
        return y, (layer, mean, scale, y)

    @jax.custom_vjp
    def thin(x: Array, weight: Array, bias: Array) -> Array:
        return forward(x, weight, bias)[0]

    thin.defvjp(forward, hidden_layers._thin_normalised_backward)
    return thin


@contextmanager
def variant(name: str) -> Iterator[None]:
    changed: list[tuple[Any, str, Any]] = []
    if name == "serial":
        changed.append((backend, "compiler_options", dict))
    elif name == "two-pass":
        changed.append((slopes_kernel, "runs_here", lambda: False))
    elif name == "units":
        changed.append((hidden_layers, "_thin", thin_with_kernel()))
        changed.append((hidden_layers, "_thin_normalised", thin_normalised_with_kernel()))
    before = [getattr(owner, field) for owner, field, _ in changed]
    try:
        for owner, field, other in changed:
            setattr(owner, field, other)
        _forget()
        yield
    finally:
        for (owner, field, _), old in zip(changed, before, strict=True):
            setattr(owner, field, old)
        _forget()


def _forget() -> None:
    device_loop.advance.__dict__.pop("jitted", None)
    jax.clear_caches()


def check(task: str, method: str, preset: str, names: list[str], runs: int = 4, steps: int = 20) -> None:
    """State after a few updates by every variant, relative to the package's."""
    on_device = jax.default_backend() == "gpu"
    if not on_device:
        backend.on_gpu = lambda: True  # the form for a GPU, its kernels interpreted

    def numbers() -> list[np.ndarray]:
        program = make_program(task, method, runs, preset, 2_000, 2)
        state = device_loop.advance_to(program, device_loop.init_runs(program), 0, WARMUP + steps, WARMUP)
        leaves = [leaf for leaf in jax.tree.leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return [np.asarray(leaf, np.float64) for leaf in leaves]

    with variant("package"):
        ours = numbers()
    for name in names:
        with variant(name):
            theirs = numbers()
        apart = [float(np.linalg.norm(a - b) / (np.linalg.norm(a) + 1e-9)) for a, b in zip(ours, theirs, strict=True)]
        print(f"{name}: {max(apart):.1e} apart at most, {np.median(apart):.1e} half of them", flush=True)


def main() -> None:
    parser = program_parser(__doc__)
    parser.add_argument("--runs", nargs="+", type=int, default=[128])
    parser.add_argument("--half", action="store_true", help="bfloat16 products")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="compare numbers, measure nothing")
    args = parser.parse_args()
    if args.check:
        return check(args.task, args.method, args.preset, args.only)
    if jax.default_backend() != "gpu":
        parser.error("measuring needs a GPU; --check compares what the variants compute")
    rows = []
    for runs in args.runs:
        for name in args.only * args.turns:
            with variant(name):
                program = make_program(args.task, args.method, runs, args.preset, 100_000, 2, args.half)
                compiled, step = measure(program, args.seconds)
            row = {"runs": runs, "variant": name, "ms_per_step": round(step * 1e3, 4)}
            rows.append(row | {"run_steps_per_second": round(runs / step), "compile_seconds": round(compiled, 1)})
            print(*(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "preset": args.preset, "half": args.half}
    print(json.dumps(about | {"rows": rows}))


if __name__ == "__main__":
    main()

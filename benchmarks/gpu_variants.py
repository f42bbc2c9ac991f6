"""Other ways to compute a part of a step on a GPU, each beside what the package does; in the package once it has won.

    python benchmarks/gpu_variants.py --runs 128
    python benchmarks/gpu_variants.py --check        # do they compute the same? Also on a CPU, kernels interpreted

All are in the package, and here without: `serial` lets no two kernels run side by side, `two-pass` takes the gradient
of a thin first layer in two passes over it instead of one kernel, `compiled-units` leaves that layer's units to the
compiler. What was tried and lost is in docs/speed.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from gpu_kernels import program_parser
from hyper_rl import backend, hidden_layers
from hyper_rl.training import device_loop
from speed import WARMUP, make_program, measure

VARIANTS = ("package", "serial", "two-pass", "compiled-units")


@contextmanager
def variant(name: str) -> Iterator[None]:
    changed: list[tuple[Any, str, Any]] = []
    if name == "serial":
        changed.append((backend, "compiler_options", dict))
    elif name == "two-pass":
        changed.append((hidden_layers, "_kernel_slopes", hidden_layers._plain_slopes))
    elif name == "compiled-units":
        changed.append((hidden_layers, "_kernel_units", hidden_layers._plain_units))
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

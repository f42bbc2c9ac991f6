"""Speed against the number of runs, beside what the device could do at best.

    python benchmarks/gpu.py --runs 1 8 32 64 128 256 --out gpu.json
    python benchmarks/gpu.py --runs 1 4 --seconds 2          # the same on a CPU

One row per method and number of runs: compile time, memory, steps/s, run-steps/s, TFLOP/s and GB/s reached, and the
share of the floor. The floor is the time of the products alone at the rate that this device reaches in batched
256 x 256 x 256 products (measured first), plus the time of the optimiser's and the targets' memory traffic alone at the
bandwidth it reaches in one pass of Adam (measured too). Whatever else a step does is above the floor.

`--half` is the option `half_products` of learner and bonus: products of bfloat16 operands, and what goes from layer to
layer in it too; `--precision` says how the other products are computed. Measure while nothing else computes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parent))

from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.envs.base import Box
from hyper_rl.learners.normalised import Normalised
from hyper_rl.learners.td3 import TD3
from hyper_rl.networks import adam_init, adam_step
from hyper_rl.training.program import Program
from hyper_rl.types import take_run
from speed import make_program, measure

PRECISIONS = {"default": None, "float32": "highest", "tf32": "TF32_TF32_F32"}
"""'default' is what the command uses: TF32 on recent NVIDIA GPUs, float32 on a CPU."""


@dataclass(frozen=True)
class Work:
    """What one step of one run has to do."""

    flops: float
    """In products; a multiply-add counts as two."""
    bytes: float
    """Optimiser and targets: what must be read or written even if products and activations cost nothing."""


def work_of(program: Program) -> Work:
    """Counted from the layer sizes, not from what the compiler made of them."""
    learner, bonus, spec = program.learner, program.bonus, program.spec
    learner = take_run(learner.inner if isinstance(learner, Normalised) else learner, 0)
    assert isinstance(learner, TD3) and isinstance(spec.observation, Box) and isinstance(spec.action, Box)
    number = 4 if learner_dtype(learner) == "float32" else 8
    observations, actions, rows = spec.observation.size, spec.action.size, learner.batch_size
    actor = list(pairwise((observations, *learner.widths, actions)))
    critic = list(pairwise((observations + actions, *learner.widths, 1)))
    one_learner = rows * (forward(actor) + 2 * forward(critic))  # targets
    one_learner += rows * 2 * (forward(critic) + backward(critic))
    climb = forward(actor) + backward(actor) + 2 * forward(critic)  # the slope in its inputs costs as much again
    one_learner += rows * climb / learner.policy_delay
    trained = 2 * parameters(critic) + parameters(actor) / learner.policy_delay
    adam, soft_update = 7 * number, 3 * number  # p, m, v read and written, g read; t read and written, o read
    traffic = trained * adam + (2 * parameters(critic) + parameters(actor)) * soft_update / learner.policy_delay
    roles = len(program.policies.roles)
    flops, total = roles * one_learner, roles * traffic
    if program.policies.explores:
        assert isinstance(bonus, Disagreement)
        model = list(pairwise((observations + actions, *bonus.widths, observations)))
        flops += bonus.models * rows * (forward(model) + bonus.share * backward(model))
        total += bonus.models * parameters(model) * adam
    return Work(float(flops), float(total))


def learner_dtype(learner: TD3) -> str:
    return str(jnp.asarray(learner.lr).dtype)


def forward(layers: list[tuple[int, int]]) -> float:
    return sum(2.0 * i * o for i, o in layers)


def backward(layers: list[tuple[int, int]]) -> float:
    """Gradients of the weights, and of what went into each layer but the first."""
    return forward(layers) + forward(layers[1:])


def parameters(layers: list[tuple[int, int]]) -> float:
    return sum((i + 1.0) * o for i, o in layers)


def seconds_per_call(call: Callable[[], Any], at_least: float = 0.3) -> float:
    jax.block_until_ready(call())
    repeats, took = 1, 0.0
    while took < at_least:
        repeats *= 4
        begun = time.perf_counter()
        for _ in range(repeats):
            last = call()
        jax.block_until_ready(last)
        took = time.perf_counter() - begun
    return took / repeats


def product_rate(count: int, *, half: bool) -> float:
    """FLOP/s in `count` products of 256 x 256 matrices."""
    kind = jnp.bfloat16 if half else float
    a, b = (jax.random.normal(jax.random.key(i), (count, 256, 256)).astype(kind) for i in range(2))
    multiply = jax.jit(lambda x, y: x @ y)
    return count * 2 * 256**3 / seconds_per_call(lambda: multiply(a, b))


def adam_rate(count: int) -> float:
    """Bytes/s in one pass of Adam over `count` parameters: 7 numbers read or written for each."""
    params = jax.random.normal(jax.random.key(0), (count,))
    grads, carried = jnp.ones_like(params), (params, adam_init(params))
    step = jax.jit(lambda p, g, s: adam_step(p, g, s, 1e-3), donate_argnums=(0, 2))

    def call() -> Any:
        nonlocal carried
        carried = step(carried[0], grads, carried[1])
        return carried

    return count * 7 * grads.dtype.itemsize / seconds_per_call(call)


def peak_memory() -> int | None:
    return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="MediumMaze-Easy")
    parser.add_argument("--methods", nargs="+", default=["exploit", "hyper"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 8, 32, 64, 128, 256])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--precision", default="default", choices=list(PRECISIONS))
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", PRECISIONS[args.precision])
    on_gpu = jax.default_backend() == "gpu"
    products, bandwidth = (
        product_rate(512 if on_gpu else 16, half=args.half),
        adam_rate(100_000_000 if on_gpu else 800_000),
    )
    device = jax.devices()[0].device_kind
    print(f"{device}: products {products / 1e12:.2f} TFLOP/s, Adam {bandwidth / 1e9:.0f} GB/s", flush=True)
    rows: list[dict[str, Any]] = []
    for method in args.methods:
        for runs in args.runs:
            program = make_program(args.task, method, runs, args.preset, args.capacity, 2, args.half)
            work = work_of(program)
            compiled, step = measure(program, args.seconds)
            floor = runs * (work.flops / products + work.bytes / bandwidth)
            row = {
                "method": method,
                "preset": args.preset,
                "precision": "half" if args.half else args.precision,
                "runs": runs,
                "compile_seconds": round(compiled, 1),
                "peak_gib": None if (peak := peak_memory()) is None else round(peak / 2**30, 2),
                "ms_per_step": round(step * 1e3, 4),
                "steps_per_second": round(1 / step, 1),
                "run_steps_per_second": round(runs / step),
                "tflop_per_second": round(runs * work.flops / step / 1e12, 2),
                "gb_per_second": round(runs * work.bytes / step / 1e9),
                "floor_ms": round(floor * 1e3, 4),
                "share_of_floor": round(floor / step, 3),
            }
            rows.append(row)
            print(*(f"{name}={value}" for name, value in row.items()), flush=True)
            del program
            jax.clear_caches()
    result = {
        "device": device,
        "jax": jax.__version__,
        "product_tflop_per_second": products / 1e12,
        "adam_gb_per_second": bandwidth / 1e9,
        "work_of_one_run": {
            m: dataclasses.asdict(work_of(make_program(args.task, m, 1, args.preset, args.capacity, 2)))
            for m in args.methods
        },
        "rows": rows,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""Which kernels a step's time goes to, measured, beside the bytes and products that each of them has to do.

    python benchmarks/gpu_profile.py --runs 32 128 --longest 25

For each number of runs: the time of a step, how much of it some kernel was running, and the kernels that took longest,
with the bandwidth and the rate that they reached. Bytes and products come from the compiled program, as in
`gpu_kernels.py`, which estimates what this measures. Needs a GPU, and nothing else running on it.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

sys.path.insert(0, str(Path(__file__).parent))

from gpu_kernels import Kernel, kernels_of_step, program_parser
from hyper_rl.training.device_loop import advance, advance_to, init_runs, steps_in_block
from hyper_rl.training.program import Program
from speed import WARMUP, make_program

MICRO = 1e6


@dataclass(frozen=True)
class Measured:
    """Kernels of the device in one trace."""

    seconds: Mapping[str, float]
    """Of all calls, by name."""
    calls: Mapping[str, int]
    busy: float
    """Seconds in which at least one of them ran."""


def read_trace(folder: Path) -> Measured:
    """What `jax.profiler` has written, the device's own lanes only."""
    path = max(folder.rglob("*.trace.json.gz"))
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "process_name"}
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    on_device = [
        e
        for e in events
        if e.get("ph") == "X"
        and "/device:" in named.get(e["pid"], "")
        and lanes.get((e["pid"], e["tid"]), "").startswith("Stream")
    ]
    return measured(on_device)


def measured(events: Iterable[Mapping[str, Any]]) -> Measured:
    seconds, calls = defaultdict[str, float](float), defaultdict[str, int](int)
    spans = []
    for event in events:
        seconds[event["name"]] += event["dur"] / MICRO
        calls[event["name"]] += 1
        spans.append((event["ts"], event["ts"] + event["dur"]))
    busy, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        busy += max(0.0, last - max(first, end))
        end = max(end, last)
    return Measured(seconds, calls, busy / MICRO)


def planned_kernels(program: Program, state: Any, block: int) -> dict[str, Kernel]:
    """By the name that a kernel has in a trace, of the program as it is compiled here."""
    mark = jnp.asarray(0, jnp.int32)
    text = advance.jitted.lower(program, state, mark, mark, mark, learn=True, block=block).compile().as_text()
    return {in_a_trace(kernel.name[1:]): kernel for kernel in kernels_of_step(text or "")}


def in_a_trace(name: str) -> str:
    return re.sub(r"[.\-]", "_", name)


def profile(program: Program, steps: int) -> tuple[float, Measured]:
    """(seconds per step of all runs without a profiler, kernels of `steps` steps with one)."""
    state, first = init_runs(program), WARMUP + 20
    state = jax.block_until_ready(advance_to(program, state, 0, first, WARMUP))
    begun = time.perf_counter()
    state = jax.block_until_ready(advance_to(program, state, first, first + steps, WARMUP))
    took = (time.perf_counter() - begun) / steps
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(advance_to(program, state, first + steps, first + 2 * steps, WARMUP))
        return took, read_trace(Path(folder))


def show(runs: int, step: float, found: Measured, planned: Mapping[str, Kernel], steps: int, longest: int) -> None:
    total, count = sum(found.seconds.values()), sum(found.calls.values())
    print(
        f"{runs} runs: {1e3 * step:.3f} ms a step; kernels {1e3 * total / steps:.3f} ms, "
        f"some kernel running {1e3 * found.busy / steps:.3f} ms, {count / steps:.0f} kernels a step",
        flush=True,
    )
    for name in sorted(found.seconds, key=lambda name: -found.seconds[name])[:longest]:
        seconds, calls = found.seconds[name], found.calls[name]
        line = f"{MICRO * seconds / steps:7.1f} us a step, {calls / steps:4.1f} calls  {name[:48]:48s}"
        if (kernel := planned.get(in_a_trace(name))) is not None:
            once, moved = seconds / calls, kernel.read + kernel.written
            line += f" {moved / once / 1e9:6.0f} GB/s {kernel.flops / once / 1e12:6.1f} TFLOP/s  {kernel.result[:50]}"
        print(line, flush=True)


def main() -> None:
    parser = program_parser(__doc__)
    parser.add_argument("--runs", nargs="+", type=int, default=[128])
    parser.add_argument("--half", action="store_true", help="bfloat16 products")
    parser.add_argument("--steps", type=int, default=200, help="steps to trace")
    parser.add_argument("--longest", type=int, default=25, help="how many kernels to list")
    args = parser.parse_args()
    if jax.default_backend() != "gpu":
        parser.error(f"needs a GPU; JAX finds {jax.devices()[0].platform} only")
    for runs in args.runs:
        program = make_program(args.task, args.method, runs, args.preset, 100_000, 2, args.half)
        block = steps_in_block(program)
        steps = max(1, args.steps // block) * block
        step, found = profile(program, steps)
        show(runs, step, found, planned_kernels(program, init_runs(program), block), steps, args.longest)
        jax.clear_caches()


if __name__ == "__main__":
    main()

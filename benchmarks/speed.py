"""Steps per second of the compiled loop, over methods and numbers of runs, on whatever device JAX finds.

    python benchmarks/speed.py --task MediumMaze-Easy --methods exploit hyper --runs 1 30

Prints one line per case and, last, one JSON object. `Synthetic` is a task that costs nothing, with HalfCheetah's
dimensions. Measure while nothing else computes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parent))

from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.config import build_program
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.program import Program
from hyper_rl.types import stack_runs
from synthetic_task import SyntheticTask

WARMUP = 256


def make_program(
    task: str, method: str, runs: int, preset: str, capacity: int, policy_delay: int, half: bool = False
) -> Program:
    synthetic = task == "Synthetic"
    options = default_options(preset)
    td3 = dataclasses.replace(options.td3, policy_delay=policy_delay, half_products=half)
    explores = method != "exploit"
    disagreement = dataclasses.replace(options.disagreement, half_products=half and explores)
    options = dataclasses.replace(
        options,
        td3=td3,
        disagreement=disagreement,
        task="MediumMaze-Easy" if synthetic else task,
        method=method,
        seeds=runs,
        steps=1_000_000,
        warmup=WARMUP,
        capacity=capacity,
    )
    program = build_program(resolve(options))
    if synthetic:
        program = dataclasses.replace(program, task=stack_runs([SyntheticTask()] * runs))
    return program


def measure(program: Program, seconds: float) -> tuple[float, float]:
    """(seconds to compile and warm up, seconds per step of all runs: the mean over a span of about `seconds`)."""
    state = init_runs(program)
    begun = time.perf_counter()
    state = jax.block_until_ready(advance_to(program, state, 0, WARMUP + 20, WARMUP))
    compiled = time.perf_counter() - begun
    step, chunk, took = WARMUP + 20, 40, 0.0
    for _ in range(2):  # a short span tells how long the long one must be
        begun = time.perf_counter()
        state = jax.block_until_ready(advance_to(program, state, step, step + chunk, WARMUP))
        took = (time.perf_counter() - begun) / chunk
        step, chunk = step + chunk, max(2, 2 * int(seconds / took / 2))
    return compiled, took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", default="Synthetic")
    parser.add_argument("--methods", nargs="+", default=["exploit", "curiosity", "hyper"])
    parser.add_argument("--runs", nargs="+", type=int, default=[1])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--policy-delay", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    table = []
    for method in args.methods:
        for runs in args.runs:
            program = make_program(args.task, method, runs, args.preset, args.capacity, args.policy_delay)
            compiled, step = measure(program, args.seconds)
            row = {
                "task": args.task,
                "method": method,
                "preset": args.preset,
                "runs": runs,
                "compile_seconds": round(compiled, 2),
                "ms_per_step": round(step * 1e3, 4),
                "steps_per_second": round(1 / step, 1),
                "run_steps_per_second": round(runs / step, 1),
            }
            table.append(row)
            print(*(f"{name}={value}" for name, value in row.items()), flush=True)
    print(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": table}))


if __name__ == "__main__":
    main()

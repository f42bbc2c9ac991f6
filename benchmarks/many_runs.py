"""Aggregate speed of the host loop over the number of runs that step together, on a discrete task.

    python benchmarks/many_runs.py --task Empty-16x16 --methods hyper lesson exploit curiosity --runs 1 20

One compiled call serves all runs of a method; the environments are Python and step one after another, in this process
or in `--workers` processes. The span that is timed is cut into what the environments and the notes about them take and
what the compiled call takes. `together` is the speed of the same number of runs of every method, one after another.
Nothing else may compute meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from typing import Any

from hyper_rl.allocator import keep_freed_memory
from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.config import build_program
from hyper_rl.envs.host_pool import EnvPool
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.loops import env_source

WARMUP = 256


class Timed:
    """A pool that notes how long its steps took."""

    def __init__(self, pool: EnvPool) -> None:
        self._pool, self.seconds = pool, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def step(self, *arguments: Any) -> Any:
        begun = time.perf_counter()
        answer = self._pool.step(*arguments)
        self.seconds += time.perf_counter() - begun
        return answer


def measure(task: str, method: str, preset: str, runs: int, workers: int, seconds: float) -> dict[str, Any]:
    options = dataclasses.replace(
        default_options(preset), task=task, method=method, seeds=runs, steps=100_000, warmup=WARMUP, capacity=20_000
    )
    config = resolve(options)
    loop = HostLoop(build_program(config), env_source(config), WARMUP, workers=workers)
    step = WARMUP + 200
    loop.advance(0, step)
    assert loop._pool is not None
    loop._pool = pool = Timed(loop._pool)
    begun, first = time.perf_counter(), step
    while time.perf_counter() - begun < seconds:
        loop.advance(step, step + 50)
        step += 50
    took = time.perf_counter() - begun
    loop.close()
    return {
        "task": task,
        "method": method,
        "runs": runs,
        "workers": workers,
        "run_steps_per_second": round(runs * (step - first) / took),
        "share_of_environments": round(pool.seconds / took, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Empty-16x16")
    parser.add_argument("--methods", nargs="+", default=["hyper"])
    parser.add_argument("--preset", default="minigrid")
    parser.add_argument("--runs", nargs="+", type=int, default=[1, 20])
    parser.add_argument("--workers", nargs="+", type=int, default=[0])
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    keep_freed_memory()  # as the command does
    rows = []
    for method in args.methods:
        for runs in args.runs:
            for workers in args.workers:
                if workers <= runs:
                    rows.append(measure(args.task, method, args.preset, runs, workers, args.seconds))
                    print(*(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    together = {}
    for runs in args.runs:
        seconds = [1 / row["run_steps_per_second"] for row in rows if row["runs"] == runs]
        together[runs] = round(len(seconds) / sum(seconds))
    print(json.dumps({"rows": rows, "together": together}))


if __name__ == "__main__":
    main()

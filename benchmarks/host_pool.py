"""What the adapter adds to a step of an environment, and when worker processes pay.

    python benchmarks/host_pool.py --environments synthetic burning-1ms HalfCheetah-v5 --counts 1 4 16 --workers 0 1 2

`synthetic` has HalfCheetah's dimensions and costs next to nothing; besides, in every step, `burning-Xms` computes for X
ms of CPU time and `waiting-Xms` sleeps for X ms, as for a simulator elsewhere. Prints one line per case (environment
steps per second, all environments together; the best of `--rounds` rounds, the cases of one round taking turns, so that
a busy machine slows all of them) and, last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from hyper_rl.envs.host_env import EnvSource, HostEnv
from hyper_rl.envs.host_pool import EnvPool, open_pool
from synthetic_env import SyntheticCheetah


class Burning(SyntheticCheetah):
    """Every step takes so many seconds of CPU time: a worker on a core of its own is all that helps."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        until = time.thread_time() + self._seconds
        while time.thread_time() < until:
            pass
        return super().step(action)


class Waiting(SyntheticCheetah):
    """Every step waits so many seconds for somebody else."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self._seconds)
        return super().step(action)


def source_of(name: str) -> EnvSource:
    if name == "synthetic":
        return EnvSource(name, factory=SyntheticCheetah, horizon=1000)
    kind, _, milliseconds = name.removesuffix("ms").partition("-")
    if kind in ("burning", "waiting"):
        make = Burning if kind == "burning" else Waiting
        return EnvSource(name, factory=partial(make, float(milliseconds) / 1000), horizon=1000)
    return EnvSource(name)


def actions_for(env: HostEnv, count: int, rows: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    if env.choices is not None:
        return [rng.integers(env.choices, size=count) for _ in range(rows)]
    return [rng.uniform(-1, 1, (count, *env.layout.action_shape)) for _ in range(rows)]


def rate(pool: EnvPool, actions: list[np.ndarray], seconds: float) -> float:
    """Environment steps per second over about `seconds`."""
    never, seeds = np.zeros(pool.count, bool), np.arange(pool.count)
    pool.reset(range(pool.count), range(pool.count))
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for row in actions[:20]:
            pool.step(row, never, seeds)
        steps += 20
    return pool.count * steps / (time.perf_counter() - begun)


def _again(result: Any, action: Any) -> Any:
    return result


def own_cost(name: str, rounds: int, steps: int = 500) -> dict[str, float]:
    """Microseconds of the bare environment, of ours around it, and of our part alone around a step that is free."""
    env = source_of(name).make()
    learner = [row[0] for row in actions_for(env, 1, steps)]
    native = [env._write(action) for action in learner]
    best = {"bare": np.inf, "adapted": np.inf, "own": np.inf}
    for _ in range(rounds):
        env.reset(0)
        begun = time.perf_counter()
        for action in native:
            env.env.step(action)
        best["bare"] = min(best["bare"], time.perf_counter() - begun)
        env.reset(0)
        begun = time.perf_counter()
        for action in learner:
            env.step(action)
        best["adapted"] = min(best["adapted"], time.perf_counter() - begun)
        result, step = env.env.step(native[0]), env._step
        env._step = partial(_again, result)
        begun = time.perf_counter()
        for action in learner:
            env.step(action)
        best["own"] = min(best["own"], time.perf_counter() - begun)
        env._step = step
    env.close()
    return {part: round(1e6 * seconds / steps, 2) for part, seconds in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--environments", nargs="+", default=["synthetic", "HalfCheetah-v5", "burning-1ms", "waiting-5ms"]
    )
    parser.add_argument("--counts", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--workers", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    costs, table = [], []
    for name in args.environments:
        costs.append({"environment": name, **own_cost(name, args.rounds)})
        print("microseconds per step:", *(f"{key}={value}" for key, value in costs[-1].items()), flush=True)
        for count in args.counts:
            source = source_of(name)
            probe = source.make()
            actions = actions_for(probe, count, 20)
            probe.close()
            pools = {workers: open_pool(source, count, workers) for workers in args.workers if workers <= count}
            best = dict.fromkeys(pools, 0.0)
            for _ in range(args.rounds):
                for workers, pool in pools.items():
                    best[workers] = max(best[workers], rate(pool, actions, args.seconds))
            for workers, pool in pools.items():
                pool.close()
                row = {
                    "environment": name,
                    "count": count,
                    "workers": workers,
                    "steps_per_second": round(best[workers]),
                }
                table.append(row)
                print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    print(json.dumps({"cores": os.cpu_count(), "load": os.getloadavg()[0], "own_cost": costs, "rows": table}))


if __name__ == "__main__":
    main()

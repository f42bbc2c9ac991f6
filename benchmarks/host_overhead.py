"""What the host loop costs beside the bare updates: one run of plain TD3 on HalfCheetah, on whatever device JAX finds.

    python benchmarks/host_overhead.py

In turns, in short spans, so that all sides meet the same moods of the machine: (1) the bare updates: the host loop's
own compiled step with an answer that is already there, so that no environment moves and nothing is packed or noted
down; (2) the same with a bare `env.step` of Gymnasium before each, which any loop has to pay; (3) the whole host loop.
The overhead is (3) over (1), and (3) over (2) is what the loop itself adds. The parts are timed one by one as well,
with warm caches: between updates they cost up to three times that. Nothing else may compute meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.config import Config, build_program
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.host_message import pack_step
from hyper_rl.training.loops import env_source

WARMUP = 300


def make_loop(config: Config) -> HostLoop:
    loop = HostLoop(build_program(config), env_source(config), WARMUP)
    loop.advance(0, WARMUP + 50)  # compiles, and fills the replay with something
    return loop


def bare_updates(loop: HostLoop, first: int, steps: int, env: gymnasium.Env | None = None) -> float:
    """Seconds a step of the compiled call, the actions fetched as the loop does; with a step of `env`, if any."""
    assert loop._pool is not None
    episodes = loop._episodes
    answer = loop._pool.step(loop._actions, np.zeros(1, bool), loop._seeds.of(episodes.numbers + 1))
    episodes.note(loop._actions, answer)
    message = pack_step(loop._spec, answer, loop._dtype)
    call, warmup = loop._call(first), jnp.asarray(WARMUP, jnp.int32)
    action = np.asarray(loop._actions)
    if env is not None:
        env.reset(seed=0)
    begun = time.perf_counter()
    for step in range(first, first + steps):
        if env is not None:
            env.step(action[0])
        loop._leaves, chosen = call(loop._program_leaves, loop._leaves, message, np.int32(step), warmup)
        action = np.asarray(chosen)
    return (time.perf_counter() - begun) / steps


def whole_loop(loop: HostLoop, first: int, steps: int) -> float:
    begun = time.perf_counter()
    loop.advance(first, first + steps)
    return (time.perf_counter() - begun) / steps


def parts(loop: HostLoop, steps: int) -> dict[str, float]:
    """Microseconds of what the host does in a step, each alone."""
    assert loop._pool is not None
    pool, episodes = loop._pool, loop._episodes
    never, seeds = np.zeros(1, bool), loop._seeds.of(episodes.numbers + 1)
    answer: Any = pool.step(loop._actions, never, seeds)
    episodes.note(loop._actions, answer)

    def step_and_note() -> None:
        episodes.note(loop._actions, pool.step(loop._actions, never, loop._seeds.of(episodes.numbers + 1)))

    timed: dict[str, Callable[[], object]] = {
        "environment, seeds and notes": step_and_note,
        "seeds": lambda: loop._seeds.of(episodes.numbers + 1),
        "packing": lambda: pack_step(loop._spec, answer, loop._dtype),
    }
    measured = {}
    for name, call in timed.items():
        begun = time.perf_counter()
        for _ in range(steps):
            call()
        measured[name] = (time.perf_counter() - begun) / steps * 1e6
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="HalfCheetah-v5")
    parser.add_argument("--method", default="exploit")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=100, help="of each side in a round")
    args = parser.parse_args()
    options = dataclasses.replace(
        default_options("paper"), task=args.task, method=args.method, steps=1_000_000, warmup=WARMUP, capacity=100_000
    )
    loop, env = make_loop(resolve(options)), gymnasium.make(args.task)
    sides: dict[str, Callable[[int], float]] = {
        "bare updates": lambda step: bare_updates(loop, step, args.steps),
        "with the bare environment": lambda step: bare_updates(loop, step, args.steps, env),
        "host loop": lambda step: whole_loop(loop, step, args.steps),
    }
    step, measured = WARMUP + 50, {name: [0.0] * 0 for name in sides}
    for _ in range(args.rounds):
        for name, measure in sides.items():
            measured[name].append(measure(step) * 1e3)
            step += args.steps
    micro = {name: round(value, 1) for name, value in parts(loop, 2_000).items()}
    loop.close()
    env.close()
    medians = {name: round(statistics.median(values), 4) for name, values in measured.items()}
    least = ("bare updates", "with the bare environment")
    overhead = {name: round(medians["host loop"] / medians[name] - 1, 4) for name in least}
    print(json.dumps({"device": jax.devices()[0].platform, "ms": medians, "overhead over": overhead, "µs": micro}))


if __name__ == "__main__":
    main()

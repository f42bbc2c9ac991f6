"""What the host loop costs beside the bare updates: one run of plain TD3 on HalfCheetah, on whatever device JAX finds.

    python benchmarks/host_overhead.py

In turns, several rounds: (1) the bare updates: the host loop's own compiled step with an answer that is already there,
so that no environment moves and nothing is packed or noted down; (2) the whole host loop. The overhead is their
difference over the first. The parts are timed one by one as well. Nothing else may compute meanwhile.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.config import Config, build_program
from hyper_rl.training.host_loop import HostLoop, pack_step
from hyper_rl.training.loops import env_source

WARMUP = 300


def make_loop(config: Config) -> HostLoop:
    loop = HostLoop(build_program(config), env_source(config), WARMUP)
    loop.advance(0, WARMUP + 50)  # compiles, and fills the replay with something
    return loop


def bare_updates(loop: HostLoop, first: int, steps: int) -> float:
    """Seconds a step of the compiled call alone, the actions fetched as the loop fetches them."""
    assert loop._pool is not None
    episodes = loop._episodes
    answer = loop._pool.step(loop._actions, np.zeros(1, bool), loop._seeds.of(episodes.numbers + 1))
    episodes.note(loop._actions, answer)
    message = pack_step(loop._spec, answer, loop._dtype)
    call, warmup = loop._call(learn=True, act=True), jnp.asarray(WARMUP, jnp.int32)
    begun = time.perf_counter()
    for step in range(first, first + steps):
        loop._leaves, action = call(loop._program_leaves, loop._leaves, message, np.int32(step), warmup)
        np.asarray(action)
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=800)
    args = parser.parse_args()
    options = dataclasses.replace(
        default_options("paper"), task=args.task, method=args.method, steps=1_000_000, warmup=WARMUP, capacity=100_000
    )
    loop = make_loop(resolve(options))
    step, rows = WARMUP + 50, []
    for _ in range(args.rounds):
        bare = bare_updates(loop, step, args.steps)
        whole = whole_loop(loop, step + args.steps, args.steps)
        step += 2 * args.steps
        rows.append({"bare_ms": bare * 1e3, "whole_ms": whole * 1e3, "overhead": whole / bare - 1})
        print({name: round(value, 4) for name, value in rows[-1].items()}, flush=True)
    micro = {name: round(value, 1) for name, value in parts(loop, 2_000).items()}
    loop.close()
    medians = {name: round(statistics.median(row[name] for row in rows), 4) for name in rows[0]}
    print(json.dumps({"device": jax.devices()[0].platform, "medians": medians, "microseconds": micro}))


if __name__ == "__main__":
    main()

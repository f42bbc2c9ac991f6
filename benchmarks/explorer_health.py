"""Does the explorer still explore? Actor, critic and bonus of the exploration policy while it trains, over beta.

    python benchmarks/explorer_health.py --preset paper --beta 0.1 10 1000 --seeds 3 --steps 100000

At every mark, for each run, on transitions spread evenly over its replay:

    before_tanh   root mean square of what the explorer's actor puts into tanh: beyond 3 an action has no slope left
    saturated     share of its actions beyond 0.99 of the range
    value         root mean square of its first critic at its own actions
    reward        root mean square of what it is paid, r + beta b, before any scaling
    error         of its critic against its target, in units of the target's deviation
    bonus         mean raw bonus
    cells         share of the maze's cells visited so far
    spread        exp(entropy) of the visits since the last mark: over how many cells it spends its time
    goals         reached so far

TD3 with Disagreement in a compiled maze, learners that see raw observations. Prints means over seeds; `--out` has every
run.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.config import Config, build_program
from hyper_rl.learners.td3 import TD3, TD3State, critic_values, policy_action, smaller_value, td_target
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.program import Program, RunState

SAMPLES = 1024
SATURATED = 0.99
COLUMNS = ("before_tanh", "saturated", "value", "reward", "error", "bonus", "cells", "spread", "goals")


def rms(x: Float[Array, "..."]) -> Float[Array, ""]:
    return jnp.sqrt(jnp.square(x).mean())


def examine(program: Program, state: RunState, stored: Any, before: Array) -> dict[str, Array]:
    """One run; `stored` transitions in its replay, `before` its visits at the last mark."""
    learner, bonus = program.learner, program.bonus
    assert isinstance(learner, TD3) and isinstance(bonus, Disagreement) and state.replay is not None
    explorer: TD3State = jax.tree.map(lambda leaf: leaf[-1], state.learners)
    rows = state.replay[jnp.arange(SAMPLES) * stored // SAMPLES]
    batch = program.layout.unpack(rows)
    output = explorer.actor(batch.observation)
    raw_bonus = bonus.reward(state.bonus, batch)
    _, paid = program.explorer_reward(state.scales, batch.reward, raw_bonus, learner.gamma)
    next_action = policy_action(explorer.actor_target, batch.next_observation)
    next_value = smaller_value(explorer.critics_target, batch.next_observation, next_action)
    target = td_target(paid.rewards, batch.terminated, next_value, learner.gamma)
    told = critic_values(explorer.critics, batch.observation, batch.action)[0]
    visits = state.totals.visits - before
    share = visits / jnp.maximum(visits.sum(), 1)
    return {
        "before_tanh": rms(output),
        "saturated": (jnp.abs(jnp.tanh(output)) > SATURATED).mean(),
        "value": rms(critic_values(explorer.critics, batch.observation, jnp.tanh(output))[0]),
        "reward": rms(batch.reward + program.explorer_reward.beta * raw_bonus),
        "error": rms(told - target) / jnp.maximum(target.std(), 1e-12),
        "bonus": raw_bonus.mean(),
        "cells": (state.totals.visits > 0).mean(),
        "spread": jnp.exp(-(share * jnp.log(jnp.where(share > 0, share, 1.0))).sum()),
        "goals": state.totals.goals,
    }


def follow(config: Config, every: int) -> list[dict[str, Any]]:
    program = build_program(config)
    state = init_runs(program)
    look = jax.jit(jax.vmap(examine, in_axes=(0, 0, None, 0)))
    table, step = [], 0
    for mark in range(every, config.steps + 1, every):
        # Copied: the state is given away to be trained in place.
        before = jnp.zeros_like(state.totals.visits) if step == 0 else jnp.copy(state.totals.visits)
        state, step = advance_to(program, state, step, mark, config.warmup), mark
        found = jax.device_get(look(program, state, jnp.asarray(min(mark, config.capacity)), before))
        for run, (beta, seed) in enumerate(config.runs):
            row = {"step": mark, "beta": beta, "seed": seed}
            table.append(row | {name: float(found[name][run]) for name in COLUMNS})
        show(table, mark, config.betas)
    return table


def show(table: list[dict[str, Any]], mark: int, betas: Any) -> None:
    for beta in betas:
        rows = [row for row in table if row["step"] == mark and row["beta"] == beta]
        means = " ".join(f"{name}={np.mean([row[name] for row in rows]):.3g}" for name in COLUMNS)
        print(f"step {mark} beta {beta:g}: {means}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="MediumMaze-Easy")
    parser.add_argument("--method", default="curiosity", choices=["curiosity", "decouple", "hyper"])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--beta", nargs="+", type=float, default=[0.1, 10.0, 1000.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--every", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.every < 1 or args.steps % args.every:
        sys.exit(f"every: got {args.every}, must divide the {args.steps} steps")
    if args.out is not None and args.out.exists():
        sys.exit(f"out: {args.out} exists already; choose another")
    options = dataclasses.replace(
        default_options(args.preset), task=args.task, method=args.method, beta=tuple(args.beta), seeds=args.seeds,
        seed=args.seed, steps=args.steps, normalise_observations=False,
    )  # fmt: skip
    table = follow(resolve(options), args.every)
    if args.out is not None:
        with args.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["step", "beta", "seed", *COLUMNS])
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    main()

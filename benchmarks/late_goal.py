"""Does a critic that has seen nothing but zeros learn from a goal that is met late?

    python benchmarks/late_goal.py --before 0 60000 120000 --after 20000 --seeds 2

TD3, with plain critics and with normalised ones, on stored transitions, no environment in the loop: first `before`
updates on a wanderer's transitions, none of which reaches the goal, then `after` updates on the same with a few ways to
the goal among them. Every mark of `before` goes on from the one before it and forks there. Printed for each, mean over
seeds:

    match      correlation of the critic with the true value, discount ** steps left, on ways that were not learned from
    value      what it says two steps before the goal, where the truth is 0.98 on average
    flat       its deviation over the wanderer's states: 0 says the same everywhere
    living     share of the critics' last hidden units that are above zero for any of those states
    success    of the policy, judged in the maze

`--out` has every seed.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from hyper_rl.config import make_task
from hyper_rl.envs.maze import MazeState, PointMaze
from hyper_rl.envs.maze_controller import Gains, WaypointController
from hyper_rl.envs.maze_physics import Ball
from hyper_rl.learners.td3 import TD3, TD3State, policy_action
from hyper_rl.types import Transition

GAINS = Gains(*(np.asarray(gain, np.float32) for gain in (0.3, 3.0, 0.3)))
HELD = 8
"""Steps for which a wanderer keeps an action."""
WAY_LIMIT = 600
NOISE = 0.2
"""On the actions of the ways that are learned from."""
UNSEEN = 20
"""Ways that the critic is asked about."""
COLUMNS = ("match", "value", "flat", "living", "success")


class Walk(NamedTuple):
    """Steps of episodes; axes: episodes, steps."""

    transition: Transition
    happened: Bool[Array, "episodes steps"]
    """Not those after the goal."""


Act = Callable[[Float[Array, "4"], Array, PRNGKeyArray], Float[Array, "2"]]


def walk(task: PointMaze, starts: MazeState, keys: PRNGKeyArray, steps: int, act: Act) -> Walk:
    def episode(start: MazeState, key: PRNGKeyArray) -> Walk:
        def step(carry: tuple[MazeState, Array], number: Array) -> tuple[tuple[MazeState, Array], Walk]:
            state, over = carry
            observation = task.observe(state)
            action = act(observation, number, key)
            result = task.step(state, action, key)
            row = Transition(observation, action, result.reward, task.observe(result.state), result.terminated)
            return (result.state, over | result.terminated), Walk(row, ~over)

        return jax.lax.scan(step, (start, jnp.zeros((), bool)), jnp.arange(steps))[1]

    return jax.jit(jax.vmap(episode))(starts, keys)


def wander(task: PointMaze, count: int, key: PRNGKeyArray) -> Transition:
    """About `count` transitions of held random actions from cells everywhere, those that reach the goal left out."""
    steps = 200
    places, keys = jax.random.split(key, (2, -(-count // steps)))
    centres = jnp.asarray([task.layout.centre(cell) for cell in task.layout.free_cells], float)
    cell = jax.vmap(lambda k: jax.random.randint(k, (), 0, len(centres)))(places)
    starts = jax.vmap(task.reset)(places)
    still = jnp.zeros(len(places), float)
    x, y = centres[cell].T
    begun = MazeState(Ball(x, y, still, still), starts.goal_x, starts.goal_y)

    def act(_: Array, number: Array, k: PRNGKeyArray) -> Float[Array, "2"]:
        return jax.random.uniform(jax.random.fold_in(k, number // HELD), (2,), minval=-1.0, maxval=1.0)

    found = walk(task, begun, keys, steps, act)
    return _rows(found, found.happened & ~found.transition.terminated)


def ways(task: PointMaze, count: int, noise: float, key: PRNGKeyArray) -> Walk:
    """From the task's own starts to its goal."""
    controller = WaypointController(task.layout, task.goal)

    def act(observation: Array, number: Array, k: PRNGKeyArray) -> Float[Array, "2"]:
        shaken = noise * jax.random.normal(jax.random.fold_in(k, number), (2,), dtype=float)
        return jnp.clip(controller.act(GAINS, observation) + shaken, -1.0, 1.0)

    keys = jax.random.split(key, count)
    found = walk(task, jax.vmap(task.reset)(keys), keys, WAY_LIMIT, act)
    if not bool((found.transition.terminated & found.happened).any(axis=1).all()):
        raise SystemExit(f"late_goal: a way of {WAY_LIMIT} steps does not reach the goal of {task.name}")
    return found


def _rows(found: Walk, kept: Bool[Array, "episodes steps"]) -> Transition:
    mask = np.asarray(kept)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[mask]), found.transition)


@partial(jax.jit, static_argnames=("updates",))
def learn(
    learner: TD3, states: TD3State, stored: Transition, known: Array, keys: PRNGKeyArray, first: Array, updates: int
) -> TD3State:
    """All seeds side by side, from the first `known` rows."""

    def one(state: TD3State, key: PRNGKeyArray) -> TD3State:
        def update(state: TD3State, number: Array) -> tuple[TD3State, None]:
            choose, noise = jax.random.split(jax.random.fold_in(key, number))
            rows = jax.random.randint(choose, (learner.batch_size,), 0, known)
            batch = jax.tree.map(lambda leaf: leaf[rows], stored)
            return learner.update(state, batch, batch.reward, noise, number)[0], None

        return jax.lax.scan(update, state, first + jnp.arange(updates))[0]

    return jax.vmap(one)(states, keys)


def examine(
    learner: TD3, states: TD3State, task: PointMaze, asked: Walk, wandered: Transition
) -> dict[str, np.ndarray]:
    happened = np.asarray(asked.happened)
    left = happened.sum(axis=1, keepdims=True) - 1 - np.arange(happened.shape[1])
    truth = learner.gamma ** left[happened]
    some = wandered.observation[:: max(1, len(wandered.reward) // 4096)]

    @eqx.filter_jit
    def said(state: TD3State) -> tuple[Array, Array, Array]:
        on_ways = jax.vmap(lambda o: learner.estimate(state, o))(asked.transition.observation[happened])
        around = jax.vmap(lambda o: learner.estimate(state, o))(some)
        return on_ways, around, living_share(state, some)

    found: dict[str, list[float]] = {column: [] for column in COLUMNS}
    for seed in range(jax.tree.leaves(states)[0].shape[0]):
        state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], states)
        on_ways, around, living = (np.asarray(part) for part in said(state))
        moves = on_ways.std() > 1e-9
        found["match"].append(float(np.corrcoef(on_ways, truth)[0, 1]) if moves else 0.0)
        found["value"].append(float(on_ways[(left[happened] >= 1) & (left[happened] <= 3)].mean()))
        found["flat"].append(float(around.std()))
        found["living"].append(float(living))
        found["success"].append(judged(learner, state, task))
    return {column: np.array(values) for column, values in found.items()}


def living_share(state: TD3State, observations: Float[Array, "n 4"]) -> Float[Array, ""]:
    both = jnp.concatenate([observations, policy_action(state.actor, observations)], axis=1)
    last = jax.vmap(lambda critic: critic.with_layers(both)[1][-1])(state.critics)
    return (last.max(axis=1) > 0).mean()


def judged(learner: TD3, state: TD3State, task: PointMaze, episodes: int = 50) -> float:
    keys = jax.random.split(jax.random.key(99), episodes)
    act = lambda observation, number, key: learner.judge(state, observation, key)  # noqa: E731
    found = walk(task, jax.vmap(task.reset)(keys), keys, int(task.horizon), act)
    return float((found.transition.terminated & found.happened).any(axis=1).mean())


def main() -> None:
    options = _options()
    task = make_task(options.task, {}, None)
    assert isinstance(task, PointMaze)
    wander_key, way_key, asked_key, learn_key = jax.random.split(jax.random.key(options.seed), 4)
    wandered = wander(task, options.wandered, wander_key)
    way = ways(task, options.goals, NOISE, way_key)
    asked = ways(task, UNSEEN, 0.0, asked_key)
    stored = jax.tree.map(lambda *parts: jnp.concatenate(parts), wandered, _rows(way, way.happened))
    zeros, all_of_it = jnp.asarray(len(wandered.reward)), jnp.asarray(len(stored.reward))
    way_steps = int(all_of_it - zeros)
    print(f"{task.name}: {int(zeros):,} transitions without the goal, {way_steps:,} on {options.goals} ways to it")
    rows: list[dict[str, Any]] = []
    for normalised in (False, True):
        learner = TD3(layer_norm=normalised)
        keys = jax.random.split(learn_key, options.seeds)
        states, done = jax.vmap(partial(learner.init, spec=task.spec, optimism=jnp.zeros((), float)))(keys), 0
        for before in sorted(options.before):
            if before > done:
                states = learn(learner, states, stored, zeros, keys, jnp.asarray(done), before - done)
                done = before
            after = learn(learner, states, stored, all_of_it, keys, jnp.asarray(done), options.after)
            for when, these in (("before", states), ("after", after)):
                found = examine(learner, these, task, asked, wandered)
                critics = "normalised" if normalised else "plain"
                line = ", ".join(f"{column} {found[column].mean():.3f}" for column in COLUMNS)
                print(f"{critics:10} {before:>7} updates on zeros, {when:6} the ways: {line}", flush=True)
                rows += [
                    {"critics": critics, "before": before, "when": when, "seed": seed}
                    | {column: float(found[column][seed]) for column in COLUMNS}
                    for seed in range(options.seeds)
                ]
    if options.out is not None:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def _options() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="LargeMaze-Easy")
    parser.add_argument("--before", type=int, nargs="+", default=[0, 60_000, 120_000], help="updates on zeros")
    parser.add_argument("--after", type=int, default=20_000, help="updates once the ways are there")
    parser.add_argument("--wandered", type=int, default=200_000, help="transitions without the goal")
    parser.add_argument("--goals", type=int, default=20, help="ways to it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.out is not None and options.out.exists():
        sys.exit(f"late_goal: {options.out} exists already; choose another --out")
    return options


if __name__ == "__main__":
    main()

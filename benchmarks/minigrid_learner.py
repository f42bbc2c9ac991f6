"""Which settings of DQN learn MiniGrid at all, with exploration out of the question.

    python benchmarks/minigrid_learner.py --task Fetch-8x8

Every setting learns from the same transitions of a uniformly random policy; then its greedy policy is judged on
layouts that were not among them. A random policy's own share of success is the line to beat.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.envs.gym_tasks.minigrid import make_minigrid
from hyper_rl.learners.dqn import DQN, DQNState, minigrid_dqn
from hyper_rl.types import Transition

ACTIONS = 7
LOSSES: tuple[Literal["huber", "mse"], ...] = ("huber", "mse")
JUDGED_FROM = 1_000_000
"""First seed of the layouts that are judged on."""


def collect(task: str, count: int) -> tuple[Transition, float]:
    """Transitions of a random policy, observations as bytes, and its share of episodes that succeed."""
    rng, env = np.random.default_rng(0), make_minigrid(task)
    rows: list[tuple[Any, ...]] = []
    episodes = successes = 0
    observation, _ = env.reset(seed=0)
    for _ in range(count):
        action = rng.integers(ACTIONS)
        after, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, reward, after, terminated))
        observation = after
        if terminated or truncated:
            episodes, successes = episodes + 1, successes + (float(reward) > 0)
            observation, _ = env.reset(seed=episodes)
    before, actions, rewards, then, ends = zip(*rows, strict=True)
    first, second = (jnp.asarray(np.array(views), jnp.uint8) for views in (before, then))
    whole = Transition(first, jnp.asarray(actions), jnp.asarray(rewards, float), second, jnp.asarray(ends))
    return whole, successes / max(episodes, 1)


def train(learner: DQN, data: Transition, updates: int) -> DQNState:
    count, size = data.observation.shape
    spec = TaskSpec("MiniGrid", Box(size, 0.0, 10.0), Discrete(ACTIONS), 1)
    key = jax.random.key(0)

    @jax.jit
    def learned(state: DQNState) -> DQNState:
        def one(state: DQNState, index: jax.Array) -> tuple[DQNState, None]:
            places = jax.random.randint(jax.random.fold_in(key, index), (learner.batch_size,), 0, count)
            batch = jax.tree.map(lambda leaf: leaf[places], data)
            seen, then = (view.astype(float) for view in (batch.observation, batch.next_observation))
            batch = batch._replace(observation=seen, next_observation=then)
            return learner.update(state, batch, batch.reward, key, index)[0], None

        return jax.lax.scan(one, state, jnp.arange(updates))[0]

    return jax.block_until_ready(learned(jax.jit(learner.init, static_argnums=1)(key, spec, jnp.zeros((), float))))


def judge(task: str, state: DQNState, episodes: int) -> tuple[float, float]:
    """The greedy policy's share of success, and of steps that left the view as it was."""
    values = jax.jit(lambda views: state.network(views))
    envs = [make_minigrid(task) for _ in range(episodes)]
    views = np.array([env.reset(seed=JUDGED_FROM + place)[0] for place, env in enumerate(envs)])
    live, won = np.ones(episodes, bool), np.zeros(episodes, bool)
    steps = idle = 0
    while live.any():
        actions = np.asarray(values(views)).argmax(axis=1)
        for place in np.flatnonzero(live):
            after, reward, terminated, truncated, _ = envs[place].step(actions[place])
            steps, idle = steps + 1, idle + bool(np.array_equal(after, views[place]))
            views[place] = after
            live[place] = not (terminated or truncated)
            won[place] = float(reward) > 0
    return float(won.mean()), idle / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="Fetch-8x8")
    parser.add_argument("--transitions", type=int, default=100_000)
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--episodes", type=int, default=200)
    options = parser.parse_args()
    data, by_chance = collect(options.task, options.transitions)
    print(f"{options.task}: {options.transitions:,} random transitions, success {by_chance:.2f} an episode")
    print("| loss | gamma | rewards times | success | steps without effect | seconds |\n|---|---|---|---|---|---|")
    for loss, gamma, factor in [*itertools.product(LOSSES, (0.9, 0.95, 0.99), (10.0,)), (LOSSES[0], 0.9, 1.0)]:
        learner = dataclasses.replace(minigrid_dqn(), loss=loss, gamma=gamma, reward_factor=factor)
        begun = time.perf_counter()
        state = train(learner, data, options.updates)
        took = time.perf_counter() - begun
        success, idle = judge(options.task, state, options.episodes)
        print(f"| {loss} | {gamma} | {factor:g} | {success:.2f} | {idle:.2f} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    main()

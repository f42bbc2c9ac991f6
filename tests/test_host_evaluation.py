"""Judging on real environments: what the device finds, what a pencil finds, and nothing of it felt by training."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jaxtyping import PRNGKeyArray

from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import build_program
from hyper_rl.envs.base import Task
from hyper_rl.envs.gym_tasks.jax_task import JaxTaskEnv
from hyper_rl.envs.host_env import EnvSource, describe
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.envs.room import Room
from hyper_rl.learners.base import Learner
from hyper_rl.learners.tabular_q import TabularQ, TabularQPolicy
from hyper_rl.learners.td3 import TD3
from hyper_rl.threefry import make_key, seed_of
from hyper_rl.training.checkpoint import flatten
from hyper_rl.training.evaluation import Judgement, judge_episodes, summarise
from hyper_rl.training.host_evaluation import TOGETHER, HostJudge
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.loops import env_source
from hyper_rl.types import precision, stack_runs

pytestmark = pytest.mark.xdist_group("host-evaluation")

RUNS = 2


def streams() -> PRNGKeyArray:
    """The random stream of each run's evaluation."""
    return jnp.stack([make_key(run) for run in range(RUNS)])


def on_device(task: Task, learners: list[Learner], policies: Any, episodes: int) -> Judgement:
    judge = jax.jit(judge_episodes, static_argnames=("episodes",))
    return summarise(*judge(stack_runs([task] * RUNS), stack_runs(learners), policies, streams(), episodes=episodes))


def on_host(source: EnvSource, learners: list[Learner], policies: Any, episodes: int, workers: int = 0) -> Judgement:
    seen = describe(source)
    with closing(HostJudge(source, seen.task, seen.horizon, workers=workers)) as judge:
        return judge.judge(stack_runs(learners), policies, streams(), episodes)


def agree(one: Judgement, other: Judgement, tolerance: float) -> None:
    for name, mine, theirs in zip(Judgement._fields, one, other, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=name)


# Against the device


@pytest.fixture
def float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("episodes", [3, 2 * TOGETHER + 3])
def test_random_walks_in_a_small_room_end_as_on_the_device(float64: None, episodes: int) -> None:
    """Equal tables leave every step to the keys, so that a key of another episode or step would be seen at once."""
    room = Room(size=5, subgoal=(1, 1), horizon=14)
    learners: list[Learner] = [TabularQ(gamma=0.9), TabularQ(gamma=0.5)]
    policies = TabularQPolicy(jnp.stack([jnp.full((25, 4), value, float) for value in (0.25, 0.75)]))
    source = EnvSource("Room", factory=lambda: JaxTaskEnv(room), horizon=14)
    device = on_device(room, learners, policies, episodes)
    host = on_host(source, learners, policies, episodes)
    agree(device, host, 1e-12)
    np.testing.assert_array_equal(host.estimate, [0.25, 0.75])
    if episodes > TOGETHER:  # some find the goal, some the sub-goal, some nothing
        assert np.all((np.asarray(host.success) > 0) & (np.asarray(host.success) < np.asarray(host.total)))
        assert np.all(np.asarray(host.discounted) < np.asarray(host.total))


def test_swinging_pendulums_return_what_they_do_on_the_device(float64: None) -> None:
    """Vectors, actions in other units than the learner's, and nothing that ends early."""
    task, episodes = Pendulum(horizon=25), TOGETHER + 1
    learners: list[Learner] = [TD3(gamma=0.99, widths=(8, 8)), TD3(gamma=0.95, widths=(8, 8))]
    spec, zero = task.spec, jnp.zeros((), float)
    untrained = jax.jit(lambda key: learners[0].policy(learners[0].init(key, spec, zero)))
    policies = stack_runs([untrained(make_key(7 + run)) for run in range(RUNS)])
    source = EnvSource("Pendulum", factory=lambda: JaxTaskEnv(task), horizon=25)
    device = on_device(task, learners, policies, episodes)
    host = on_host(source, learners, policies, episodes)
    agree(device, host, 1e-9)
    assert np.all(np.asarray(host.success) == 0) and np.all(np.isnan(np.asarray(host.steps_to_goal)))


# Against a pencil


class Ramp(gymnasium.Env[Any, Any]):
    """Step t (from 1) pays t - 2. An episode with seed s ends after 2 + s % 5 steps, a success where s is even."""

    def __init__(self) -> None:
        self.observation_space, self.action_space = spaces.Discrete(5), spaces.Discrete(2)
        self._kind = self._even = self._taken = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        assert seed is not None
        self._kind, self._even, self._taken = seed % 5, seed % 2 == 0, 0
        return self._kind, {}

    def step(self, action: Any) -> Any:
        self._taken += 1
        over = self._taken >= 2 + self._kind
        return self._kind, float(self._taken - 2), over, False, {"success": over and self._even}


LIMIT = 5
EPISODES = TOGETHER + 4
RAMP = EnvSource("Ramp", factory=Ramp, horizon=LIMIT)
GAMMAS = (0.9, 0.5)
RAMP_LEARNERS: list[Learner] = [TabularQ(gamma=gamma) for gamma in GAMMAS]


def ramp_policies() -> TabularQPolicy:
    """The critic's idea of a start in state s is s."""
    return TabularQPolicy(jnp.broadcast_to(jnp.arange(5, dtype=float)[None, :, None], (RUNS, 5, 2)))


def seeds_of(run: int) -> list[int]:
    """The reset seeds of one evaluation of EPISODES episodes."""
    keys = jax.random.split(streams()[run], EPISODES)
    return [int(seed_of(jax.random.fold_in(key, 0))) for key in keys]


def by_hand(run: int, rule: str) -> list[float]:
    """The means of a judgement: success, return, steps to the goal, discounted return, estimate."""
    rows = []
    for seed in seeds_of(run):
        length, ended = min(2 + seed % 5, LIMIT), 2 + seed % 5 <= LIMIT
        rewards = [float(t - 2) for t in range(1, length + 1)]
        won = {"info": ended and seed % 2 == 0, "terminated": ended, "reward": max(rewards) > 0}[rule]
        discounted = sum(GAMMAS[run] ** t * reward for t, reward in enumerate(rewards))
        to_goal = 3 if rule == "reward" else length  # the third step is the first that pays, and not the last
        rows.append((float(won), sum(rewards), float(to_goal), discounted, float(seed % 5)))
    wins = [row for row in rows if row[0]]
    means = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    means[2] = sum(row[2] for row in wins) / len(wins)
    return means


@pytest.mark.parametrize("rule", ["info", "terminated", "reward"])
def test_returns_discounts_and_successes_by_hand(float64: None, rule: Any) -> None:
    judged = on_host(dataclasses.replace(RAMP, success=rule), RAMP_LEARNERS, ramp_policies(), EPISODES)
    expected = np.array([by_hand(run, rule) for run in range(RUNS)])
    np.testing.assert_allclose(np.stack(judged, axis=1), expected, rtol=1e-12)
    assert len({tuple(sorted(seed % 5 for seed in seeds_of(run))) for run in range(RUNS)}) == RUNS
    assert np.all((expected[:, 0] > 0) & (expected[:, 0] < 1)), "a test of both outcomes"


def test_without_a_success_there_are_no_steps_to_the_goal(float64: None) -> None:
    judged = on_host(dataclasses.replace(RAMP, horizon=1), RAMP_LEARNERS, ramp_policies(), EPISODES)
    np.testing.assert_array_equal(judged.success, [0, 0])
    np.testing.assert_array_equal(judged.steps_to_goal, [np.nan, np.nan])
    np.testing.assert_array_equal(judged.total, [-1, -1])


def test_workers_judge_alike(float64: None) -> None:
    """The one episode of the second round leaves all but one environment of each run at rest."""
    source = EnvSource("toy/Steps-v0", module="toy_envs")
    policies = TabularQPolicy(jnp.zeros((RUNS, 5, 2), float))
    one, other = (on_host(source, RAMP_LEARNERS, policies, TOGETHER + 1, workers) for workers in (0, 2))
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert np.all(np.asarray(one.success) > 0)


# Beside training


def host_loop() -> HostLoop:
    words = "toy/Steps-v0 --env-module toy_envs --method exploit --seeds 2 --steps 150 --horizon 12"
    config = dataclasses.replace(resolve(parse(words.split())), precision=precision())
    return HostLoop(build_program(config), env_source(config), config.warmup)


def contents(loop: HostLoop, step: int) -> dict[str, bytes]:
    """Every array that a checkpoint would hold."""
    tree, extra = loop.store(step)
    return {name: array.tobytes() for name, array in {**flatten(tree), **extra}.items()}


def test_judging_leaves_training_untouched_and_an_evaluation_is_known_by_its_number() -> None:
    """The same stretch of training twice, from what was stored at step 40: by itself, then with judging in between."""
    with closing(host_loop()) as loop:
        loop.advance(0, 40)
        begun = loop.store(40)
        begun = begun._replace(tree=jax.device_get(begun.tree))  # stepping on takes the arrays themselves away
        loop.advance(40, 150)
        alone = contents(loop, 150)
        loop.restore(begun, 40)
        loop.judge(0, 3)
        loop.advance(40, 77)
        one, other, different = (jax.device_get(loop.judge(index, TOGETHER + 2)) for index in (3, 3, 4))
        loop.advance(77, 150)
        loop.judge(5, 3)
        assert contents(loop, 150) == alone
        assert np.asarray(loop.state.learners.q).any()
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert not np.array_equal(one.estimate, different.estimate)

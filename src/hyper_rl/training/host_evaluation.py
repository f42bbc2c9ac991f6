"""Judging on real environments: the seeds and keys of `evaluation`, environments of their own.

All runs and episodes step together, so that one compiled call serves them all; more episodes than `TOGETHER` for each
run are played in several rounds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import TaskSpec
from hyper_rl.envs.given_env import source_for_judging
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_pool import EnvPool, open_pool
from hyper_rl.learners.base import Learner
from hyper_rl.methods.policies import Role
from hyper_rl.observations import observation_dtype
from hyper_rl.threefry import seed_of
from hyper_rl.training.evaluation import Judgement, judged_policies
from hyper_rl.training.program import Program, RunState

TOGETHER = 10
"""Environments of each run that are open at once."""


@partial(jax.jit, static_argnames=("episodes",))
def _episode_keys(streams: PRNGKeyArray, *, episodes: int) -> tuple[PRNGKeyArray, Array]:
    """Keys and reset seeds of every run's episodes, as `evaluation.judge_episodes` draws them."""
    keys = jax.vmap(lambda key: jax.random.split(key, episodes))(streams)
    return keys, jax.vmap(jax.vmap(lambda key: seed_of(jax.random.fold_in(key, 0))))(keys)


@jax.jit
def _estimates(learner: Learner, policies: Any, observations: Array) -> Float[Array, "runs episodes"]:
    return jax.vmap(lambda one, policy, seen: jax.vmap(lambda o: one.estimate(policy, o))(seen))(
        learner, policies, observations
    )


@jax.jit
def _actions(learner: Learner, policies: Any, observations: Array, keys: PRNGKeyArray, t: Int[Array, ""]) -> Array:
    def act(one: Learner, policy: Any, observation: Array, key: PRNGKeyArray) -> Array:
        act_key, _ = jax.random.split(jax.random.fold_in(key, t + 1))
        return one.judge(policy, observation, act_key)

    return jax.vmap(jax.vmap(act, in_axes=(None, None, 0, 0)))(learner, policies, observations, keys)


class HostJudge:
    """Plays judged episodes of all runs."""

    def __init__(self, source: EnvSource, spec: TaskSpec, horizon: int, *, workers: int = 0) -> None:
        # An environment that was given is for training alone: its episode in progress must not be touched.
        self._source = source_for_judging(source)
        self._spec, self._horizon, self._workers = spec, horizon, workers
        self._pool: EnvPool | None = None

    def evaluate(
        self, program: Program, state: RunState, index: int, episodes: int, role: Role | None = None
    ) -> Judgement:
        """Evaluation number `index` of all runs of a program."""
        keys = jax.vmap(lambda key: jax.random.fold_in(key, index))(program.streams.evaluations)
        return self.judge(program.learner, judged_policies(program, state, role), keys, episodes)

    def judge(self, learner: Learner, policies: Any, streams: PRNGKeyArray, episodes: int) -> Judgement:
        """Learners, policies and the key of each carry a leading run axis, as in `evaluation.judge_episodes`."""
        keys, device_seeds = _episode_keys(streams, episodes=episodes)
        seeds = np.asarray(device_seeds)
        runs = seeds.shape[0]
        together = min(episodes, TOGETHER)
        if self._pool is None or self._pool.count != runs * together:
            self.close()
            self._pool = open_pool(self._source, runs * together, min(self._workers, runs * together))
        rounds = []
        for begin in range(0, episodes, together):
            # The last round may be short: its surplus environments stay inactive.
            chosen = np.arange(begin, min(begin + together, episodes))
            padded = np.resize(chosen, together)
            played = self._play(learner, policies, keys[:, padded], seeds[:, padded], len(chosen))
            rounds.append({name: values[:, : len(chosen)] for name, values in played.items()})
        return _summarise({name: np.concatenate([r[name] for r in rounds], axis=1) for name in rounds[0]})

    def _play(
        self, learner: Learner, policies: Any, keys: PRNGKeyArray, seeds: np.ndarray, real: int
    ) -> dict[str, np.ndarray]:
        assert self._pool is not None
        pool, shape = self._pool, seeds.shape
        observations = pool.reset(range(pool.count), [int(seed) for seed in seeds.ravel()])
        device_dtype = observation_dtype(self._spec.observation)
        gamma = np.asarray(jnp.broadcast_to(jnp.asarray(learner.gamma), shape[:1]), np.float64)[:, None]
        active = np.zeros(shape, bool)
        active[:, :real] = True
        played = {name: np.zeros(shape) for name in ("success", "steps", "total", "discounted", "estimate")}

        def on_device() -> Array:
            return jnp.asarray(observations.reshape(*shape, *observations.shape[1:]), device_dtype)

        played["estimate"] = np.asarray(_estimates(learner, policies, on_device()), np.float64)
        t = 0
        while active.any():
            actions = np.asarray(_actions(learner, policies, on_device(), keys, jnp.asarray(t, jnp.int32)))
            last = np.full(pool.count, t + 1 >= self._horizon)
            flat = actions.reshape(pool.count, *actions.shape[2:])
            # An ended episode's environment is reset once more (with its own seed) and then left alone.
            answer = pool.step(flat, last, seeds.ravel(), active.ravel())
            observations = answer.observation
            reward = np.where(active, answer.reward.reshape(shape), 0.0)
            played["steps"] += active & (played["success"] == 0)  # up to its first success
            played["success"] = np.maximum(played["success"], active & answer.success.reshape(shape))
            played["total"] += reward
            played["discounted"] += gamma**t * reward
            active &= ~answer.reset.reshape(shape)
            t += 1
        return played

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _summarise(played: dict[str, np.ndarray]) -> Judgement:
    wins = played["success"]
    with np.errstate(invalid="ignore"):
        steps = (wins * played["steps"]).sum(axis=1) / wins.sum(axis=1)
    return Judgement(
        success=jnp.asarray(wins.mean(axis=1), dtype=float),
        total=jnp.asarray(played["total"].mean(axis=1), dtype=float),
        steps_to_goal=jnp.asarray(steps, dtype=float),
        discounted=jnp.asarray(played["discounted"].mean(axis=1), dtype=float),
        estimate=jnp.asarray(played["estimate"].mean(axis=1), dtype=float),
    )

"""Judging: episodes of the judged policy without noise, on a random stream of their own.

Evaluating never touches the state of training, so how often it happens changes nothing that is learned.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import EnvState, Task
from hyper_rl.learners.base import Learner
from hyper_rl.methods.policies import Role
from hyper_rl.threefry import key_of, seed_of
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.step import to_task_action


class Judgement(NamedTuple):
    """Means over the episodes of one evaluation."""

    success: Float[Array, ""]
    total: Float[Array, ""]
    """Return, undiscounted."""
    steps_to_goal: Float[Array, ""]
    """Over the successful episodes; NaN where there is none."""
    discounted: Float[Array, ""]
    """Discounted return."""
    estimate: Float[Array, ""]
    """What the judged critic itself says of the start states: compare with `discounted`."""


class _Trial(NamedTuple):
    env: EnvState
    active: Bool[Array, ""]
    success: Bool[Array, ""]
    steps: Int[Array, ""]
    total: Float[Array, ""]
    discounted: Float[Array, ""]


def _begin(task: Task, learner: Learner, policy: Any, key: PRNGKeyArray) -> tuple[_Trial, Float[Array, ""]]:
    env = task.reset(key_of(seed_of(jax.random.fold_in(key, 0))))
    zero = jnp.zeros((), float)
    trial = _Trial(env, jnp.ones((), bool), jnp.zeros((), bool), jnp.zeros((), jnp.int32), zero, zero)
    return trial, learner.estimate(policy, task.observe(env))


def _step(task: Task, learner: Learner, policy: Any, key: PRNGKeyArray, t: Int[Array, ""], trial: _Trial) -> _Trial:
    act_key, env_key = jax.random.split(jax.random.fold_in(key, t + 1))
    action = learner.judge(policy, task.observe(trial.env), act_key)
    result = task.step(trial.env, to_task_action(task.spec, action), env_key)
    reward = jnp.where(trial.active, result.reward, 0.0)
    weight = jnp.asarray(learner.gamma, dtype=float) ** t.astype(float)
    return _Trial(
        env=result.state,
        active=trial.active & ~result.terminated & (t + 1 < task.horizon),
        success=trial.success | (trial.active & result.success),
        steps=trial.steps + (trial.active & ~trial.success).astype(jnp.int32),  # up to its first success
        total=trial.total + reward,
        discounted=trial.discounted + weight * reward,
    )


def judge_episodes(
    task: Task, learner: Learner, policies: Any, keys: PRNGKeyArray, episodes: int
) -> tuple[_Trial, Float[Array, "runs episodes"]]:
    """All runs and episodes in lock step until the last one has ended. Everything carries a leading run axis."""
    keys = jax.vmap(lambda key: jax.random.split(key, episodes))(keys)
    over_episodes = jax.vmap(_begin, in_axes=(None, None, None, 0))
    trials, estimates = jax.vmap(over_episodes)(task, learner, policies, keys)
    step_episodes = jax.vmap(_step, in_axes=(None, None, None, 0, None, 0))
    step_all = jax.vmap(step_episodes, in_axes=(0, 0, 0, 0, None, 0))

    def body(carry: tuple[Int[Array, ""], _Trial]) -> tuple[Int[Array, ""], _Trial]:
        t, trial = carry
        return t + 1, step_all(task, learner, policies, keys, t, trial)

    _, trials = jax.lax.while_loop(lambda carry: carry[1].active.any(), body, (jnp.zeros((), jnp.int32), trials))
    return trials, estimates


def summarise(trials: _Trial, estimates: Float[Array, "runs episodes"]) -> Judgement:
    wins = trials.success.astype(float)
    steps = jnp.where(trials.success, trials.steps, 0).sum(axis=-1).astype(float)
    return Judgement(
        success=wins.mean(axis=-1),
        total=trials.total.mean(axis=-1),
        steps_to_goal=steps / wins.sum(axis=-1),
        discounted=trials.discounted.mean(axis=-1),
        estimate=estimates.mean(axis=-1),
    )


def judged_policies(program: Program, state: RunState, role: Role | None = None) -> Any:
    """The policy of every run that the method judges, or that of another `role`."""
    index = program.policies.judged if role is None else program.policies.roles.index(role)
    judged = jax.tree.map(lambda leaf: leaf[:, index], state.learners)
    return jax.vmap(lambda learner, one: learner.policy(one))(program.learner, judged)


def evaluate(
    program: Program, state: RunState, index: Int[Array, ""], *, episodes: int, role: Role | None = None
) -> Judgement:
    """Evaluation number `index` of all runs."""
    keys = jax.vmap(lambda key: jax.random.fold_in(key, index))(program.streams.evaluations)
    policies = judged_policies(program, state, role)
    return summarise(*judge_episodes(program.task, program.learner, policies, keys, episodes))

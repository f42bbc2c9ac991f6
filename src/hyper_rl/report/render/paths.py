"""The path of an episode through a JAX task: where the agent was and who chose each step. Nothing learns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import EnvState, Task
from hyper_rl.learners.base import Learner, LearnerState
from hyper_rl.methods.policies import Policies
from hyper_rl.report.render.choices import (
    Choose,
    draw_length,
    episode_keys,
    judged_choice,
    reset_seed,
    step_keys,
    training_choice,
)
from hyper_rl.threefry import key_of
from hyper_rl.training.step import to_task_action


@dataclass(frozen=True)
class Walk:
    """One episode. `states` has one entry more than there were steps."""

    states: EnvState
    """NumPy leaves with a leading axis over time, from the start to the last state."""
    explorer: Bool[np.ndarray, " steps"]
    """Whether the explorer chose the step."""
    total: float
    """Return, undiscounted."""
    success: bool
    terminated: bool
    """Ended by the task; else by the time limit."""
    length: int | None
    """L of a training episode that repositions."""

    @property
    def steps(self) -> int:
        return len(self.explorer)


def judged_walks(task: Task, learner: Learner, policy: Any, seed: int, episodes: int) -> list[Walk]:
    """Episodes of the judged policy."""
    first, steps = _judged(task, learner, policy, episode_keys(seed, episodes), horizon=int(task.horizon))
    return _to_walks(first, steps, [None] * episodes)


def training_walks(
    task: Task, learner: Learner, policies: Policies, learners: LearnerState, seed: int, episodes: int
) -> list[Walk]:
    """Episodes as in training. `learners`: stacked over the roles of the method."""
    keys, horizon = episode_keys(seed, episodes), int(task.horizon)
    first, steps, lengths = _training(task, learner, policies, learners, keys, horizon=horizon)
    repositions = len(policies.roles) > 1
    return _to_walks(first, steps, [int(length) if repositions else None for length in lengths])


class _Step(NamedTuple):
    """One step of an episode, and whether the episode was still going on."""

    active: Bool[Array, ""]
    state: EnvState
    explorer: Bool[Array, ""]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    success: Bool[Array, ""]


def _play(task: Task, choose: Choose, key: PRNGKeyArray, horizon: int) -> tuple[EnvState, _Step]:
    """One episode: its start, and `horizon` steps of which those after its end mean nothing."""

    def step(carry: tuple[EnvState, Bool[Array, ""]], t: Int[Array, ""]) -> tuple[tuple[EnvState, Array], _Step]:
        env, active = carry
        act_key, env_key = step_keys(key, t)
        action, explorer = choose(task.observe(env), t, act_key)
        result = task.step(env, to_task_action(task.spec, action), env_key)
        made = _Step(active, result.state, explorer, result.reward, result.terminated, result.success)
        return (result.state, active & ~result.terminated), made

    start = task.reset(key_of(reset_seed(key)))
    _, steps = jax.lax.scan(step, (start, jnp.ones((), bool)), jnp.arange(horizon, dtype=jnp.int32))
    return start, steps


@partial(jax.jit, static_argnames=("horizon",))
def _judged(task: Task, learner: Learner, policy: Any, keys: PRNGKeyArray, *, horizon: int) -> tuple[EnvState, _Step]:
    return jax.vmap(lambda key: _play(task, judged_choice(learner, policy), key, horizon))(keys)


@partial(jax.jit, static_argnames=("horizon",))
def _training(
    task: Task,
    learner: Learner,
    policies: Policies,
    learners: LearnerState,
    keys: PRNGKeyArray,
    *,
    horizon: int,
) -> tuple[EnvState, _Step, Int[Array, " episodes"]]:
    def one(key: PRNGKeyArray) -> tuple[EnvState, _Step, Int[Array, ""]]:
        length = draw_length(policies, key, horizon)
        start, steps = _play(task, training_choice(learner, policies, learners, length), key, horizon)
        return start, steps, length

    return jax.vmap(one)(keys)


def _to_walks(first: EnvState, steps: _Step, lengths: list[int | None]) -> list[Walk]:
    first, steps = jax.device_get((first, steps))
    return [_walk(jax.tree.map(lambda leaf, i=i: leaf[i], (first, steps)), length) for i, length in enumerate(lengths)]


def _walk(played: tuple[EnvState, _Step], length: int | None) -> Walk:
    first, steps = played
    count = int(steps.active.sum())
    return Walk(
        states=jax.tree.map(lambda start, later: np.concatenate([[start], later[:count]]), first, steps.state),
        explorer=np.asarray(steps.explorer[:count]),
        total=float(steps.reward[:count].sum()),
        success=bool(steps.success[:count].any()),
        terminated=bool(steps.terminated[count - 1]),
        length=length,
    )

"""R runs as one program: what they are (`Program`), what changes (`RunState`) and how both begin.

Every leaf of a `Program` carries a leading run axis; what shapes the computation is static. The functions here are
written for one run and mapped over the axis by the loops.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt32

from hyper_rl.bonuses.base import Bonus, BonusState
from hyper_rl.envs.base import EnvState, Task, TaskSpec
from hyper_rl.learners.base import Learner, LearnerState
from hyper_rl.methods.explorer_reward import ExplorerReward, ExplorerScales
from hyper_rl.methods.lesson import LessonOptions, LessonState
from hyper_rl.methods.policies import Policies
from hyper_rl.threefry import key_of, make_key, seed_of
from hyper_rl.training.record import (
    Episode,
    Totals,
    Window,
    begin_episode,
    empty_totals,
    empty_window,
)
from hyper_rl.training.replay import ReplayLayout, Rows


class Streams(NamedTuple):
    """Independent random streams of one run, all from its seed; none depends on the method or on beta."""

    init: PRNGKeyArray
    steps: PRNGKeyArray
    episodes: PRNGKeyArray
    evaluations: PRNGKeyArray

    @staticmethod
    def from_seed(seed: int) -> Streams:
        return Streams(*jax.random.split(make_key(seed), 4))


class Program(eqx.Module):
    """Everything about the runs that training does not change."""

    task: Task
    learner: Learner
    bonus: Bonus | None
    policies: Policies
    explorer_reward: ExplorerReward
    streams: Streams
    budget: Int[Array, ""]
    """Environment steps over which p decays."""
    capacity: int = eqx.field(static=True)
    """Transitions the replay holds."""
    train_every: int = eqx.field(static=True, default=1)
    """Environment steps between trainings."""
    gradient_steps: int = eqx.field(static=True, default=1)
    """Updates of one training."""
    lesson: LessonOptions | None = None
    """The options of LESSON; None for the methods whose policies take turns."""

    @property
    def spec(self) -> TaskSpec:
        return self.task.spec

    @property
    def batch_size(self) -> int:
        """Transitions sampled for one update: what the learner wants, and enough for LESSON's option critic."""
        wanted = self.learner.batch_size
        if self.lesson is None or not self.learner.uses_newest:
            return wanted
        return max(wanted, self.lesson.batch_size)

    @property
    def needs_replay(self) -> bool:
        return self.batch_size > 0

    @property
    def layout(self) -> ReplayLayout:
        return ReplayLayout.of(self.spec, self.capacity, with_option=self.lesson is not None)


class RunState(NamedTuple):
    """Everything about one run that training changes: what a checkpoint must hold."""

    learners: LearnerState
    """Stacked over roles: task first, explorer second."""
    bonus: BonusState
    scales: ExplorerScales
    replay: Rows | None
    env: EnvState
    episode: Episode
    window: Window
    totals: Totals
    method: LessonState | None = None
    """What the method itself carries: options and their critic under LESSON, nothing under the others."""


def init_run(program: Program) -> RunState:
    """The state before the first step of a JAX task."""
    env = program.task.reset(start_key(program, jnp.zeros((), jnp.int32)))
    return init_run_from(program, env, program.task.cell(env))


def init_run_from(program: Program, env: EnvState, cell: Int[Array, ""]) -> RunState:
    """The state before the first step, the task standing at `env`.

    All learners start from the same weights, so that beta = 0 is the plain learner.
    """
    spec, policies = program.spec, program.policies
    learner_key, bonus_key = jax.random.split(program.streams.init)
    largest = program.bonus.largest if program.bonus is not None else 0.0
    optimism = program.explorer_reward.beta * largest / (1 - program.learner.gamma)
    per_role = jnp.stack([optimism if role == "explorer" else jnp.zeros_like(optimism) for role in policies.roles])
    learners = jax.vmap(lambda value: program.learner.init(learner_key, spec, value))(per_role)
    totals = empty_totals(spec.cells)
    zero = jnp.zeros((), jnp.int32)
    return RunState(
        learners=learners,
        bonus=program.bonus.init(bonus_key, spec) if program.bonus is not None else None,
        scales=program.explorer_reward.init(),
        replay=program.layout.init() if program.needs_replay else None,
        env=env,
        episode=start_episode(program, zero, zero),
        window=empty_window(len(policies.roles)),
        totals=totals._replace(visits=totals.visits.at[cell].add(1)),
        method=_init_method(program, env),
    )


def _init_method(program: Program, env: EnvState) -> LessonState | None:
    if program.lesson is None:
        return None
    # 0 and 1 are taken: a key's split and its fold_in give the same numbers.
    key = jax.random.fold_in(program.streams.init, 2)
    return program.lesson.init(key, program.spec, program.task.observe(env))


def episode_keys(program: Program, number: Int[Array, ""]) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """(start, L): both come from (run seed, episode number) alone, on the device and on the host alike."""
    start, length = jax.random.split(jax.random.fold_in(program.streams.episodes, number))
    return start, length


def start_seed(program: Program, number: Int[Array, ""]) -> UInt32[Array, ""]:
    """The seed a Gymnasium environment is reset with."""
    return seed_of(episode_keys(program, number)[0])


def start_key(program: Program, number: Int[Array, ""]) -> PRNGKeyArray:
    """The key a JAX task is reset with: the one that belongs to `start_seed`."""
    return key_of(start_seed(program, number))


def start_episode(program: Program, number: Int[Array, ""], step: Int[Array, ""]) -> Episode:
    _, length_key = episode_keys(program, number)
    horizon = jnp.asarray(program.task.horizon)
    return begin_episode(number, program.policies.draw_length(length_key, step, program.budget, horizon))

"""R runs as one program: what they are (`Program`), what changes (`RunState`) and one step of one run.

Every leaf of a `Program` carries a leading run axis; what shapes the computation is static. The functions here are
written for one run and mapped over the axis by `device_loop`. The order inside a step is the data flow of the package:

    task -> transition -> replay -> bonus -> learners -> who acts next
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.bonuses.base import Bonus, BonusState
from hyper_rl.envs.base import Box, EnvState, Task, TaskSpec
from hyper_rl.learners.base import Learner, LearnerState, UpdateInfo
from hyper_rl.methods.explorer_reward import ExplorerBatch, ExplorerReward, ExplorerScales
from hyper_rl.methods.policies import Policies
from hyper_rl.threefry import make_key
from hyper_rl.training.record import (
    Episode,
    Totals,
    Window,
    begin_episode,
    empty_totals,
    empty_window,
    finish_episode,
    take_step,
)
from hyper_rl.training.replay import ReplayLayout, Rows, join
from hyper_rl.types import Transition


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

    @property
    def spec(self) -> TaskSpec:
        return self.task.spec

    @property
    def needs_replay(self) -> bool:
        return self.learner.batch_size > 0

    @property
    def layout(self) -> ReplayLayout:
        return ReplayLayout.of(self.spec, self.capacity)


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


def init_run(program: Program) -> RunState:
    """The state before the first step.

    All learners start from the same weights, so that beta = 0 is the plain learner.
    """
    spec, policies = program.spec, program.policies
    learner_key, bonus_key = jax.random.split(program.streams.init)
    largest = program.bonus.largest if program.bonus is not None else 0.0
    optimism = program.explorer_reward.beta * largest / (1 - program.learner.gamma)
    per_role = jnp.stack([optimism if role == "explorer" else jnp.zeros_like(optimism) for role in policies.roles])
    learners = jax.vmap(lambda value: program.learner.init(learner_key, spec, value))(per_role)
    env, episode = start_episode(program, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))
    totals = empty_totals(spec.cells)
    return RunState(
        learners=learners,
        bonus=program.bonus.init(bonus_key, spec) if program.bonus is not None else None,
        scales=program.explorer_reward.init(),
        replay=program.layout.init() if program.needs_replay else None,
        env=env,
        episode=episode,
        window=empty_window(len(policies.roles)),
        totals=totals._replace(visits=totals.visits.at[program.task.cell(env)].add(1)),
    )


def start_episode(program: Program, number: Int[Array, ""], step: Int[Array, ""]) -> tuple[EnvState, Episode]:
    """Start and L come from (run seed, episode number) alone, on the device and on the host alike."""
    reset_key, length_key = jax.random.split(jax.random.fold_in(program.streams.episodes, number))
    horizon = jnp.asarray(program.task.horizon)
    length = program.policies.draw_length(length_key, step, program.budget, horizon)
    return program.task.reset(reset_key), begin_episode(number, length)


def step_run(
    program: Program, state: RunState, step: Int[Array, ""], warmup: Int[Array, ""], *, learn: bool
) -> RunState:
    """One environment step of one run and, where `learn`, one update. `step` and `warmup` are shared by all runs."""
    act_key, env_key, sample_key, update_key, bonus_key = jax.random.split(
        jax.random.fold_in(program.streams.steps, step), 5
    )
    newest, env, success, repositioning = interact(program, state, act_key, env_key, learn=learn)

    episode = take_step(state.episode, newest.reward, repositioning)
    truncated = ~newest.terminated & (episode.step >= program.task.horizon)
    done = newest.terminated | truncated
    window = finish_episode(state.window, episode, done, success, repositioning)
    fresh_env, fresh_episode = start_episode(program, episode.number + 1, step + 1)
    next_env = _select(done, fresh_env, env)
    totals = Totals(
        state.totals.goals + success.astype(jnp.int32), state.totals.visits.at[program.task.cell(env)].add(1)
    )
    state = state._replace(
        bonus=program.bonus.observe(state.bonus, newest) if program.bonus is not None else None,
        replay=program.layout.add(state.replay, newest, step) if state.replay is not None else None,
        env=next_env,
        episode=_select(done, fresh_episode, episode),
        window=window,
        totals=totals,
    )
    if not learn:
        return state
    sampled = None
    if state.replay is not None:
        sampled = program.layout.sample(state.replay, sample_key, program.learner.batch_size, step + 1)
    batch = join(newest, sampled) if sampled is None or program.learner.uses_newest else sampled
    return improve(program, state, batch, update_key, bonus_key, step + 1 - warmup)


def interact(
    program: Program, state: RunState, act_key: PRNGKeyArray, env_key: PRNGKeyArray, *, learn: bool
) -> tuple[Transition, EnvState, Array, Array]:
    """Act in the task. During warm-up (`learn` off) actions are uniform and nobody repositions."""
    spec, policies = program.spec, program.policies
    observation = program.task.observe(state.env)
    repositioning = jnp.zeros((), bool)
    if learn:
        # Every role answers with the same noise; the one whose turn it is is heard.
        answers = jax.vmap(program.learner.act, in_axes=(0, None, None))(state.learners, observation, act_key)
        who = policies.acting(state.episode.step, state.episode.length)
        action = _pick(answers, who, len(policies.roles))
        if len(policies.roles) > 1:
            repositioning = who == policies.roles.index("task")
    else:
        action = random_action(spec, act_key)
    result = program.task.step(state.env, to_task_action(spec, action), env_key)
    newest = Transition(observation, action, result.reward, program.task.observe(result.state), result.terminated)
    return newest, result.state, result.success, repositioning


def improve(
    program: Program,
    state: RunState,
    batch: Transition,
    update_key: PRNGKeyArray,
    bonus_key: PRNGKeyArray,
    index: Int[Array, ""],
) -> RunState:
    """One update of every learner and of the bonus on one batch (Algorithm 2, "Policy Improvement")."""
    window = state.window
    rewards = {"task": batch.reward}
    if program.policies.explores:
        assert program.bonus is not None
        bonus, bonus_state, bonus_loss = program.bonus.learn(state.bonus, batch, bonus_key)
        scales, explorer = program.explorer_reward(state.scales, batch.reward, bonus, program.learner.gamma)
        rewards["explorer"] = explorer.rewards
        state = state._replace(bonus=bonus_state, scales=scales)
        window = _note_explorer(window, explorer, bonus_loss)
    stacked = jnp.stack([rewards[role] for role in program.policies.roles])
    update = jax.vmap(program.learner.update, in_axes=(0, None, 0, None, None))
    learners, info = update(state.learners, batch, stacked, update_key, index)
    return state._replace(learners=learners, window=_note_update(window, info))


def _note_explorer(window: Window, explorer: ExplorerBatch, bonus_loss: Float[Array, ""]) -> Window:
    return window._replace(
        bonus_loss=window.bonus_loss + bonus_loss,
        bonus_mean=window.bonus_mean + explorer.bonus_mean,
        bonus_divisor=window.bonus_divisor + explorer.bonus_divisor,
        task_share=window.task_share + explorer.task_share,
    )


def _note_update(window: Window, info: UpdateInfo) -> Window:
    return window._replace(
        updates=window.updates + 1, loss=window.loss + info.loss, actor_loss=window.actor_loss + info.actor_loss
    )


def random_action(spec: TaskSpec, key: PRNGKeyArray) -> Shaped[Array, "..."]:
    """Uniform, in the learner's units."""
    if isinstance(spec.action, Box):
        return jax.random.uniform(key, (spec.action.size,), minval=-1.0, maxval=1.0, dtype=float)
    return jax.random.randint(key, (), 0, spec.action.n, dtype=jnp.int32)


def to_task_action(spec: TaskSpec, action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """From [-1, 1] to the task's bounds; written so that bounds of -1 and 1 change nothing, to the last bit."""
    if not isinstance(spec.action, Box):
        return action
    centre, half = (spec.action.low + spec.action.high) / 2, (spec.action.high - spec.action.low) / 2
    return centre + half * action


def _pick(answers: Shaped[Array, "roles ..."], who: Int[Array, ""], roles: int) -> Shaped[Array, "..."]:
    return answers[0] if roles == 1 else jnp.where(who == 0, answers[0], answers[1])


def _select(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)

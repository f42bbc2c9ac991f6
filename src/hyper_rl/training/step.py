"""One step of one run: `choose` an action, hand it to the task, `absorb` what it answered.

The same functions serve JAX tasks (`device_loop`) and Gymnasium environments (`host_loop`). The order is the data flow
of the package:

    task -> transition -> replay -> bonus -> learners -> who acts next

"Who acts next" is a question of the step number and L for the methods whose policies take turns. Under LESSON it is an
option, decided as soon as the next observation is there and kept in `RunState.method`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.bonuses.base import BonusState, learn_bonus
from hyper_rl.envs.base import Box, EnvState, TaskSpec
from hyper_rl.learners.base import KnownPlace, LearnerState, UpdateIndex, UpdateInfo, period_of
from hyper_rl.methods.explorer_reward import ExplorerBatch, ExplorerScales
from hyper_rl.methods.lesson import LessonState
from hyper_rl.training.program import Program, RunState, start_episode, start_key
from hyper_rl.training.record import NOBODY, Totals, Window, finish_episode, take_step
from hyper_rl.training.replay import join
from hyper_rl.types import Transition


class StepKeys(NamedTuple):
    """The random numbers of one environment step of one run."""

    act: PRNGKeyArray
    env: PRNGKeyArray
    sample: PRNGKeyArray
    update: PRNGKeyArray
    bonus: PRNGKeyArray

    @staticmethod
    def at(program: Program, step: Int[Array, ""]) -> StepKeys:
        return StepKeys(*jax.random.split(jax.random.fold_in(program.streams.steps, step), 5))


class Choice(NamedTuple):
    """What to do next, in the learner's units, and whether it is the task policy that repositions."""

    action: Shaped[Array, "..."]
    repositioning: Bool[Array, ""]


class Outcome(NamedTuple):
    """What the task answered to one choice."""

    transition: Transition
    truncated: Bool[Array, ""]
    success: Bool[Array, ""]
    cell: Int[Array, ""]
    repositioning: Bool[Array, ""]


def step_run(
    program: Program,
    state: RunState,
    step: Int[Array, ""],
    warmup: Int[Array, ""],
    *,
    learn: bool,
    place: int | None = None,
) -> RunState:
    """One step of one run in a JAX task and, where `learn`, one update. `step` and `warmup` are shared by all runs.

    `place`: that of the update in the learner's period, for a caller who knows.
    """
    keys, task = StepKeys.at(program, step), program.task
    observation = task.observe(state.env)
    choice = choose(program, state, observation, keys.act, learn=learn)
    result = task.step(state.env, to_task_action(program.spec, choice.action), keys.env)
    newest = Transition(observation, choice.action, result.reward, task.observe(result.state), result.terminated)
    truncated = ~result.terminated & (state.episode.step + 1 >= task.horizon)
    fresh = task.reset(start_key(program, state.episode.number + 1))
    next_env = _select(result.terminated | truncated, fresh, result.state)
    outcome = Outcome(newest, truncated, result.success, task.cell(result.state), choice.repositioning)
    return absorb(program, state, outcome, next_env, keys, step, warmup, learn=learn, place=place)


def choose(
    program: Program, state: RunState, observation: Shaped[Array, "..."], key: PRNGKeyArray, *, learn: bool
) -> Choice:
    """Whoever's turn it is acts. During warm-up (`learn` off) actions are uniform and nobody repositions."""
    policies = program.policies
    repositioning = jnp.zeros((), bool)
    if not learn:
        return Choice(random_action(program.spec, key), repositioning)
    # Every role answers with the same noise; the one whose turn it is is heard.
    answers = jax.vmap(program.learner.act, in_axes=(0, None, None))(state.learners, observation, key)
    if program.lesson is not None:
        assert state.method is not None
        explorer, task = (answers[policies.roles.index(role)] for role in ("explorer", "task"))
        action = program.lesson.action(state.method, random_action(program.spec, key), explorer, task)
        return Choice(action, program.lesson.acts(state.method, "task"))
    who = policies.acting(state.episode.step, state.episode.length)
    if len(policies.roles) > 1:
        repositioning = who == policies.roles.index("task")
    return Choice(_pick(answers, who, len(policies.roles)), repositioning)


def absorb(
    program: Program,
    state: RunState,
    outcome: Outcome,
    next_env: EnvState,
    keys: StepKeys,
    step: Int[Array, ""],
    warmup: Int[Array, ""],
    *,
    learn: bool,
    due: bool | None = None,
    place: int | None = None,
) -> RunState:
    """Write down what happened at `step`, store it and, where `learn`, learn. The next step begins at `next_env`.

    `due`: whether training falls on this step, for a caller who knows; otherwise it is found out on the device.
    `place`: that of the update in the learner's period, likewise.
    """
    newest = outcome.transition
    episode = take_step(state.episode, newest.reward, outcome.success, outcome.repositioning)
    first_success = outcome.success & (state.episode.winner == NOBODY)
    if program.lesson is not None:
        assert state.method is not None
        method = state.method if learn else program.lesson.randomly(state.method)
        state, newest = state._replace(method=method), newest._replace(option=method.option)
        episode = episode._replace(length=episode.length + outcome.repositioning.astype(jnp.int32))
    done = newest.terminated | outcome.truncated
    state = state._replace(
        learners=jax.vmap(program.learner.observe, in_axes=(0, None))(state.learners, newest),
        bonus=program.bonus.observe(state.bonus, newest) if program.bonus is not None else None,
        replay=program.layout.add(state.replay, newest, step) if state.replay is not None else None,
        env=next_env,
        episode=_select(done, start_episode(program, episode.number + 1, step + 1), episode),
        window=finish_episode(state.window, episode, done),
        totals=Totals(
            state.totals.goals + first_success.astype(jnp.int32), state.totals.visits.at[outcome.cell].add(1)
        ),
    )
    if not learn:
        return state
    state = train_if_due(program, state, newest, keys, step, warmup, due, place)
    return state if program.lesson is None else decide_option(program, state, done, step)


def decide_option(program: Program, state: RunState, begins: Bool[Array, ""], step: Int[Array, ""]) -> RunState:
    """Under LESSON, who takes the step after `step`. `begins`: it is the first of an episode."""
    assert program.lesson is not None and state.method is not None
    # Beside `StepKeys`, whose five keys are folds 0 to 4 of the same one.
    key = jax.random.fold_in(jax.random.fold_in(program.streams.steps, step), len(StepKeys._fields))
    observation = program.task.observe(state.env)
    return state._replace(method=program.lesson.next_option(state.method, program.spec, observation, begins, key))


def train_if_due(
    program: Program,
    state: RunState,
    newest: Transition,
    keys: StepKeys,
    step: Int[Array, ""],
    warmup: Int[Array, ""],
    due: bool | None = None,
    place: int | None = None,
) -> RunState:
    """`train_run` at every `train_every`-th step after warm-up."""
    since = step + 1 - warmup
    if program.train_every == 1 or due is True:
        return train_run(program, state, newest, keys, step, since, place)
    if due is False:
        return state
    # Only what learning changes goes through the branch: the replay is read there, never handed back.
    part = jax.lax.cond(
        since % program.train_every == 0,
        lambda part: _learned(train_run(program, state._replace(**part._asdict()), newest, keys, step, since)),
        lambda part: part,
        _learned(state),
    )
    return state._replace(**part._asdict())


class Learned(NamedTuple):
    """The fields of a `RunState` that an update changes."""

    learners: LearnerState
    bonus: BonusState
    scales: ExplorerScales
    window: Window
    method: LessonState | None


def _learned(state: RunState) -> Learned:
    return Learned(state.learners, state.bonus, state.scales, state.window, state.method)


def train_run(
    program: Program,
    state: RunState,
    newest: Transition,
    keys: StepKeys,
    step: Int[Array, ""],
    since: Int[Array, ""],
    place: int | None = None,
) -> RunState:
    """`gradient_steps` updates, each on a batch of its own. `since`: environment steps after warm-up."""
    done_before = (since // program.train_every - 1) * program.gradient_steps

    def sample(keys: StepKeys) -> Transition | None:
        if state.replay is None:
            return None
        return program.layout.sample(state.replay, keys.sample, program.batch_size, step + 1)

    def one(number: Int[Array, ""], part: Learned, keys: StepKeys, sampled: Transition | None) -> Learned:
        batch = join(newest, sampled) if sampled is None or program.learner.uses_newest else sampled
        now = state._replace(**part._asdict())
        count = done_before + number + 1
        index = count if place is None else KnownPlace(count, place, period_of(program.learner))
        return _learned(improve(program, now, batch, keys.update, keys.bonus, index))

    if program.gradient_steps == 1:
        sampled = sample(keys)
        if place is not None and sampled is not None:
            # The next step of the block writes to the replay. If that could come before this read, all of the replay
            # would be copied first.
            replay, sampled = jax.lax.optimization_barrier((state.replay, sampled))
            state = state._replace(replay=replay)
        part = one(jnp.zeros((), jnp.int32), _learned(state), keys, sampled)
    else:

        def body(number: Int[Array, ""], part: Learned) -> Learned:
            keys_here = StepKeys(*(jax.random.fold_in(key, number) for key in keys))
            return one(number, part, keys_here, sample(keys_here))

        part = jax.lax.fori_loop(0, program.gradient_steps, body, _learned(state))
    return state._replace(**part._asdict())


def improve(
    program: Program,
    state: RunState,
    batch: Transition,
    update_key: PRNGKeyArray,
    bonus_key: PRNGKeyArray,
    index: UpdateIndex,
) -> RunState:
    """One update of every learner and of the bonus on one batch (Algorithm 2, "Policy Improvement")."""
    window = state.window
    rewards = {"task": batch.reward}
    if program.policies.explores:
        assert program.bonus is not None
        bonus, bonus_state, bonus_loss = learn_bonus(program.bonus, state.bonus, batch, bonus_key)
        scales, explorer = program.explorer_reward(state.scales, batch.reward, bonus, program.learner.gamma)
        rewards["explorer"] = explorer.rewards
        state = state._replace(bonus=bonus_state, scales=scales)
        window = _note_explorer(window, explorer, bonus_loss)
        if program.lesson is not None:
            assert state.method is not None
            assert not isinstance(index, KnownPlace), "LESSON's learners have no period"
            learned = program.lesson.learn(state.method, batch, explorer.bonus, program.learner.gamma, index)
            state = state._replace(method=learned)
    stacked = jnp.stack([rewards[role] for role in program.policies.roles])
    if program.lesson is not None and program.batch_size > program.learner.batch_size:
        # The batch was made larger for the option critic. It is an independent draw, so its first rows are one too.
        rows = program.learner.batch_size + program.learner.uses_newest
        batch, stacked = jax.tree.map(lambda leaf: leaf[:rows], batch), stacked[:, :rows]
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

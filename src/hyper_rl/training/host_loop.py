"""The loop around real Gymnasium environments: the functions of the device loop, one compiled call per step.

R runs step R environments in lock step, each reset by us with a seed that comes from (run seed, episode number). One
call absorbs what the environments answered at step t, learns, and chooses the actions of step t + 1, so that the host
pays for a single dispatch; its arguments are flat lists of arrays, because taking a tree of modules apart in Python
would cost more than the call.

A checkpoint also holds the actions and observations of the episodes in progress. Resuming resets the environments with
the same seeds, repeats those actions and compares every observation: what an environment that is deterministic given
its seed cannot tell from never having stopped, and what one that is not cannot hide. The same is done after a step
that failed, which leaves some environments before it, some behind it and some in their next episode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hyper_rl.envs.base import Discrete, TaskSpec
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_pool import EnvPool, open_pool
from hyper_rl.errors import UserError
from hyper_rl.methods.policies import Role
from hyper_rl.observations import observation_dtype
from hyper_rl.training.evaluation import Judgement
from hyper_rl.training.host_episodes import CurrentEpisodes, NotRepeatable, SeedBook
from hyper_rl.training.host_evaluation import HostJudge
from hyper_rl.training.host_message import Message, pack_step, unpack_step
from hyper_rl.training.loop import Extra, Stored, carry_over, pack, unpack
from hyper_rl.training.program import Program, RunState, init_run_from, start_episode
from hyper_rl.training.step import Choice, Outcome, StepKeys, absorb, choose, decide_option
from hyper_rl.types import Transition

Call: TypeAlias = Callable[..., tuple[list[Array], Array]]


class HostRuns(NamedTuple):
    """All runs, and what they have chosen to do next."""

    runs: RunState
    choice: Choice


def host_step(
    program: Program,
    state: RunState,
    choice: Choice,
    message: Message,
    step: Int[Array, ""],
    warmup: Int[Array, ""],
    *,
    learn: bool,
    due: bool,
    act: bool,
) -> HostRuns:
    """One run: absorb the answer to `choice` at `step`, then choose for the next one (`act`: no longer warm-up)."""
    next_observation, observation, flags = unpack_step(program.spec, message)
    terminated, truncated, success = (flags[i] > 0.5 for i in (1, 2, 3))
    newest = Transition(state.env, choice.action, flags[0], next_observation, terminated)
    outcome = Outcome(newest, truncated & ~terminated, success, flags[4].astype(jnp.int32), choice.repositioning)
    keys = StepKeys.at(program, step)
    state = absorb(program, state, outcome, observation, keys, step, warmup, learn=learn, due=due)
    return HostRuns(state, choose(program, state, observation, StepKeys.at(program, step + 1).act, learn=act))


def begin(program: Program, observation: Array, cell: Int[Array, ""], *, act: bool) -> HostRuns:
    """One run before its first step."""
    state = init_run_from(program, observation, cell)
    return HostRuns(state, choose(program, state, observation, StepKeys.at(program, _int(0)).act, learn=act))


def restart(program: Program, state: RunState, observation: Array, step: Int[Array, ""], *, act: bool) -> HostRuns:
    """One run whose next episode begins, at `step`, without the last one having ended."""
    episode = start_episode(program, state.episode.number + 1, step)
    state = state._replace(env=observation, episode=episode)
    if program.lesson is not None and act:
        state = decide_option(program, state, jnp.ones((), bool), step - 1)
    return HostRuns(state, choose(program, state, observation, StepKeys.at(program, step).act, learn=act))


class HostLoop:
    """Runs of a Gymnasium environment."""

    def __init__(self, program: Program, source: EnvSource, warmup: int, *, workers: int = 0) -> None:
        self._source, self._warmup, self._workers = source, warmup, workers
        self._count, self._spec = int(program.budget.shape[0]), program.spec
        self._use(program)
        self.position = 0
        self._dtype = np.dtype(jnp.zeros((), float).dtype)
        self._pool: EnvPool | None = None
        self._judge: HostJudge | None = None
        self._leaves: list[Array] = []
        self._tree: Any = None
        self._actions = np.zeros(0)
        self._episodes = CurrentEpisodes(self._count)
        self._astray = False
        """A step has failed: the environments are no longer where `_episodes` and the runs are."""

    def _use(self, program: Program) -> None:
        self.program = program
        self._horizon = int(np.asarray(program.task.horizon).max())
        self._program_leaves, self._program_tree = jax.tree.flatten(program)
        self._seeds = SeedBook(program)
        self._calls: dict[Stage, Call] = {}

    @property
    def state(self) -> RunState:
        self._begin_if_new()
        return self._whole().runs

    def cut(self, step: int) -> int:
        return step

    def advance(self, first: int, last: int) -> None:
        self._begin_if_new()
        warmup = jnp.asarray(self._warmup, jnp.int32)
        self.position = first
        if self._astray:
            self._find_back(first)
        assert self._pool is not None
        for step in range(first, last):
            episodes = self._episodes
            final = episodes.steps + 1 >= self._horizon
            try:
                answer = self._pool.step(self._actions, final, self._seeds.of(episodes.numbers + 1))
            except BaseException:
                self._astray = True
                raise
            message = pack_step(self._spec, answer, self._dtype)
            episodes.note(self._actions, answer)
            call = self._call(step)
            self._leaves, action = call(self._program_leaves, self._leaves, message, np.int32(step), warmup)
            self._actions = np.asarray(action)
            self.position = step + 1

    def judge(self, index: int, episodes: int, role: Role | None = None) -> Judgement:
        if self._judge is None:
            self._judge = HostJudge(self._source, self._spec, self._horizon, workers=self._workers)
        return self._judge.evaluate(self.program, self.state, index, episodes, role)

    def change(self, edit: Callable[[RunState], RunState]) -> None:
        whole = self._whole()
        self._hold(whole._replace(runs=edit(whole.runs)))

    def adopt(self, program: Program, step: int) -> None:
        whole = self._whole()
        self._hold(whole._replace(runs=carry_over(self.program, program, whole.runs, step)))
        self._use(program)

    def change_source(self, source: EnvSource, program: Program, step: int) -> None:
        """Other environments of the same kind, each beginning its run's next episode.

        `program`: the one at work but for the episode limit, which is that of these environments.
        """
        self._begin_if_new()
        self.close()
        before = self._source, self.program
        self._source = source
        self._use(program)
        try:
            self._begin_next(step)
        except BaseException:  # as if nobody had asked, but that the old environments are closed
            self.close()
            self._source = before[0]
            self._use(before[1])
            self._astray = True
            raise

    def _begin_next(self, step: int) -> None:
        """Every run's next episode, at `step`, without the last one having ended."""
        numbers = self._episodes.numbers + 1
        observations = self._open_pool().reset(range(self._count), self._seeds.of(numbers).tolist())
        self._episodes.numbers = numbers
        self._episodes.begin(range(self._count), observations)
        device = _as_device(self._spec, observations)
        self._hold(_restart_all(self.program, self._whole().runs, device, _int(step), act=step >= self._warmup))
        self._actions = np.asarray(self._whole().choice.action)
        self._astray = False

    def _find_back(self, step: int) -> None:
        """Have the environments where they were before the step that failed, or else in fresh episodes."""
        try:
            self._repeat(self._episodes.numbers, self._episodes.as_arrays())
        except NotRepeatable as why:
            self._begin_next(step)
            warnings.warn(f"{why}. Another episode has begun; the one in progress is left unfinished", stacklevel=2)

    def _repeat(self, numbers: np.ndarray, arrays: Extra) -> None:
        seeds, following = self._seeds.of(numbers), self._seeds.of(numbers + 1)
        pool, name = self._open_pool(), self._source.env_id
        self._episodes = CurrentEpisodes.repeat(pool, name, numbers, seeds, following, arrays)
        self._astray = False

    def store(self, step: int) -> Stored:
        self._begin_if_new()
        whole = self._whole()
        return Stored(whole._replace(runs=pack(self.program, whole.runs, step)), self._episodes.as_arrays())

    def template(self, step: int) -> Any:
        shapes = jax.eval_shape(partial(_begin_all, act=False), self.program, *self._first_shapes())
        return jax.eval_shape(lambda whole: whole._replace(runs=pack(self.program, whole.runs, step)), shapes)

    def restore(self, stored: Stored, step: int) -> None:
        whole: HostRuns = stored.tree
        choice = jax.tree.map(jnp.asarray, whole.choice)
        self._hold(HostRuns(unpack(self.program, whole.runs), choice))
        self._actions = np.asarray(choice.action)
        self._open_pool()
        longest = max(len(rows) - 1 for name, rows in stored.extra.items() if name.endswith("/observations"))
        if longest >= self._horizon:
            raise UserError(
                f"env: {self._source.env_id} ends its episodes after {self._horizon} steps, and the one in progress "
                f"has {longest}; load the agent with the environment it was in, then change that with set_env"
            )
        self._repeat(np.asarray(whole.runs.episode.number), stored.extra)

    def close(self) -> None:
        for part in (self._pool, self._judge):
            if part is not None:
                part.close()
        self._pool = self._judge = None

    def _open_pool(self) -> EnvPool:
        if self._pool is None or self._pool.closed:  # one whose worker died has closed itself
            self._pool = open_pool(self._source, self._count, self._workers)
        return self._pool

    def _begin_if_new(self) -> None:
        if self._leaves:
            return
        numbers = np.zeros(self._count, np.int64)
        observations = self._open_pool().reset(range(self._count), self._seeds.of(numbers).tolist())
        self._episodes.begin(range(self._count), observations)
        cells = np.asarray(self._open_pool().cells, np.int32)
        device = _as_device(self._spec, observations)
        self._hold(_begin_all(self.program, device, jnp.asarray(cells), act=self._warmup == 0))
        self._actions = np.asarray(self._whole().choice.action)

    def _first_shapes(self) -> Sequence[Any]:
        shape = () if isinstance(self._spec.observation, Discrete) else (self._spec.observation.size,)
        observation = jax.ShapeDtypeStruct((self._count, *shape), observation_dtype(self._spec.observation))
        return observation, jax.ShapeDtypeStruct((self._count,), np.dtype(np.int32))

    def _hold(self, whole: HostRuns) -> None:
        self._leaves, self._tree = jax.tree.flatten(whole)

    def _whole(self) -> HostRuns:
        whole: HostRuns = jax.tree.unflatten(self._tree, self._leaves)
        return whole

    def _call(self, step: int) -> Call:
        """The compiled step for this stage of training.

        Whether training is due is the same question for all runs, so it is answered here: a branch on the device would
        carry all that learning changes through it, and copy it, in steps that learn nothing.
        """
        since = step + 1 - self._warmup
        stage = Stage(learn=since > 0, due=since > 0 and since % self.program.train_every == 0, act=since >= 0)
        if stage not in self._calls:
            self._calls[stage] = _compiled_step(self._program_tree, self._tree, stage)
        return self._calls[stage]


class Stage(NamedTuple):
    """What a step does besides storing its transition."""

    learn: bool
    """Warm-up is over,"""
    due: bool
    """and this is one of the steps that train."""
    act: bool
    """The policies choose the next action."""


@cache
def _compiled_step(program_tree: Any, tree: Any, stage: Stage) -> Call:
    """One for all loops of the same structure, so that a second one need not compile again."""

    def call(
        program_leaves: list[Array], leaves: list[Array], message: Message, step: Array, warmup: Array
    ) -> tuple[list[Array], Array]:
        program: Program = jax.tree.unflatten(program_tree, program_leaves)
        whole: HostRuns = jax.tree.unflatten(tree, leaves)
        one_run = partial(host_step, learn=stage.learn, due=stage.due, act=stage.act)
        mapped = jax.vmap(one_run, in_axes=(0, 0, 0, 0, None, None))
        whole = mapped(program, whole.runs, whole.choice, message, step, warmup)
        return jax.tree.leaves(whole), whole.choice.action

    return jax.jit(call, donate_argnums=(1,))


@partial(jax.jit, static_argnames=("act",))
def _begin_all(program: Program, observations: Array, cells: Int[Array, " runs"], *, act: bool) -> HostRuns:
    return jax.vmap(partial(begin, act=act))(program, observations, cells)


@partial(jax.jit, static_argnames=("act",))
def _restart_all(
    program: Program, state: RunState, observations: Array, step: Int[Array, ""], *, act: bool
) -> HostRuns:
    return jax.vmap(partial(restart, act=act), in_axes=(0, 0, 0, None))(program, state, observations, step)


def _as_device(spec: TaskSpec, observations: np.ndarray) -> Array:
    return jnp.asarray(observations, observation_dtype(spec.observation))


def _int(value: int) -> Int[Array, ""]:
    return jnp.asarray(value, jnp.int32)

"""Every learner with every bonus: in each cell Hyper learns a small maze, and the bonus fades where it has been.

The cells of one learner are runs of one program whose bonus is a choice (`OneOf`): four compilations, not eleven. The
other methods are checked for wiring only, by tracing one step without computing it.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray

from hyper_rl.bonuses.base import Bonus
from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.bonuses.icm import ICM
from hyper_rl.bonuses.rnd import RND
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.methods.policies import ROLES, make_policies
from hyper_rl.training.device_loop import DeviceLoop, init_runs
from hyper_rl.training.program import Program, Streams
from hyper_rl.training.step import random_action, step_run
from hyper_rl.types import Transition, stack_runs
from probe_mazes import GridMaze, PointMaze

pytestmark = pytest.mark.xdist_group("matrix")  # one process, so that each learner is trained once

GAMMA, WIDTHS = 0.9, (32, 32)
BETA, P_START, P_END = 1.0, 1 - GAMMA, 0.05
WARMUP, EPISODES, SEED = 100, 20, 0
LEARNERS_HERE: dict[str, Learner] = {
    "td3": TD3(lr=3e-3, gamma=GAMMA, tau=0.05, batch_size=64, widths=WIDTHS),
    "sac": SAC(lr=3e-3, gamma=GAMMA, tau=0.05, batch_size=64, widths=WIDTHS, temperature=0.05, temperature_lr=3e-3),
    "dqn": DQN(lr=3e-3, gamma=GAMMA, tau=0.05, batch_size=64, widths=WIDTHS, epsilon_start=0.0, epsilon_end=0.0),
    "tabular_q": TabularQ(gamma=GAMMA, replay=4),
}
BONUSES_HERE: dict[str, Bonus] = {
    "disagreement": Disagreement(lr=1e-3, widths=WIDTHS, target="change", normalise=True),
    "rnd": RND(lr=3e-4, widths=WIDTHS, outputs=16),
    "icm": ICM(widths=WIDTHS, features=16),
    "counts": Counts(),
}
MATRIX: dict[str, tuple[str, ...]] = {
    "td3": ("disagreement", "rnd", "icm"),
    "sac": ("disagreement", "rnd", "icm"),
    "dqn": ("disagreement", "rnd", "icm", "counts"),
    "tabular_q": ("counts",),
}
STEPS = {"td3": 3000, "sac": 3000, "dqn": 3000, "tabular_q": 3000}
# How many times smaller the bonus is on what was visited than on what never was, at least. A count of n is worth
# 1/sqrt(n), so it separates by the square root of the visits; the others separate by what their networks do not know.
RATIO = {"disagreement": 5.0, "rnd": 10.0, "icm": 5.0, "counts": 5.0}
CELLS = [
    pytest.param(learner, bonus, id=f"{learner}-{bonus}") for learner, bonuses in MATRIX.items() for bonus in bonuses
]


class OneOf(eqx.Module):
    """Several bonuses, all of which learn; the one chosen, which is data, pays."""

    which: int
    bonuses: tuple[Bonus, ...]

    @property
    def largest(self) -> Float[Array, ""]:
        return jnp.asarray([bonus.largest for bonus in self.bonuses], float)[self.which]

    def check(self, spec: TaskSpec) -> None:
        for bonus in self.bonuses:
            bonus.check(spec)

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> tuple[Any, ...]:
        return tuple(bonus.init(key, spec) for bonus in self.bonuses)

    def observe(self, state: tuple[Any, ...], newest: Transition) -> tuple[Any, ...]:
        return tuple(bonus.observe(one, newest) for bonus, one in zip(self.bonuses, state, strict=True))

    def reward(self, state: tuple[Any, ...], batch: Transition) -> Float[Array, " batch"]:
        paid = [bonus.reward(one, batch) for bonus, one in zip(self.bonuses, state, strict=True)]
        return jnp.stack(paid)[self.which]

    def learn(
        self, state: tuple[Any, ...], batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], tuple[Any, ...], Float[Array, ""]]:
        learned = [bonus.learn(one, batch, key) for bonus, one in zip(self.bonuses, state, strict=True)]
        paid, states, losses = zip(*learned, strict=True)
        return jnp.stack(paid)[self.which], states, jnp.stack(losses)[self.which]


class Cell(NamedTuple):
    """What came of one learner with one bonus."""

    success: float
    """Share of judged episodes that reach the goal, at the end."""
    start: float
    """Mean raw bonus of the transitions of the whole run, as it was when warm-up ended and nothing had been trained,"""
    end: float
    """and at the end."""
    never: float
    """Mean raw bonus at the end of transitions that no run can make."""


def make_maze(learner: str) -> Any:
    return PointMaze() if learner in ("td3", "sac") else GridMaze()


def make_program(learner: str, bonus: Any, method: str = "hyper", steps: int = 100) -> Program:
    """One run."""
    # Networks learn rewards of order one; under the running RMS that is what beta = 1 pays, whatever the bonus.
    scale = ExplorerReward(BETA, bonus_scale="none" if learner == "tabular_q" else "running-rms")
    lesson = LessonOptions(widths=WIDTHS) if method == "lesson" else None
    return Program(
        task=make_maze(learner),
        learner=LEARNERS_HERE[learner],
        bonus=bonus,
        policies=make_policies(method, P_START, P_END),
        explorer_reward=scale if lesson is None else lesson.explorer_reward(scale),
        streams=Streams.from_seed(SEED),
        budget=jnp.asarray(steps, jnp.int32),
        capacity=steps,
        lesson=lesson,
    )


@cache
def trained(learner: str) -> dict[str, Cell]:
    """Hyper with each bonus that goes with the learner."""
    names, steps = MATRIX[learner], STEPS[learner]
    bonuses = tuple(BONUSES_HERE[name] for name in names)
    program = stack_runs([make_program(learner, OneOf(i, bonuses), steps=steps) for i in range(len(names))])
    loop = DeviceLoop(program, WARMUP)
    loop.advance(0, WARMUP)
    untrained = jax.tree.map(jnp.copy, loop.state.bonus)
    loop.advance(WARMUP, steps)
    never = make_maze(learner).never_made(jax.random.key(1), 500)

    def measure(bonus: Bonus, before: Any, after: Any, rows: Array) -> tuple[Array, Array, Array]:
        made = program.layout.unpack(rows)
        return bonus.reward(before, made).mean(), bonus.reward(after, made).mean(), bonus.reward(after, never).mean()

    measured = jax.jit(jax.vmap(measure))(program.bonus, untrained, loop.state.bonus, loop.state.replay)
    success = loop.judge(0, EPISODES).success
    columns = [np.asarray(column).tolist() for column in (success, *measured)]
    return {name: Cell(*(column[i] for column in columns)) for i, name in enumerate(names)}


@pytest.mark.parametrize(("learner", "bonus"), CELLS)
def test_hyper_learns_in_every_cell(learner: str, bonus: str) -> None:
    assert trained(learner)[bonus].success >= 0.8


@pytest.mark.parametrize(("learner", "bonus"), CELLS)
def test_the_bonus_falls_where_one_has_been_and_stays_high_elsewhere(learner: str, bonus: str) -> None:
    cell = trained(learner)[bonus]
    assert cell.end < cell.start
    assert cell.never > RATIO[bonus] * cell.end


@pytest.mark.parametrize("task", [PointMaze(), GridMaze()], ids=["continuous", "discrete"])
def test_the_mazes_are_not_solved_by_chance(task: Any) -> None:
    """Uniform actions reach the goal in less than 1% of episodes, so what learns has explored."""

    def episode(key: PRNGKeyArray) -> Array:
        def step(t: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            state, solved = carry
            here = jax.random.fold_in(key, t)
            result = task.step(state, random_action(task.spec, here), here)
            return result.state, solved | result.success

        return jax.lax.fori_loop(0, task.horizon, step, (task.reset(key), jnp.zeros((), bool)))[1]

    solved = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 20_000))
    assert 0 < float(solved.mean()) < 0.01


# The other methods.


def shapes_of(tree: Any) -> list[tuple[str, tuple[int, ...], Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf.shape, leaf.dtype) for path, leaf in leaves]


def wired(program: Program, method: str) -> None:
    """One step, update included, hands back a state of the same form, with one learner for each role."""
    program = stack_runs([program])
    zero = jnp.zeros((), jnp.int32)
    state = jax.eval_shape(init_runs, program)
    step = jax.vmap(partial(step_run, learn=True), in_axes=(0, 0, None, None))
    after = jax.eval_shape(step, program, state, zero, zero)
    assert shapes_of(after) == shapes_of(state)
    roles = ROLES[method]  # type: ignore[index]
    assert {leaf.shape[:2] for leaf in jax.tree.leaves(state.learners)} == {(1, len(roles))}
    assert (state.bonus is None) == (method == "exploit") and (state.method is None) == (method != "lesson")


@pytest.mark.parametrize("learner", MATRIX)
def test_exploit_is_wired_with_every_learner(learner: str) -> None:
    wired(make_program(learner, None, "exploit"), "exploit")


@pytest.mark.parametrize(("learner", "bonus"), CELLS)
def test_curiosity_is_wired_in_every_cell(learner: str, bonus: str) -> None:
    wired(make_program(learner, BONUSES_HERE[bonus], "curiosity"), "curiosity")


@pytest.mark.parametrize(("learner", "bonus"), CELLS)
def test_decouple_is_the_program_of_hyper_in_every_cell(learner: str, bonus: str) -> None:
    """Only p differs, which is data: what Hyper compiles to, Decouple runs on."""
    hyper, decouple = (make_program(learner, BONUSES_HERE[bonus], method) for method in ("hyper", "decouple"))
    assert (decouple.policies.p_start, decouple.policies.p_end) == (1.0, 1.0) != (P_START, P_END)
    both = stack_runs([hyper, decouple])  # which refuses what is not the same program
    assert np.asarray(both.policies.p_start).tolist() == pytest.approx([P_START, 1.0])


@pytest.mark.parametrize(("learner", "bonus"), [cell for cell in CELLS if cell.values[0] in ("dqn", "tabular_q")])
def test_lesson_is_wired_in_every_discrete_cell(learner: str, bonus: str) -> None:
    wired(make_program(learner, BONUSES_HERE[bonus], "lesson"), "lesson")


# Wrong pairs.

VECTORS, NUMBERED = Box(2, -1.0, 1.0), Discrete(9)
FORCES, MOVES = Box(1, -1.0, 1.0), Discrete(4)
SPACES = {
    "vectors and forces": TaskSpec("Arena", VECTORS, FORCES, 1),
    "vectors and moves": TaskSpec("Arena", VECTORS, MOVES, 1),
    "numbers and moves": TaskSpec("Arena", NUMBERED, MOVES, 1),
    "numbers and forces": TaskSpec("Arena", NUMBERED, FORCES, 1),
}
FITS = {
    "vectors and forces": {"td3", "sac"},
    "vectors and moves": {"dqn"},
    "numbers and moves": {"dqn", "tabular_q"},
    "numbers and forces": set[str](),
}


@pytest.mark.parametrize("spaces", SPACES)
@pytest.mark.parametrize("learner", MATRIX)
def test_a_learner_that_does_not_fit_is_refused_with_all_that_do(learner: str, spaces: str) -> None:
    spec, fits = SPACES[spaces], FITS[spaces]
    if learner in fits:
        LEARNERS_HERE[learner].check(spec)
        return
    with pytest.raises(UserError) as refused:
        LEARNERS_HERE[learner].check(spec)
    sentence = str(refused.value)
    assert sentence.startswith(f"learner: {learner!r} needs ") and "Arena" in sentence and "\n" not in sentence
    assert fits <= {name for name in LEARNERS if repr(name) in sentence}


@pytest.mark.parametrize("bonus", ["disagreement", "rnd", "icm"])
@pytest.mark.parametrize("spaces", SPACES)
def test_bonuses_with_networks_take_any_spaces(bonus: str, spaces: str) -> None:
    BONUSES_HERE[bonus].check(SPACES[spaces])


def test_counts_of_vectors_without_cells_are_refused_with_what_fits() -> None:
    for spaces in ("vectors and forces", "vectors and moves"):
        with pytest.raises(UserError) as refused:
            Counts().check(SPACES[spaces])
        for word in ("counts.bins", "counts.low", "counts.high", "2 numbers each", "'disagreement'", "'rnd'", "'icm'"):
            assert word in str(refused.value)
        Counts(bins=4, low=(-1.0, -1.0), high=(1.0, 1.0)).check(SPACES[spaces])
    Counts().check(SPACES["numbers and moves"])


def test_lesson_with_a_continuous_learner_is_refused_with_what_fits() -> None:
    with pytest.raises(UserError, match=r"'lesson' needs a finite set of actions.*Arena.*dqn, tabular_q"):
        LessonOptions().check(SPACES["vectors and forces"])
    for spaces in ("vectors and moves", "numbers and moves"):
        LessonOptions().check(SPACES[spaces])

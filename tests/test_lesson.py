"""LESSON in whole runs: what the options do, the same numbers everywhere, and that the better of two is preferred."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int, PRNGKeyArray

from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.rnd import RND
from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import Config, build_program
from hyper_rl.envs.base import Discrete, StepResult, TaskSpec
from hyper_rl.envs.gym_tasks.jax_task import JaxTaskEnv
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_task import HostTask
from hyper_rl.errors import UserError
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.methods.option_critic import largest_share
from hyper_rl.methods.policies import make_policies
from hyper_rl.training.checkpoint import Position, head_sha256, read_newest, write_checkpoint
from hyper_rl.training.device_loop import DeviceLoop, advance_to, init_runs
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.loop import Stored
from hyper_rl.training.program import Program, RunState, Streams
from hyper_rl.training.replay import ReplayLayout
from hyper_rl.types import Transition, stack_runs
from measuring import measure_state

pytestmark = pytest.mark.xdist_group("lesson")  # one process, so that each program compiles once

RANDOM, STICKY, _, TASK = range(4)
ACTIONS, HORIZON = 3, 12
SMALL: dict[str, Any] = {"widths": (16, 16), "batch_size": 32, "lr": 1e-3}


class Bridge(eqx.Module):
    """Three planks, a different one of three actions is right on each. A wrong one falls: the episode ends unpaid.

    With `falls` off a wrong action stays where it is and crossing leads back to the start, so only the limit ends it.
    """

    horizon: int = HORIZON
    falls: bool = eqx.field(static=True, default=True)

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec("bridge", Discrete(3), Discrete(ACTIONS), 3)

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    def step(self, plank: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray) -> StepResult:
        right = action == (plank + 1) % 3
        crossed = right & (plank == 2)
        after = jnp.where(right, (plank + 1) % 3, plank)
        ends = ~right | crossed if self.falls else jnp.zeros((), bool)
        return StepResult(after, crossed.astype(float), ends, crossed)

    def observe(self, plank: Int[Array, ""]) -> Int[Array, ""]:
        return plank

    def cell(self, plank: Int[Array, ""]) -> Int[Array, ""]:
        return plank


def numbers(*values: int) -> Int[Array, "..."]:
    return jnp.asarray(values, jnp.int32)


def program_of(task: Any, lesson: LessonOptions, seed: int, steps: int, **parts: Any) -> Program:
    given = {"learner": TabularQ(), "bonus": Counts(), **parts}
    return Program(
        task=task,
        policies=make_policies("lesson", 0.1, 0.1),
        explorer_reward=lesson.explorer_reward(ExplorerReward(1.0)),
        streams=Streams.from_seed(seed),
        budget=steps,  # type: ignore[arg-type]
        capacity=steps,
        lesson=lesson,
        **given,
    )


# What the options do in a run


ENDS = ((0.0, 0.0), (0.25, 0.25), (1.0, 1.0))  # of an option at each step, one run each
STEPS, WARMUP = 600, 60


def bridge_lessons() -> list[LessonOptions]:
    """They differ in how often options end. All options are chosen about evenly."""
    shared = {"softmax_factor": 1e-3, "rnd_scale": 0.1, "target_every": 7, **SMALL}
    return [LessonOptions(end_low=low, end_high=high, **shared) for low, high in ENDS]


@pytest.fixture
def wide() -> Iterator[None]:
    """Where runs are compared whose products may be tiled differently."""
    with jax.enable_x64(True):
        yield


@cache
def bridge_runs() -> tuple[Program, RunState]:
    """One run of each; only the limit ends an episode."""
    program = stack_runs([program_of(Bridge(falls=False), lesson, 3, STEPS) for lesson in bridge_lessons()])
    return program, jax.device_get(advance_to(program, init_runs(program), 0, STEPS, WARMUP))


def stored(program: Program, state: RunState, run: int) -> Transition:
    """Everything the run has seen, in order: the replay held it all."""
    assert state.replay is not None
    return program.layout.unpack(jnp.asarray(state.replay[run]))


@pytest.mark.usefixtures("wide")
def test_warm_up_is_stored_as_the_random_option() -> None:
    program, state = bridge_runs()
    for run in range(3):
        seen = stored(program, state, run)
        assert seen.option is not None
        assert not np.asarray(seen.option)[:WARMUP].any()
        assert set(np.asarray(seen.action)[:WARMUP].tolist()) == {0, 1, 2}
        assert set(np.asarray(seen.option).tolist()) == {0, 1, 2, 3}


@pytest.mark.usefixtures("wide")
def test_an_option_lasts_and_a_held_action_is_held_until_the_option_ends() -> None:
    """Where options never end by themselves, each episode has one option, and `sticky` one action."""
    program, state = bridge_runs()
    seen = stored(program, state, 0)
    episodes = np.asarray(seen.option).reshape(-1, HORIZON)[WARMUP // HORIZON :]
    # Warm-up's option goes on to the end of the episode it stops in; here it stops at an episode's end.
    assert (episodes == episodes[:, :1]).all()
    assert len(set(episodes[:, 0].tolist())) == 4, "a new one at every start"
    actions = np.asarray(seen.action).reshape(-1, HORIZON)[WARMUP // HORIZON :]
    sticky, random = actions[episodes[:, 0] == STICKY], actions[episodes[:, 0] == RANDOM]
    assert (sticky == sticky[:, :1]).all() and len(set(sticky[:, 0].tolist())) > 1
    assert all(len(set(one.tolist())) > 1 for one in random)
    assert not np.asarray(seen.terminated).any(), "a time limit is not a termination"
    # The first choice of a run is made before its first step, and warm-up makes none.
    assert state.method is not None
    assert state.method.chosen.sum(axis=1)[0] == 1 + (STEPS - WARMUP) // HORIZON


@pytest.mark.usefixtures("wide")
def test_how_often_options_are_chosen_follows_the_termination_probability() -> None:
    _, state = bridge_runs()
    assert state.method is not None
    chosen, steps = state.method.chosen.sum(axis=1) - 1, STEPS - WARMUP
    starts = steps / HORIZON
    assert chosen[2] == steps
    assert chosen[1] == pytest.approx(starts + 0.25 * (steps - starts), abs=40)  # four deviations


@pytest.mark.usefixtures("wide")
def test_the_curve_reports_steps_of_the_task_option_as_repositioning() -> None:
    program, state = bridge_runs()
    measured = measure_state(program, jax.tree.map(jnp.asarray, state), STEPS, 1, 2)
    for run in range(3):
        seen = stored(program, state, run)
        by_task = np.asarray(seen.option) == TASK
        per_episode = by_task.sum() / (STEPS / HORIZON)
        assert float(measured["mean_length"][run]) == pytest.approx(1 + per_episode, rel=1e-5)
        reward = np.asarray(seen.reward) / (STEPS / HORIZON)
        assert float(measured["reposition_return"][run]) == pytest.approx(reward[by_task].sum(), rel=1e-4)
        assert float(measured["explore_return"][run]) == pytest.approx(reward[~by_task].sum(), rel=1e-4)
        assert float(measured["task_share"][run]) == 0.0


def test_the_option_is_a_column_of_the_replay_and_survives_sampling() -> None:
    spec = Bridge().spec
    layout, plain = ReplayLayout.of(spec, 8, with_option=True), ReplayLayout.of(spec, 8)
    assert layout.width == plain.width + 1
    rows = layout.init()
    for i in range(8):
        here = numbers(i % 3)[0]
        one = Transition(here, here, jnp.asarray(float(i), float), here, jnp.asarray(i == 5), numbers(i % 4)[0])
        rows = layout.add(rows, one, jnp.asarray(i, jnp.int32))
    sampled = layout.sample(rows, jax.random.key(1), 64, jnp.asarray(8, jnp.int32))
    assert sampled.option is not None and sampled.option.dtype == jnp.int32
    which = np.asarray(sampled.reward).astype(int)
    assert set(which) == set(range(8))
    np.testing.assert_array_equal(np.asarray(sampled.option), which % 4)
    np.testing.assert_array_equal(np.asarray(sampled.observation), which % 3)
    np.testing.assert_array_equal(np.asarray(sampled.terminated), which == 5)
    assert plain.unpack(plain.init()).option is None


# Resume, runs side by side, both loops


@pytest.mark.usefixtures("wide")
def test_a_checkpoint_holds_all_of_it_bit_by_bit(tmp_path: Path) -> None:
    program, whole = bridge_runs()
    first = DeviceLoop(program, WARMUP)
    first.advance(0, 333)
    curve = tmp_path / "curve.csv"
    curve.write_text("")
    write_checkpoint(tmp_path, first.store(333).tree, Position(333, 0, 0, head_sha256(curve, 0)), keep=1)
    again = DeviceLoop(program, WARMUP)
    loaded = read_newest(tmp_path, again.template, curve, pytest.fail)
    assert loaded is not None
    again.restore(Stored(loaded[0], {}), 333)
    again.advance(333, STEPS)
    names = jax.tree_util.tree_leaves_with_path(whole)
    for (path, a), b in zip(names, jax.tree.leaves(jax.device_get(again.state)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), jax.tree_util.keystr(path)


def difference(one: Any, other: Any) -> float:
    """The largest relative difference of any array, in the Euclidean norm."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        size, off = (float(np.linalg.norm(np.asarray(x, np.float64))) for x in (a, a - b))
        worst = max(worst, off / size if size > 0 else off)
    return worst


def on_the_host(program: Program, task: Bridge, warmup: int, steps: int) -> RunState:
    """The same through real environments. The program's own task only describes them."""
    host = HostLoop(program, EnvSource("wrapped", factory=lambda: JaxTaskEnv(task), horizon=HORIZON), warmup)
    try:
        host.advance(0, steps)
        state: RunState = jax.device_get(host.state)
        return state
    finally:
        host.close()


def assert_same(one: RunState, other: RunState) -> None:
    assert one.method is not None and other.method is not None
    assert np.array_equal(one.method.option, other.method.option)
    assert np.array_equal(one.method.chosen, other.method.chosen)
    for part in ("method", "learners", "bonus", "scales", "replay", "window"):
        assert difference(getattr(one, part), getattr(other, part)) < 1e-9, part


@pytest.mark.usefixtures("wide")
def test_a_run_alone_on_the_host_is_that_of_the_group_on_the_device() -> None:
    """To 1e-9 in float64: option critic and replay included."""
    program, group = bridge_runs()
    described = HostTask(HORIZON, program.spec)
    alone = stack_runs([program_of(described, bridge_lessons()[1], 3, STEPS)])
    host = on_the_host(alone, Bridge(falls=False), WARMUP, STEPS)
    assert_same(host, jax.tree.map(lambda leaf: leaf[1:2], group))
    start = jax.device_get(init_runs(program))
    assert start.method is not None and group.method is not None
    assert difference(start.method.critic, group.method.critic) > 0.01, "nothing was learned, so nothing was shown"


@pytest.mark.long
@pytest.mark.usefixtures("wide")
def test_the_same_with_a_deep_learner_a_deep_bonus_and_training_in_a_branch() -> None:
    learner = DQN(batch_size=16, widths=(16,), epsilon_start=0.0, epsilon_end=0.0)
    parts = {"learner": learner, "bonus": RND(widths=(16,), outputs=8), "train_every": 2}
    lesson = LessonOptions(rnd_scale=0.1, target_every=7, **SMALL)
    device = stack_runs([program_of(Bridge(), lesson, seed, 120, **parts) for seed in (5, 6)])
    alone = stack_runs([program_of(HostTask(HORIZON, device.spec), lesson, 6, 120, **parts)])
    group = jax.device_get(advance_to(device, init_runs(device), 0, 120, 7))
    assert_same(on_the_host(alone, Bridge(), 7, 120), jax.tree.map(lambda leaf: leaf[1:], group))


# The better of two options


def test_the_better_of_two_options_makes_up_over_80_percent_of_selections() -> None:
    """`task` against `random` on the bridge, which `random` crosses once in 27 tries.

    `task` stands second, so min(0.95, 1 - 0.05) = 95% is the most it can get.
    """
    options, steps, last = ("random", "task"), 4_000, 2_000
    lesson = LessonOptions(options=options, **SMALL)  # type: ignore[arg-type]
    program = stack_runs([program_of(Bridge(), lesson, seed, steps) for seed in range(3)])
    half = advance_to(program, init_runs(program), 0, steps - last, 0)
    assert half.method is not None
    before = np.asarray(half.method.chosen)
    state = advance_to(program, half, steps - last, steps, 0)
    assert state.method is not None
    lately = np.asarray(state.method.chosen) - before
    better = lately[:, 1] / lately.sum(axis=1)
    cap = largest_share(1, lesson.select_low, lesson.select_high)
    assert cap == pytest.approx(0.95)
    assert (lately.sum(axis=1) > 500).all()
    assert (better > 0.8).all() and (better < cap + 0.03).all(), better
    # And why: the better one is worth more on every plank and ends less often there.
    said = jax.vmap(lambda critic: critic(numbers(0, 1, 2)))(state.method.critic)
    assert bool((said.values[..., 1] > said.values[..., 0]).all())
    assert bool((said.terminations[..., 1] < said.terminations[..., 0]).all())


# The front door


def config_of(words: str) -> Config:
    return resolve(parse(words.split()))


def test_a_configuration_keeps_the_numbers_and_makes_the_program() -> None:
    words = "CartPole --method lesson --preset minigrid --beta 0.5 2 --steps 1000 --warmup 256 --lesson.rnd-scale 0.1"
    config = config_of(f"{words} --lesson.options random task --lesson.widths 8 8 --lesson.bonus-factor 10")
    again = Config.from_json(config.to_json(), "config.json")
    again.check()
    program = build_program(again)
    assert program.lesson is not None
    assert program.lesson.options == ("random", "task") and program.lesson.widths == (8, 8)
    np.testing.assert_allclose(np.asarray(program.lesson.rnd_scale), [0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(program.explorer_reward.beta), [5.0, 20.0], rtol=1e-6)
    assert program.explorer_reward.bonus_only
    assert config.learner_options["epsilon_start"] == config.learner_options["epsilon_end"] == 0.0
    other = config_of("CartPole --method hyper --steps 1000")
    assert other.method_options == {} and build_program(other).lesson is None
    old = json.loads(other.to_json())
    del old["method_options"]
    assert Config.from_json(json.dumps(old), "config.json").to_json() == other.to_json(), "files from before"


def test_a_table_gets_a_replay_for_the_option_critic() -> None:
    config = config_of("Room --method lesson --steps 1000")
    program = build_program(config)
    assert (config.capacity, program.batch_size, program.learner.batch_size) == (1000, 256, 0)
    plain = build_program(config_of("Room --method hyper --steps 1000"))
    assert plain.batch_size == 0 and not plain.needs_replay


@pytest.mark.parametrize("learner", ["td3", "sac", "dqn"])
def test_continuous_actions_are_refused_with_what_fits(learner: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Pendulum", "--method", "lesson", "--learner", learner]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "method: 'lesson'" in said and "a discrete learner: dqn, tabular_q" in said


def test_options_of_lesson_are_refused_for_another_method() -> None:
    with pytest.raises(UserError, match=r"lesson\.lr"):
        config_of("CartPole --method hyper --lesson.lr 0.5")

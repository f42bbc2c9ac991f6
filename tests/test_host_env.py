"""Any Gymnasium environment behind one interface: what is converted, what is refused, what is caught."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import Autoreset, TimeLimit

from hyper_rl.envs.base import Box, Discrete
from hyper_rl.envs.host_env import EnvSource, HostEnv, TaskFailure, describe
from hyper_rl.errors import UserError
from toy_envs import LIMIT, Nested, Reusing, Steps, Still, Walk, image


def source(make: Callable[[], Any], **options: Any) -> EnvSource:
    return EnvSource("toy", factory=make, **{"horizon": LIMIT, **options})


def opened(make: Callable[[], Any], **options: Any) -> HostEnv:
    env = source(make, **options).make()
    env.reset(7)
    return env


# Observations


def test_a_box_is_one_vector() -> None:
    assert describe(EnvSource("toy/Walk-v0")).task.observation == Box(3, -np.inf, np.inf)
    env = opened(lambda: Still(spaces.Box(-1, 1, (2, 3), np.float32)))
    assert env.spec.task.observation == Box(6, -np.inf, np.inf)
    seen = env.step(0).observation
    assert seen.shape == (6,) and seen.dtype == np.float64
    scalar = opened(lambda: Still(spaces.Box(-1, 1, (), np.float32)))
    assert scalar.step(0).observation.shape == (1,)


def test_an_observation_is_a_copy() -> None:
    env = opened(Reusing)
    first = env.step(np.zeros(2)).observation
    kept = first.copy()
    env.step(np.ones(2))
    np.testing.assert_array_equal(first, kept)


def test_values_outside_the_declared_bounds_are_allowed() -> None:
    class Outside(Still):
        def step(self, action: Any) -> Any:
            return np.array([50.0, -50.0], np.float32), 0.0, False, False, {}

    np.testing.assert_array_equal(opened(Outside).step(0).observation, [50.0, -50.0])


def test_huge_numbers_are_finite_as_far_as_float32_goes() -> None:
    class Huge(Still):
        def step(self, action: Any) -> Any:
            return np.array([3.4e38, 3.4e38]), 0.0, False, False, {}

    assert np.isfinite(opened(Huge).step(0).observation).all()


def test_discrete_is_counted_from_0() -> None:
    env = opened(Steps)
    assert env.spec.task.observation == Discrete(5) and env.spec.task.action == Discrete(2)
    first = env.reset(0)
    assert first.shape == () and first.dtype == np.int64
    up = env.step(1)
    assert up.observation == first + 1
    assert env.step(np.asarray(0, np.int32)).observation == first


def test_a_nest_of_spaces_is_what_gymnasium_makes_of_it() -> None:
    toy = Nested()
    env = source(lambda: toy).make()
    assert env.spec.task.observation == Box(4 + 3 + 2 + 6, -np.inf, np.inf)
    for seed in range(20):
        seen = env.reset(seed)
        np.testing.assert_array_equal(seen, gymnasium.spaces.flatten(toy.observation_space, toy.drawn))
        seen = env.step(0).observation
        np.testing.assert_array_equal(seen, gymnasium.spaces.flatten(toy.observation_space, toy.drawn))
        assert seen.dtype == np.float64


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([3, 2], start=[1, 7]),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
        spaces.MultiBinary((2, 3)),
        spaces.Tuple((spaces.Discrete(4, start=-2), spaces.Box(0, 1, (3,)), spaces.Tuple((spaces.MultiBinary(1),)))),
        spaces.Dict(b=spaces.Discrete(2), a=spaces.Box(0, 255, (4,), np.uint8), c=spaces.Dict(d=spaces.Box(0, 1, ()))),
    ],
)
def test_flattening_is_gymnasiums(space: Any) -> None:
    class Kept(Still):
        shown: Any = None

        def step(self, action: Any) -> Any:
            self.shown = space.sample()
            return self.shown, 0.0, False, False, {}

    toy = Kept(space)
    env = source(lambda: toy).make()
    env.reset(3)
    for _ in range(10):
        seen = env.step(0).observation
        np.testing.assert_array_equal(seen, gymnasium.spaces.flatten(space, toy.shown))
        assert seen.shape == (gymnasium.spaces.flatdim(space),)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (image((2, 2, 8, 8, 3)), ("observation space", "an image", "(2, 2, 8, 8, 3)", "must have two axes")),
        (spaces.Dict(view=image(), speed=spaces.Box(0, 1, (1,))), ("observation space['view']", "an image", "wrapper")),
        (spaces.Tuple((spaces.Discrete(2), image())), ("observation space[1]", "an image")),
        (spaces.Text(5), ("observation space", "Text", "must be Box, Discrete")),
        (spaces.Dict(mission=spaces.Text(5)), ("observation space['mission']", "Text")),
        (spaces.Sequence(spaces.Discrete(2)), ("Sequence", "must be")),
        (spaces.Graph(spaces.Box(0, 1, (1,)), None), ("Graph", "must be")),
        (spaces.OneOf((spaces.Discrete(2), spaces.Discrete(3))), ("OneOf", "must be")),
        (spaces.Box(-1, 1, (0,)), ("observation space", "holds no numbers")),
        (spaces.Dict(), ("observation space", "holds no numbers")),
    ],
)
def test_observations_that_cannot_be_learnt_from_are_refused(space: Any, says: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        describe(source(lambda: Still(space)))
    for part in ("environment toy", *says):
        assert part in str(error.value)


def test_bytes_in_a_row_are_no_image() -> None:
    assert describe(source(lambda: Still(image((128,))))).task.observation == Box(128, -np.inf, np.inf)


# Actions


def acted(space: Any, action: Any) -> Any:
    toy = Still(action_space=space)
    opened(lambda: toy).step(action)
    return toy.actions[-1]


def test_actions_are_mapped_on_the_bounds() -> None:
    space = spaces.Box(np.array([-2.0, 0.0, 5.0]), np.array([4.0, 1.0, 5.0]), dtype=np.float64)
    assert describe(source(lambda: Still(action_space=space))).task.action == Box(3, -1.0, 1.0)
    np.testing.assert_array_equal(acted(space, np.array([-1.0, -1.0, -1.0])), space.low)
    np.testing.assert_array_equal(acted(space, np.array([1.0, 1.0, 1.0])), space.high)
    np.testing.assert_array_equal(acted(space, np.array([0.0, 0.5, 0.0])), [1.0, 0.75, 5.0])


def test_bounds_of_one_change_nothing() -> None:
    for dtype in (np.float32, np.float64):
        actions = np.random.default_rng(0).uniform(-1, 1, 50).astype(dtype)
        given = acted(spaces.Box(-1.0, 1.0, (50,), dtype), actions)
        assert given.dtype == dtype
        np.testing.assert_array_equal(given, actions)
        given[:] = 0  # the environment may do with it what it likes
        assert actions.any()


def test_an_action_has_the_dtype_and_shape_of_its_space() -> None:
    space = spaces.Box(-3.0, 3.0, (2, 2), np.float32)
    given = acted(space, np.array([1.0, -1.0, 0.5, 0.0]))
    assert space.contains(given) and given.dtype == np.float32
    np.testing.assert_array_equal(given, [[3.0, -3.0], [1.5, 0.0]])
    whole = spaces.Box(0, 10, (3,), np.int64)
    np.testing.assert_array_equal(acted(whole, np.array([-1.0, 0.15, 1.0])), [0, 6, 10])


def test_the_ends_stay_within_the_bounds() -> None:
    """Centre and half width are rounded; the sum of the two may be one bit beyond the bound."""
    rng = np.random.default_rng(1)
    low = -rng.uniform(0, 1, 500)
    space = spaces.Box(low, low + rng.uniform(0, 1, 500), dtype=np.float64)
    centre, half = low / 2 + space.high / 2, space.high / 2 - low / 2
    assert (centre + half > space.high).any(), "the case that this test is about"
    for end in (-1.0, 1.0):
        assert space.contains(acted(space, np.full(500, end)))


def test_a_choice_is_counted_from_0() -> None:
    given = acted(spaces.Discrete(3, start=-4), np.asarray(2, np.int32))
    assert given == -2 and isinstance(given, np.int64)


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (spaces.Box(np.array([-1.0, -np.inf]), np.array([1.0, 1.0])), ("dimension 1", "lower bound -inf", "finite")),
        (spaces.Box(-1.0, np.inf, (3,)), ("dimension 0", "upper bound inf", "finite")),
        (spaces.MultiDiscrete([2, 2]), ("MultiDiscrete", "must be Box with finite bounds, or Discrete")),
        (spaces.Dict(a=spaces.Discrete(2)), ("Dict", "must be Box")),
        (spaces.MultiBinary(3), ("MultiBinary", "must be Box")),
        (spaces.Box(-1.0, 1.0, (0,)), ("holds no numbers",)),
    ],
)
def test_actions_that_cannot_be_chosen_are_refused(space: Any, says: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        describe(source(lambda: Still(action_space=space)))
    for part in ("environment toy", "action space", *says):
        assert part in str(error.value)


# Episode limits


def test_the_tasks_own_limit() -> None:
    assert describe(EnvSource("toy/Walk-v0")).horizon == LIMIT
    assert describe(EnvSource("toy/Walk-v0", {"max_episode_steps": 99})).horizon == 99
    assert describe(EnvSource("toy", factory=lambda: TimeLimit(TimeLimit(Walk(), 12), 40))).horizon == 12
    with pytest.raises(UserError, match="states no episode limit"):  # the wrapper that cuts is gone
        describe(EnvSource("toy", factory=lambda: gymnasium.make("toy/Walk-v0").unwrapped))


def test_a_task_without_a_limit_needs_one() -> None:
    with pytest.raises(UserError, match="toy/Endless-v0: states no episode limit; give one with --horizon"):
        describe(EnvSource("toy/Endless-v0"))
    assert describe(EnvSource("toy/Endless-v0", horizon=50)).horizon == 50


def test_a_shorter_limit_cuts_and_a_longer_one_is_refused() -> None:
    env = EnvSource("toy/Walk-v0", horizon=4).make()
    env.reset(0)
    assert [env.step(-np.ones(2)).truncated for _ in range(4)] == [False, False, False, True]
    env.reset(1)
    assert not env.step(-np.ones(2)).truncated
    with pytest.raises(UserError, match=r"horizon: got 31, must be at most 30.*--env.max_episode_steps"):
        describe(EnvSource("toy/Walk-v0", horizon=31))
    with pytest.raises(UserError, match="horizon: got 0, must be a whole number >= 1"):
        EnvSource("toy/Walk-v0", horizon=0)


# What a step reports


def test_success_rules() -> None:
    assert [_ends(rule) for rule in ("info", "terminated", "reward")] == [(True, True)] * 3
    assert not opened(Still, success="info").step(0).success
    assert not opened(Still, success="terminated").step(0).success
    with pytest.raises(UserError, match="success: unknown 'luck'"):
        EnvSource("toy", success="luck")  # type: ignore[arg-type]


def _ends(rule: Any) -> tuple[bool, bool]:
    env = opened(Walk, success=rule, horizon=1000)
    steps = [env.step(np.ones(2))]
    while not steps[-1].terminated:
        steps.append(env.step(np.ones(2)))
    assert not any(step.success for step in steps[:-1])
    return steps[-1].success, steps[-1].terminated


def test_cells() -> None:
    env = opened(Steps)
    assert env.spec.task.cells == 5 and env.spec.task.grid == (1, 5)
    first = int(env.reset(3))
    assert env.cell == first
    assert env.step(1).cell == first + 1
    plain = opened(Walk)
    assert plain.spec.task.cells == 1 and plain.spec.task.grid is None and plain.step(np.zeros(2)).cell == 0


def test_the_same_seed_is_the_same_episode() -> None:
    def episode(env: HostEnv, seed: int) -> list[np.ndarray]:
        return [env.reset(seed), *(env.step(np.full(2, 0.1 * k)).observation for k in range(5))]

    env, other = opened(Walk), opened(Walk)
    first = episode(env, 5)
    assert not np.array_equal(first[0], episode(env, 6)[0])
    for again in (episode(env, 5), episode(other, 5)):
        np.testing.assert_array_equal(first, again)


# Faults


FAULTS: list[tuple[str, tuple[str, ...]]] = [
    ("nan", ("observation[2] is nan",)),
    ("infinity", ("observation[0] is -inf",)),
    ("shape", ("observation has shape (2,), declared (3,)",)),
    ("words", ("observation has dtype", "must be real numbers")),
    ("crash", ("step raised KeyError: 'the motor fell off'", "toy_envs.py, line ")),
    ("four", ("not enough values to unpack", "step must return (observation, reward, terminated, truncated, info)")),
    ("nothing", ("step must return (observation, reward, terminated, truncated, info)",)),
    ("reward", ("reward is inf",)),
    ("rewards", ("reward is array([1.])", "must be one real number")),
    ("no reward", ("reward is None", "must be one real number")),
    ("flag", ("terminated is None", "must be True or False")),
    ("info", ("info is ['success']", "must be a dict")),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS)
def test_a_fault_names_environment_seed_step_and_value(fault: str, says: tuple[str, ...]) -> None:
    env = EnvSource("toy/Walk-v0", {"fault": fault, "at": 3}).make()
    env.reset(11)
    env.step(np.zeros(2))
    env.step(np.zeros(2))
    with pytest.raises(TaskFailure) as error:
        env.step(np.zeros(2))
    said = str(error.value)
    assert said.startswith("environment toy/Walk-v0, episode seed 11, step 3: ") and "\n" not in said
    for part in says:
        assert part in said


@pytest.mark.parametrize(("fault", "says"), [("four", "step returned (array(["), ("nothing", "step returned None")])
def test_a_step_of_the_old_kind_without_wrappers(fault: str, says: str) -> None:
    env = opened(lambda: Walk(fault, at=1))
    with pytest.raises(TaskFailure) as error:
        env.step(np.zeros(2))
    assert says in str(error.value) and "must be (observation, reward, terminated, truncated, info)" in str(error.value)


@pytest.mark.parametrize(
    ("fault", "says"),
    [("nan", "observation[2] is nan"), ("crash", "reset raised KeyError"), ("nothing", "reset returned None")],
)
def test_a_fault_at_reset(fault: str, says: str) -> None:
    with pytest.raises(TaskFailure) as error:
        EnvSource("toy/Walk-v0", {"fault": fault, "at": 0}).make().reset(11)
    assert str(error.value).startswith(f"environment toy/Walk-v0, episode seed 11, at reset: {says}")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("nan", "observation['place'][1, 0] is nan"),
        ("shape", "observation['place'] has shape (2,), declared (2, 2)"),
        ("missing", "observation['mode'] is missing"),
        ("choice", "observation['mode'] is 0, outside the declared choices"),
        ("choices", "observation['inner'][1] is array([0, 9]), outside the declared choices"),
        ("fraction", "observation['mode'] has dtype float64, must be whole numbers"),
    ],
)
def test_a_fault_inside_a_nest_is_named(fault: str, says: str) -> None:
    env = opened(lambda: Nested(fault))
    with pytest.raises(TaskFailure) as error:
        env.step(0)
    assert says in str(error.value)


def test_a_choice_that_is_none() -> None:
    env = opened(lambda: Steps(wrong=10))
    with pytest.raises(TaskFailure, match=r"step 1: observation is 10, must be between 5 and 9"):
        env.step(0)


def test_a_reset_without_a_seed_is_named() -> None:
    with pytest.raises(TaskFailure, match=r"at reset: reset raised TypeError.*seed"):
        EnvSource("toy/OneWay-v0").make().reset(0)


def test_a_diverged_learner_is_not_blamed_on_the_environment() -> None:
    env = opened(Walk)
    with pytest.raises(TaskFailure, match=r"observation\[0\] is nan.*action\[0\] is nan\): the learner has diverged"):
        env.step(np.array([np.nan, 0.0]))


def test_a_failure_keeps_its_traceback_on_the_way_between_processes() -> None:
    env = EnvSource("toy/Walk-v0", {"fault": "crash", "at": 1}).make()
    env.reset(2)
    with pytest.raises(TaskFailure) as error:
        env.step(np.zeros(2))
    copy = ForkingPickler.loads(ForkingPickler.dumps(error.value))
    assert str(copy) == str(error.value) and (copy.seed, copy.step) == (2, 1)
    assert "the motor fell off" in copy.__notes__[0] and "Traceback" in copy.__notes__[0]


def test_an_interrupt_passes_through() -> None:
    env = EnvSource("toy/Walk-v0", {"fault": "interrupt", "at": 1}).make()
    env.reset(0)
    with pytest.raises(KeyboardInterrupt):
        env.step(np.zeros(2))


# Making one


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: gymnasium.make_vec("CartPole-v1", 2), ("a vector environment", "must be a single one")),
        (lambda: Autoreset(Walk()), ("resets itself", "Autoreset")),
        (lambda: "Walk", ("a str", "must be a gymnasium.Env")),
        (lambda: Walk(colour="red"), ("cannot be made", "TypeError", "colour")),  # type: ignore[call-arg]
    ],
)
def test_what_is_no_single_environment_is_refused(wrong: Any, says: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        describe(source(wrong))
    for part in ("environment toy", *says):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (EnvSource("Pendulm-v1"), ("unknown 'Pendulm-v1'", "Pendulum-v1", "--env-module")),
        (EnvSource("toy/Wlak-v0"), ("unknown 'toy/Wlak-v0'", "toy/Walk-v0")),
        (EnvSource("nosuchmodule:Thing-v0"), ("unknown 'nosuchmodule:Thing-v0'", "nosuchmodule")),
        (EnvSource("qqqqqqq"), ("unknown 'qqqqqqq'",)),
        (EnvSource("toy/Walk-v0", {"colour": "red"}), ("toy/Walk-v0", "cannot be made", "colour")),
        (EnvSource("toy/Walk-v0", module="no.such.module"), ("env_module", "'no.such.module'", "No module named 'no'")),
    ],
)
def test_an_environment_that_cannot_be_made_is_one_line(wanted: EnvSource, says: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as error:
        describe(wanted)
    assert "\n" not in str(error.value)
    for part in says:
        assert part in str(error.value)


def test_a_module_in_the_current_folder_registers_an_id(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'import gymnasium, toy_envs\ngymnasium.register("mine/Walk-v0", toy_envs.Walk, max_episode_steps=8)\n'
    (tmp_path / "my_own_walk.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert describe(EnvSource("mine/Walk-v0", module="my_own_walk")).horizon == 8


def test_without_gymnasium_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UserError, match=r"needs an optional package: pip install 'hyper-rl\["):
        describe(EnvSource("Pendulum-v1"))


def test_arguments_for_a_factory_are_refused() -> None:
    with pytest.raises(UserError, match="must be left out with a factory"):
        EnvSource("toy", {"at": 3}, factory=Walk)


def test_one_of_gymnasiums_own() -> None:
    spec = describe(EnvSource("Pendulum-v1"))
    assert (spec.task.observation, spec.task.action, spec.horizon) == (Box(3, -np.inf, np.inf), Box(1, -1.0, 1.0), 200)
    env = EnvSource("Pendulum-v1").make()
    mine, theirs = env.reset(4), gymnasium.make("Pendulum-v1")
    np.testing.assert_array_equal(mine, np.asarray(theirs.reset(seed=4)[0], np.float64))
    for torque in (-1.0, 0.3, 1.0):
        step = env.step(np.array([torque]))
        raw, reward, *_ = theirs.step(np.array([2 * torque], np.float32))
        np.testing.assert_array_equal(step.observation, np.asarray(raw, np.float64))
        assert step.reward == reward


def test_a_worker_needs_no_jax() -> None:
    program = (
        "import sys, hyper_rl.envs.worker_pool as w\n"
        "w.EnvSource('Pendulum-v1').make().reset(0)\n"
        "print([name for name in ('jax', 'jaxtyping', 'equinox') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

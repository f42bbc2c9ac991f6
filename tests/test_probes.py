"""Both learners answer every probe question, and bootstrap through time limits but not through termination."""

from __future__ import annotations

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from hyper_rl.envs.base import StepResult, TaskSpec
from hyper_rl.envs.probes import BEST_ACTION, LAST_STEP, PROBES, Probe, ProbeState, Question
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.policies import make_policies
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.program import Program, Streams
from hyper_rl.types import stack_runs

# One worker runs them all, because they share what was learned.
pytestmark = pytest.mark.xdist_group("probes")

STEPS, WARMUP, SEEDS = 6000, 200, (0, 1)
KEY = jax.random.key(0)
QUESTIONS = list(LAST_STEP)
# (step, sign) of the four observations a probe has, as a table and as a network see them.
CELLS = jnp.arange(4, dtype=jnp.int32)
POINTS = jnp.asarray([[0, -1], [0, 1], [1, -1], [1, 1]], float)
# Value of the first observation with sign -1, with sign +1, and of the second observation where it has one value.
ANSWERS: dict[Question, tuple[float, float, float | None]] = {
    "Constant": (1.0, 1.0, None),
    "Observation": (-1.0, 1.0, None),
    "Discount": (0.99, 0.99, 1.0),
    "Action": (1.0, 1.0, None),
    "Credit": (0.99, 0.99, None),
}


class Endless(eqx.Module):
    """Reward 1 at every step, for ever: what the loop and the learner make of limits is all that matters.

    The position moves by `stride`; `ends` makes every step terminate. Episodes begin as a probe's do.
    """

    stride: int = eqx.field(static=True)
    ends: bool = eqx.field(static=True)
    discrete: bool = eqx.field(static=True)

    def step(self, state: ProbeState, action: Shaped[Array, "..."], key: PRNGKeyArray) -> StepResult:
        moved = ProbeState(jnp.minimum(state.step + self.stride, 3), state.sign, state.quality)
        return StepResult(moved, jnp.ones((), float), jnp.asarray(self.ends), jnp.zeros((), bool))

    def observe(self, state: ProbeState) -> Shaped[Array, "..."]:
        return state.step if self.discrete else jnp.stack([state.step.astype(float), state.sign])

    def cell(self, state: ProbeState) -> Shaped[Array, ""]:
        return state.step


class OneOf(eqx.Module):
    """Many tasks as one whose choice is data, so that they are runs of one compiled program."""

    which: int
    horizon: int
    discrete: bool = eqx.field(static=True)

    @property
    def tasks(self) -> list[Any]:
        probes = [Probe(question, self.discrete) for question in QUESTIONS]
        stays, ends, walks = (Endless(*case, self.discrete) for case in ((0, False), (0, True), (1, False)))
        return [*probes, stays, ends, walks]

    @property
    def spec(self) -> TaskSpec:
        return Probe("Constant", self.discrete).spec

    def chosen(self, answers: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[self.which], *answers)

    def reset(self, key: PRNGKeyArray) -> ProbeState:
        # They all begin alike; drawing once keeps the program small.
        return Probe("Constant", self.discrete).reset(key)

    def step(self, state: ProbeState, action: Shaped[Array, "..."], key: PRNGKeyArray) -> StepResult:
        return self.chosen([task.step(state, action, key) for task in self.tasks])

    def observe(self, state: ProbeState) -> Shaped[Array, "..."]:
        return self.chosen([task.observe(state) for task in self.tasks])

    def cell(self, state: ProbeState) -> Shaped[Array, ""]:
        return self.chosen([task.cell(state) for task in self.tasks])


# Name of each case: its place in `OneOf.tasks` and its time limit.
CASES: dict[str, tuple[int, int]] = {str(question): (place, 10) for place, question in enumerate(QUESTIONS)} | {
    "cut after five": (5, 5),
    "cut after every step": (5, 1),
    "terminates": (6, 5),
    "walks two steps": (7, 2),
}


@cache
def learned(discrete: bool) -> dict[str, tuple[Any, Any]]:
    """Of each case, estimated values and judged actions, [seeds, observations] each; the cases are one program.

    The probes discount by 0.99; where there is no end, tables discount by 0.9 and networks by 0.5.
    """
    policies, budget = make_policies("exploit", 1.0, 1.0), jnp.asarray(STEPS, jnp.int32)
    programs = []
    for name, (place, horizon) in CASES.items():
        gamma = 0.99 if name in QUESTIONS else 0.9 if discrete else 0.5
        task: Any = OneOf(place, horizon, discrete)
        learner: Any = TabularQ(gamma=gamma)
        if not discrete:
            learner = TD3(gamma=gamma, lr=1e-3, batch_size=64, widths=(32, 32), tau=0.01)
        programs += [
            Program(task, learner, None, policies, ExplorerReward(0.0), Streams.from_seed(seed), budget, STEPS)
            for seed in SEEDS
        ]
    program = stack_runs(programs)
    state = advance_to(program, init_runs(program), 0, STEPS, WARMUP)
    observations = CELLS if discrete else POINTS

    def of_run(learner: Any, one: Any) -> tuple[Array, Array]:
        estimates = jax.vmap(lambda o: learner.estimate(one, o))(observations)
        return estimates, jax.vmap(lambda o: learner.judge(one, o, KEY))(observations)

    task_learner = jax.tree.map(lambda leaf: leaf[:, 0], state.learners)
    values, actions = jax.jit(jax.vmap(of_run))(program.learner, task_learner)
    shape = (len(CASES), len(SEEDS), 4)
    both = zip(np.asarray(values).reshape(shape), np.asarray(actions).reshape(shape), strict=True)
    return dict(zip(CASES, both, strict=True))


def check_values(question: Question, values: Float[np.ndarray, "seeds 4"], tolerance: float) -> None:
    first_minus, first_plus, second = ANSWERS[question]
    np.testing.assert_allclose(values[:, 0], first_minus, atol=tolerance)
    np.testing.assert_allclose(values[:, 1], first_plus, atol=tolerance)
    if second is not None:
        np.testing.assert_allclose(values[:, 2:], second, atol=tolerance)


@pytest.mark.parametrize("question", QUESTIONS)
def test_tabular_q_answers(question: Question) -> None:
    values, actions = learned(True)[question]
    check_values(question, values, 1e-3)
    if question in ("Action", "Credit"):
        assert (actions[:, :2] == 1).all()


@pytest.mark.parametrize("question", QUESTIONS)
def test_td3_answers(question: Question) -> None:
    values, actions = learned(False)[question]
    check_values(question, values, 0.1)
    if question in ("Action", "Credit"):
        np.testing.assert_allclose(actions[:, :2], BEST_ACTION, atol=0.1)


@pytest.mark.parametrize(
    ("case", "value"), [("cut after five", 10.0), ("cut after every step", 10.0), ("terminates", 1.0)]
)
def test_tabular_q_bootstraps_through_time_limits_only(case: str, value: float) -> None:
    """1 / (1 - 0.9) through any limit, 1 when every step terminates."""
    np.testing.assert_allclose(learned(True)[case][0][:, 0], value, rtol=1e-4)


@pytest.mark.parametrize(
    ("case", "value"), [("cut after five", 2.0), ("cut after every step", 2.0), ("terminates", 1.0)]
)
def test_td3_bootstraps_through_time_limits_only(case: str, value: float) -> None:
    """1 / (1 - 0.5) through any limit, 1 when every step terminates."""
    np.testing.assert_allclose(learned(False)[case][0][:, :2], value, atol=0.1)


def test_the_true_next_observation_is_stored_at_a_time_limit() -> None:
    # 0 -> 1 -> 2 with a limit of 2: position 2 is seen as a next observation but never acted in, so its value stays at
    # its start of 0 and V(1) = 1, V(0) = 1 + 0.9. Had the observation after the reset been stored, both would be 10.
    values, _ = learned(True)["walks two steps"]
    np.testing.assert_allclose(values, [[1.9, 1.0, 0.0, 0.0]] * len(SEEDS), rtol=1e-4)


@pytest.mark.parametrize("discrete", [True, False])
@pytest.mark.parametrize("question", QUESTIONS)
def test_probes_pay_what_they_say(question: Question, discrete: bool) -> None:
    """Two actions, best then worst: quality 1 then 0, or 1 then 1 - 1.5^2 = -1.25."""
    task = PROBES[f"Probe{question}{'-Discrete' if discrete else ''}"].make()
    best, worst = [1, 0] if discrete else [[BEST_ACTION], [-1.0]]
    paid = {"Constant": 1.0, "Observation": None, "Discount": 1.0, "Action": 1.0, "Credit": 1.0}[question]
    for seed in range(4):
        state = task.reset(jax.random.key(seed))
        sign = float(state.sign)
        assert sign in (-1.0, 1.0)
        for t, action in enumerate((best, worst)[: LAST_STEP[question] + 1]):
            result = task.step(state, jnp.asarray(action, jnp.int32 if discrete else float), KEY)
            last = t == LAST_STEP[question]
            assert bool(result.terminated) == last
            assert float(result.reward) == pytest.approx((sign if paid is None else paid) if last else 0.0)
            assert 0 <= int(task.cell(result.state)) < 4
            state = result.state


def test_probes_begin_with_either_sign() -> None:
    states = jax.vmap(Probe("Observation").reset)(jax.random.split(KEY, 1000))
    assert 0.4 < float((np.asarray(states.sign) > 0).mean()) < 0.6


def test_credit_probe_shows_the_second_step_what_the_first_did() -> None:
    """One-step backups can only credit what the observation tells: without this the question has no answer."""
    cases: list[tuple[bool, Any, Any]] = [(True, 0, 1), (False, [BEST_ACTION], [-1.0])]
    for discrete, *actions in cases:
        task = Probe("Credit", discrete)
        start = task.reset(KEY)
        kind = jnp.int32 if discrete else float
        one, other = (task.observe(task.step(start, jnp.asarray(a, kind), KEY).state) for a in actions)
        assert not np.array_equal(one, other)

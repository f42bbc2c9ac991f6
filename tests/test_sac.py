"""SAC: its density against independent formulas, its losses and temperature by hand, the probe questions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float
from scipy import integrate, stats

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.envs.probes import BEST_ACTION, LAST_STEP, Probe, Question
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner, UpdateInfo
from hyper_rl.learners.sac import SAC, SACState, actor_loss, gaussian, sample, squashed_log_prob, temperature_loss
from hyper_rl.networks import MLP, adam_init
from hyper_rl.threefry import make_key
from hyper_rl.types import Transition, stack_runs

KEY = make_key(0)
ZERO = jnp.zeros((), float)
SPEC = TaskSpec("line", Box(1, -1.0, 1.0), Box(1, -1.0, 1.0), 1)
QUESTIONS = list(LAST_STEP)
# The learner is data, so one compilation serves every test whose networks and batch have the same shape.
UPDATE = jax.jit(SAC.update)


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def affine(weight: list[list[float]], *bias: float) -> MLP:
    return MLP((array(*weight),), (array(*bias),), False)


def actor_of(mean: float, log_std: float, slope: float = 0.0) -> MLP:
    """mean + slope s and a constant log-deviation."""
    return affine([[slope, 0.0]], mean, log_std)


def critics_of(*members: tuple[float, float]) -> MLP:
    """Q_j = value + slope a for each (value, slope)."""
    both = [affine([[0.0], [slope]], value) for value, slope in members]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *both)


NOTHING = critics_of((0.0, 0.0), (0.0, 0.0))


def state_of(actor: MLP, critics: MLP = NOTHING, target: MLP = NOTHING, temperature: float = 1.0) -> SACState:
    log_temperature = jnp.log(jnp.asarray(temperature, float))
    optimisers = (adam_init(actor), adam_init(critics), adam_init(log_temperature))
    return SACState(actor, critics, target, log_temperature, *optimisers)


def batch_of(count: int, *, terminated: bool = False) -> Transition:
    zeros = jnp.zeros((count, 1), float)
    return Transition(zeros, zeros, jnp.full((count,), -50.0, float), zeros, jnp.full((count,), terminated))


def update(
    learner: SAC, state: SACState, *, reward: float = 0.0, count: int = 64, terminated: bool = False
) -> tuple[SACState, UpdateInfo]:
    """The reward given replaces the batch's own of -50."""
    batch, rewards = batch_of(count, terminated=terminated), jnp.full((count,), reward, float)
    return UPDATE(learner, state, batch, rewards, KEY, jnp.ones((), jnp.int32))


def leaves_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def density(a: Any, mean: Any, std: Any) -> Any:
    """Change of variables, written with the inverse: p(a) = N(artanh a) / (1 - a^2)."""
    return stats.norm.pdf(np.arctanh(a), mean, std) / (1 - np.square(a))


def test_log_density_is_that_of_the_change_of_variables() -> None:
    rng = np.random.default_rng(0)
    mean, log_std, noise = rng.normal(size=(50, 3)), rng.uniform(-3, 1, (50, 3)), rng.normal(size=(50, 3))
    u = np.clip(mean + np.exp(log_std) * noise, -6, 6)  # beyond, artanh itself loses digits
    noise = (u - mean) / np.exp(log_std)
    with jax.enable_x64(True):
        got = squashed_log_prob(jnp.asarray(u), jnp.asarray(noise), jnp.asarray(log_std))
    expected = np.log(density(np.tanh(u), mean, np.exp(log_std))).sum(axis=1)
    np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-9)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-0.3, -3.0)])
def test_density_integrates_to_one_over_the_actions(mean: float, log_std: float) -> None:
    with jax.enable_x64(True):
        u = jnp.linspace(-9.0, 9.0, 200_001)[:, None]
        noise, logs = (u - mean) / np.exp(log_std), jnp.full_like(u, log_std)
        p, a = np.exp(np.asarray(squashed_log_prob(u, noise, logs))), np.tanh(np.asarray(u))[:, 0]
    assert integrate.trapezoid(p, a) == pytest.approx(1.0, abs=1e-6)


def test_log_density_is_exact_where_tanh_has_reached_one() -> None:
    # log(1 - tanh(u)^2) = log 4 - 2|u| to all digits from |u| = 20 on; float32 has tanh(u) = 1 from 9 on.
    for u in (-300.0, -20.0, 20.0, 300.0):
        got = squashed_log_prob(array([u]), array([0.0]), array([0.0]))
        assert float(got[0]) == pytest.approx(-0.5 * np.log(2 * np.pi) - np.log(4.0) + 2 * abs(u), rel=1e-6)


@pytest.mark.parametrize("mean", [-60.0, 60.0])
@pytest.mark.parametrize("log_std", [-25.0, 5.0])
def test_gradients_are_finite_at_saturated_actions(mean: float, log_std: float) -> None:
    """Both beyond the bounds of the log-deviation too."""
    state = state_of(actor_of(mean, log_std, slope=3.0), critics_of((0.0, 2.0), (1.0, -2.0)))
    grads, log_prob = jax.grad(actor_loss, has_aux=True)(
        state.actor, state.critics, array([1.0], [-1.0]), array([0.5], [-3.0]), jnp.ones((), float)
    )
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((grads, log_prob)))
    # The density pulls a saturated action back: d/d mean of alpha log pi is 2 tanh(u), of either sign.
    assert np.sign(float(grads.biases[0][0])) == np.sign(mean)
    after, info = update(SAC(), state)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, info)))


def test_log_deviation_is_bounded() -> None:
    for given, taken in ((5.0, 2.0), (-25.0, -20.0), (0.5, 0.5)):
        assert float(gaussian(actor_of(0.0, given), array([0.0]))[1][0, 0]) == taken


def test_actor_loss_by_hand() -> None:
    # mean = s, std = e^-1, noise 0 and 1: s = 0.5: u = 0.5, a = tanh(0.5) = 0.46211716;
    # s = 0: u = e^-1 = 0.36787944, a = 0.35213549. Log-densities: 1 - 0.91893853 - log(1 - a^2) = 0.32129048 and
    # 1 - 0.5 - 0.91893853 - log(1 - 0.35213549^2) = -0.28655003.
    # Q_1 = 1 + a, Q_2 = 1.8 - a: the smaller ones are 1.8 - 0.46211716 = 1.33788284 and 1.35213549.
    # With alpha 1/2: ((0.16064524 - 1.33788284) + (-0.14327501 - 1.35213549)) / 2
    observations, noise = array([0.5], [0.0]), array([0.0], [1.0])
    critics = critics_of((1.0, 1.0), (1.8, -1.0))
    a, log_prob = sample(actor_of(0.0, -1.0, slope=1.0), observations, noise)
    np.testing.assert_allclose(np.asarray(a)[:, 0], [0.46211716, 0.35213549], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(log_prob), [0.32129048, -0.28655003], rtol=1e-5)
    loss, _ = actor_loss(actor_of(0.0, -1.0, slope=1.0), critics, observations, noise, jnp.asarray(0.5, float))
    assert float(loss) == pytest.approx((0.16064524 - 1.33788284 - 0.14327501 - 1.35213549) / 2, rel=1e-5)


def test_temperature_gradient_has_the_sign_of_entropy_less_target() -> None:
    # Entropy measured -mean(log pi) = -2, wanted -1: slope -1, so descending raises the temperature. Entropy 0.5: +1.5.
    slope = jax.grad(temperature_loss)
    assert float(slope(ZERO, array(1.0, 3.0), -1.0)) == pytest.approx(-1.0)
    assert float(slope(ZERO, array(-0.5, -0.5), -1.0)) == pytest.approx(1.5)


@pytest.mark.parametrize(("log_std", "moved"), [(-5.0, 0.01), (-0.5, -0.01)])
def test_temperature_rises_for_a_narrow_policy_and_falls_for_a_wide_one(log_std: float, moved: float) -> None:
    """Adam's first step has the size of the rate."""
    after, _ = update(SAC(temperature_lr=0.01), state_of(actor_of(0.0, log_std)))
    assert float(after.log_temperature) == pytest.approx(moved, rel=1e-4)


def test_one_update_by_hand() -> None:
    # A policy that is a point at 0 (log-deviation -20) and no temperature to speak of: y = 1 + 0.5 min(4, 2) = 2.
    # Q = 0 and 5 at a = 0: loss 4 + 9; biases step by the rate towards 2 (0.1 and 4.9); targets go a quarter of the
    # way; the actor's mean climbs the smaller critic, Q_1 = 0.1 - 2a, by the rate: -0.1. All in the first update.
    learner = SAC(lr=0.1, gamma=0.5, tau=0.25)
    state = state_of(
        actor_of(0.0, -20.0), critics_of((0.0, -2.0), (5.0, 0.0)), critics_of((4.0, 0.0), (2.0, 0.0)), 1e-12
    )
    after, info = update(learner, state, reward=1.0)
    assert float(info.loss) == pytest.approx(13.0, rel=1e-5) and float(info.actor_loss) == pytest.approx(-0.1, rel=1e-4)
    np.testing.assert_allclose(np.asarray(after.critics.biases[0])[:, 0], [0.1, 4.9], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(after.critics_target.biases[0])[:, 0], [3.025, 2.725], rtol=1e-5)
    assert float(after.actor.biases[0][0]) == pytest.approx(-0.1, rel=1e-4)
    # Terminated: y = 1, loss 1 + 16.
    _, info = update(learner, state, reward=1.0, terminated=True)
    assert float(info.loss) == pytest.approx(17.0, rel=1e-5)


def test_entropy_is_part_of_the_target() -> None:
    # Q = Q' = r = 0, gamma 1/2, alpha 0.3: y = -0.15 log pi, and the loss is 2 * 0.0225 E[(log pi)^2] under the policy.
    second_moment, _ = integrate.quad(lambda a: density(a, 0.0, 1.0) * np.log(density(a, 0.0, 1.0)) ** 2, -1, 1)
    _, info = update(SAC(gamma=0.5), state_of(actor_of(0.0, 0.0), temperature=0.3), count=100_000)
    # The relative standard error of the mean of 1e5 such numbers is below 0.006.
    assert float(info.loss) == pytest.approx(2 * 0.0225 * second_moment, rel=0.03)


def test_acting_samples_the_policy_and_judging_takes_its_mean() -> None:
    learner, state = SAC(), state_of(actor_of(0.3, -1.0), critics_of((2.0, 1.0), (3.0, -2.0)))
    keys = jax.random.split(KEY, 20_000)
    acted = jax.jit(jax.vmap(learner.act, in_axes=(None, None, 0)))(state, array(0.0), keys)
    u = np.arctanh(np.asarray(acted, np.float64))[:, 0]
    # Standard errors: 0.37 / sqrt(20000) = 0.0026 and 0.0018.
    assert u.mean() == pytest.approx(0.3, abs=0.01) and u.std() == pytest.approx(np.exp(-1), abs=0.008)
    policy = learner.policy(state)
    assert float(learner.judge(policy, array(0.0), KEY)[0]) == pytest.approx(np.tanh(0.3), rel=1e-6)
    # Q_1 = 2.291, Q_2 = 3 - 0.583 = 2.417: the smaller.
    assert float(learner.estimate(policy, array(0.0))) == pytest.approx(2 + np.tanh(0.3), rel=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_initial_state(layer_norm: bool) -> None:
    learner = SAC(layer_norm=layer_norm, temperature=0.5)
    assert isinstance(learner, Learner)
    spec = TaskSpec("x", Box(4, -1.0, 1.0), Box(2, -1.0, 1.0), 1)
    state = jax.jit(learner.init, static_argnums=1)(KEY, spec, jnp.asarray(123.0, float))
    assert [w.shape for w in state.actor.weights] == [(4, 256), (256, 256), (256, 4)]
    assert [w.shape for w in state.critics.weights] == [(2, 6, 256), (2, 256, 256), (2, 256, 1)]
    assert np.abs(np.asarray(state.critics.weights[1][0] - state.critics.weights[1][1])).max() > 0.05
    assert leaves_equal(state.critics, state.critics_target)
    assert state.critics.layer_norm is layer_norm and state.actor.layer_norm is False
    assert float(jnp.exp(state.log_temperature)) == pytest.approx(0.5, rel=1e-6)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))
    assert learner.observe(state, batch_of(1)) is state


def test_hyper_parameters_are_the_usual_ones() -> None:
    learner = SAC()
    assert (learner.lr, learner.temperature_lr, learner.gamma, learner.tau) == (3e-4, 3e-4, 0.99, 0.005)
    assert (learner.batch_size, learner.widths, learner.target_entropy) == (256, (256, 256), -1.0)


def test_runs_and_roles_side_by_side_equal_each_alone() -> None:
    """Two runs with rates of their own, two roles with rewards of their own and the same noise; float64."""
    count, updates = 32, 40
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        learner = SAC(widths=(16,), layer_norm=True, batch_size=count)
        runs = [
            jax.tree.map(lambda leaf: jnp.asarray(leaf, float), dataclasses.replace(learner, lr=lr))
            for lr in (1e-3, 3e-4)
        ]
        draws = jnp.asarray(rng.normal(size=(3, updates, count, 2)))
        ends = jnp.asarray(rng.uniform(size=(updates, count)) < 0.1)
        batches = Transition(draws[0], jnp.tanh(draws[1]), draws[0, ..., 0], draws[2], ends)
        rewards = jnp.asarray(rng.normal(size=(2, updates, count)))
        spec, indices = TaskSpec("x", Box(2, -1.0, 1.0), Box(2, -1.0, 1.0), 1), jnp.arange(1, updates + 1)

        def train(one: SAC, start: SACState, paid: Array) -> SACState:
            def body(state: SACState, step: tuple[Transition, Array, Array]) -> tuple[SACState, None]:
                return one.update(state, step[0], step[1], jax.random.fold_in(KEY, step[2]), step[2])[0], None

            return jax.lax.scan(body, start, (batches, paid, indices))[0]

        starts = [run.init(make_key(i), spec, jnp.zeros(())) for i, run in enumerate(runs)]
        over_roles = jax.vmap(train, in_axes=(None, None, 0))
        together = jax.jit(jax.vmap(over_roles, in_axes=(0, 0, None)))(stack_runs(runs), stack_runs(starts), rewards)
        single = jax.jit(train)
        alone = stack_runs(
            [
                stack_runs([single(run, start, paid) for paid in rewards])
                for run, start in zip(runs, starts, strict=True)
            ]
        )
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-12)


def probe_transitions() -> Transition:
    """Of each question 1024 transitions under uniform actions."""
    starts = jax.vmap(Probe("Constant").reset)(jax.random.split(KEY, 512))
    drawn = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (2, 512, 1)), float)
    data = []
    for question in QUESTIONS:
        task, states, steps = Probe(question), starts, []
        for actions in drawn[: LAST_STEP[question] + 1]:
            results = jax.vmap(task.step, in_axes=(0, 0, None))(states, actions, KEY)
            seen, then = jax.vmap(task.observe)(states), jax.vmap(task.observe)(results.state)
            steps.append(Transition(seen, actions, results.reward, then, results.terminated))
            states = results.state
        # An episode of one step twice, so that all questions have as many.
        data.append(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), steps[0], steps[-1]))
    return stack_runs(data)


# Of each question: value of the first observation with sign -1 and +1, and of the second where it has one value.
ANSWERS: dict[Question, tuple[float, float, float | None]] = {
    "Constant": (1.0, 1.0, None),
    "Observation": (-1.0, 1.0, None),
    "Discount": (0.99, 0.99, 1.0),
    "Action": (1.0, 1.0, None),
    "Credit": (0.99, 0.99, None),
}


def test_probe_questions_are_answered_from_random_data() -> None:
    """All questions and two seeds as one program; a temperature that starts low keeps soft values near plain ones."""
    learner = SAC(lr=2e-3, temperature_lr=2e-3, temperature=0.02, widths=(32, 32), batch_size=64, tau=0.05)
    data, spec = jax.jit(probe_transitions)(), Probe("Constant").spec
    picks = jnp.asarray(np.random.default_rng(0).integers(0, 1024, (1000, 64)), jnp.int32)
    shown = array([0, -1], [0, 1], [1, -1], [1, 1])

    def train(transitions: Transition, key: Array) -> tuple[Array, Array]:
        def body(state: SACState, chosen: Array) -> tuple[SACState, None]:
            batch = jax.tree.map(lambda leaf: leaf[chosen], transitions)
            step = state.actor_optimiser.steps
            return learner.update(state, batch, batch.reward, jax.random.fold_in(key, step), step)[0], None

        state, _ = jax.lax.scan(body, learner.init(key, spec, ZERO), picks)
        values = jax.vmap(lambda o: learner.estimate(state, o))(shown)
        return values, jax.vmap(lambda o: learner.judge(state, o, KEY))(shown)

    over_seeds = jax.vmap(train, in_axes=(None, 0))
    values, actions = jax.jit(jax.vmap(over_seeds, in_axes=(0, None)))(data, jax.random.split(KEY, 2))
    for question, value, action in zip(QUESTIONS, np.asarray(values), np.asarray(actions), strict=True):
        minus, plus, second = ANSWERS[question]
        np.testing.assert_allclose(value[:, :2], [[minus, plus]] * 2, atol=0.1, err_msg=question)
        if second is not None:
            np.testing.assert_allclose(value[:, 2:], second, atol=0.1)
        if question in ("Action", "Credit"):
            np.testing.assert_allclose(action[:, :2], BEST_ACTION, atol=0.1, err_msg=question)


def test_discrete_tasks_and_impossible_numbers_are_refused() -> None:
    box, few = Box(2, -1.0, 1.0), Discrete(2)
    SAC().check(SPEC)
    with pytest.raises(UserError, match=r"'sac' needs continuous actions.*use 'dqn' or 'tabular_q'"):
        SAC().check(TaskSpec("grid", few, few, 2))
    with pytest.raises(UserError, match=r"'sac' needs continuous actions.*use 'dqn'$"):
        SAC().check(TaskSpec("cart", box, few, 1))
    with pytest.raises(UserError, match=r"'sac' needs continuous observations"):
        SAC().check(TaskSpec("odd", few, box, 2))
    bad: dict[str, Any] = {
        "lr": 0.0, "temperature_lr": -1.0, "gamma": 1.0, "tau": 0.0, "temperature": 0.0,
        "target_entropy": float("nan"), "batch_size": 0, "widths": (0,),
    }  # fmt: skip
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"sac.{name}"):
            SAC(**{name: value})

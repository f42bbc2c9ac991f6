"""DQN: its targets, losses, schedules and RMSprop by hand, the probe questions, what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.envs.probes import LAST_STEP, Probe, Question
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner, UpdateInfo
from hyper_rl.learners.dqn import (
    DQN,
    DQNState,
    QNetwork,
    huber,
    make_unit_rows_mlp,
    minigrid_dqn,
    next_value,
    q_loss,
    value_of,
)
from hyper_rl.networks import MLP, adam_init
from hyper_rl.observations import feature_size, features
from hyper_rl.optimisers import RMSpropState, rmsprop_init, rmsprop_step
from hyper_rl.threefry import make_key
from hyper_rl.types import Transition, stack_runs

KEY = make_key(0)
ZERO = jnp.zeros((), float)
LINE = TaskSpec("line", Box(1, -1.0, 1.0), Discrete(2), 1)
TABLE = TaskSpec("table", Discrete(3), Discrete(2), 3)
QUESTIONS = list(LAST_STEP)
# The loss and the optimiser are static, so one compilation serves every test that shares them and the shapes.
UPDATE = jax.jit(DQN.update)
ACT = jax.jit(jax.vmap(DQN.act, in_axes=(None, None, None, 0)))
JUDGE = jax.jit(jax.vmap(DQN.judge, in_axes=(None, None, None, 0)))


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def table(*rows: list[float]) -> QNetwork:
    """One row of action values for each of n discrete observations: an affine layer over the one-hot vector."""
    return QNetwork(MLP((array(*rows),), (jnp.zeros((len(rows[0]),), float),), False), None)


def state_of(network: QNetwork, target: QNetwork) -> DQNState:
    return DQNState(network, target, adam_init(network))


def step_from_0_to_1(action: int, *, terminated: bool = False) -> Transition:
    one = jnp.ones((1,), jnp.int32)
    return Transition(0 * one, action * one, jnp.zeros((1,), float), one, jnp.full((1,), terminated))


def update(learner: DQN, state: DQNState, batch: Transition, reward: float, index: int) -> tuple[DQNState, UpdateInfo]:
    rewards = jnp.full(batch.reward.shape, reward, float)
    return UPDATE(learner, state, batch, rewards, KEY, jnp.asarray(index, jnp.int32))


def leaves_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def test_features_of_a_vector_and_of_a_choice() -> None:
    box, choice = Box(2, 0.0, 10.0), Discrete(3)
    assert (feature_size(box), feature_size(choice)) == (2, 3)
    raw = features(box, jnp.asarray([[1, 10]], jnp.uint8))
    assert raw.dtype == jnp.zeros((), float).dtype and raw.tolist() == [[1.0, 10.0]]
    assert features(choice, jnp.asarray([2, 0], jnp.int32)).tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


def test_double_and_maximum_next_value_by_hand() -> None:
    # Online (1, 3, 2) prefers action 1, which the target (5, 4, 9) values at 4; its own maximum is 9.
    online, target = array([1.0, 3.0, 2.0]), array([5.0, 4.0, 9.0])
    assert next_value(online, target).tolist() == [4.0] and next_value(target, target).tolist() == [9.0]
    assert value_of(array([1.0, 2.0], [3.0, 4.0]), jnp.asarray([1, 0], jnp.int32)).tolist() == [2.0, 3.0]


def test_huber_by_hand_and_its_slope() -> None:
    # 0.5^2 / 2, 1/2 at the corner, 3 - 1/2; the slope is the error, cut off at 1.
    errors = array(0.5, -1.0, 3.0, -3.0, 0.0)
    np.testing.assert_allclose(np.asarray(huber(errors)), [0.125, 0.5, 2.5, 2.5, 0.0], rtol=1e-6)
    slopes = jax.vmap(jax.grad(lambda e: huber(e)))(errors)
    np.testing.assert_allclose(np.asarray(slopes), [0.5, -1.0, 1.0, -1.0, 0.0], rtol=1e-6)


@pytest.mark.parametrize(("kind", "loss", "slope"), [("huber", 1.3125, 0.25), ("mse", 4.625, 0.5)])
def test_q_loss_by_hand(kind: Any, loss: float, slope: float) -> None:
    # Q(0, .) = (2, 7), Q(1, .) = (1, -1). (s, a, y) = (0, 0, 1.5): error 0.5; (1, 1, 2): error -3.
    # Huber (0.125 + 2.5) / 2, squares (0.25 + 9) / 2; slope in Q(0, 0): half of 0.5, half of 2 * 0.5.
    network = table([2.0, 7.0], [1.0, -1.0])
    both = jnp.asarray([0, 1], jnp.int32)
    value, grads = jax.value_and_grad(q_loss)(network, both, both, array(1.5, 2.0), kind)
    assert float(value) == pytest.approx(loss, rel=1e-6)
    assert float(grads.trunk.weights[0][0, 0]) == pytest.approx(slope, rel=1e-6)
    assert float(grads.trunk.weights[0][0, 1]) == 0.0  # the action not taken


@pytest.mark.parametrize(("double", "target"), [(True, 3.0), (False, 5.5)])
def test_one_update_by_hand(double: bool, target: float) -> None:
    # s = 0, a = 0, r = 1, s' = 1. Online Q(1, .) = (2, 1) prefers action 0; target Q'(1, .) = (4, 9).
    # gamma 1/2: y = 1 + 4/2 = 3 (double) or 1 + 9/2 = 5.5 (maximum). Q(0, 0) = 2, so the error is -1 or -3.5 and its
    # Huber loss 1/2 or 3. Adam's first step has the size of the rate: Q(0, 0) = 2 + 0.1 from weight and 0.1 from bias.
    online, theirs = table([2.0, 0.0], [2.0, 1.0]), table([0.0, 0.0], [4.0, 9.0])
    learner = DQN(lr=0.1, gamma=0.5, tau=0.25, double=double)
    after, info = update(learner, state_of(online, theirs), step_from_0_to_1(0), 1.0, 1)
    assert float(info.loss) == pytest.approx(abs(2.0 - target) - 0.5, rel=1e-6) and float(info.actor_loss) == 0.0
    network, slow = after.network.trunk, after.target.trunk
    assert isinstance(network, MLP) and isinstance(slow, MLP)
    np.testing.assert_allclose(np.asarray(network.weights[0]), [[2.1, 0.0], [2.0, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(network.biases[0]), [0.1, 0.0], atol=1e-6)
    # The soft target went a quarter of the way to the network as it is after the step: 0.25 * 2.1, 4 - 0.25 * 2, ...
    np.testing.assert_allclose(np.asarray(slow.weights[0]), [[0.525, 0.0], [3.5, 7.0]], rtol=1e-5)
    assert int(after.optimiser.steps) == 1


def test_termination_stops_the_bootstrap() -> None:
    # y = 1, Q = 2: error 1, loss 1/2, whatever the next observation is worth.
    state = state_of(table([2.0, 0.0], [2.0, 1.0]), table([0.0, 0.0], [400.0, 900.0]))
    _, info = update(DQN(gamma=0.5), state, step_from_0_to_1(0, terminated=True), 1.0, 1)
    assert float(info.loss) == pytest.approx(0.5, rel=1e-6)


def test_a_reward_factor_is_a_larger_reward_and_leaves_the_estimate_in_the_tasks_units() -> None:
    state = state_of(table([2.0, 0.0], [2.0, 1.0]), table([0.0, 0.0], [4.0, 9.0]))
    tenfold, _ = update(DQN(gamma=0.5, reward_factor=10.0), state, step_from_0_to_1(0), 0.3, 1)
    plain, _ = update(DQN(gamma=0.5), state, step_from_0_to_1(0), 3.0, 1)
    assert leaves_equal(tenfold, plain)
    assert float(DQN(reward_factor=10.0).estimate(state, jnp.asarray(0, jnp.int32))) == pytest.approx(0.2, rel=1e-6)
    with pytest.raises(UserError, match=r"dqn\.reward_factor"):
        DQN(reward_factor=0.0)


def test_hard_target_is_copied_at_every_third_update_only() -> None:
    learner = DQN(lr=0.1, target="hard", target_every=3)
    state = state_of(table([2.0, 0.0], [2.0, 1.0]), table([0.0, 0.0], [4.0, 9.0]))
    for index in range(1, 8):
        before = state
        state, _ = update(learner, state, step_from_0_to_1(0), 1.0, index)
        assert not leaves_equal(state.network, before.network)
        assert leaves_equal(state.target, state.network if index % 3 == 0 else before.target)


def test_epsilon_falls_in_a_straight_line_over_the_updates_made() -> None:
    learner = DQN(epsilon_start=0.9, epsilon_end=0.1, epsilon_updates=100)
    at = [float(learner.epsilon(jnp.asarray(n, jnp.int32))) for n in (0, 25, 50, 100, 1000)]
    np.testing.assert_allclose(at, [0.9, 0.7, 0.5, 0.1, 0.1], rtol=1e-6)


def test_acting_explores_with_probability_epsilon_and_judging_never() -> None:
    # Three actions, the last the best: under epsilon 0.6 it is taken in 0.4 + 0.2 of cases, the others in 0.2 each.
    learner = DQN(epsilon_start=0.6, epsilon_end=0.0, epsilon_updates=10)
    state, keys = state_of(*[table([0.0, 1.0, 2.0])] * 2), jax.random.split(KEY, 20_000)
    here = jnp.zeros((), jnp.int32)
    acted = np.asarray(ACT(learner, state, here, keys))
    # Standard error of a share: at most sqrt(0.24 / 20000) = 0.0035.
    np.testing.assert_allclose(np.bincount(acted) / 20_000, [0.2, 0.2, 0.6], atol=0.015)
    judged = np.asarray(JUDGE(learner, learner.policy(state), here, keys))
    assert (judged == 2).all()
    assert float(learner.estimate(learner.policy(state), here)) == 2.0
    late = state._replace(optimiser=state.optimiser._replace(steps=jnp.asarray(10, jnp.int32)))
    assert (np.asarray(ACT(learner, late, here, keys)) == 2).all()


def test_ties_are_broken_evenly() -> None:
    learner, keys = DQN(epsilon_start=0.0, epsilon_end=0.0), jax.random.split(KEY, 20_000)
    state = state_of(*[table([1.0, 0.0, 1.0])] * 2)
    for choose in (ACT, JUDGE):
        chosen = np.asarray(choose(learner, state, jnp.zeros((), jnp.int32), keys))
        np.testing.assert_allclose(np.bincount(chosen, minlength=3) / 20_000, [0.5, 0.0, 0.5], atol=0.015)


def test_initial_state_of_the_default_learner() -> None:
    learner = DQN()
    assert isinstance(learner, Learner)
    state = jax.jit(learner.init, static_argnums=1)(
        KEY, TaskSpec("x", Box(4, -1.0, 1.0), Discrete(3), 1), jnp.asarray(123.0, float)
    )
    assert [w.shape for w in state.network.trunk.weights] == [(4, 256), (256, 256), (256, 3)]
    assert state.network.head is None and leaves_equal(state.network, state.target)
    assert np.abs(np.asarray(state.network.trunk.weights[0])).max() <= 0.5
    observed = learner.observe(state, step_from_0_to_1(0))
    assert leaves_equal(observed, state)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(state))


def test_minigrid_learner_has_lessons_network_and_optimiser() -> None:
    learner = minigrid_dqn()
    assert (learner.lr, learner.gamma, learner.batch_size) == (1e-4, 0.9, 256)
    assert (learner.double, learner.target, learner.target_every) == (False, "hard", 100)
    assert (learner.loss, learner.optimiser) == ("mse", "rmsprop")
    assert learner.reward_factor == 10.0
    # Alone it explores by itself; beside an explorer `greedy_unless_alone` takes that away.
    assert (learner.epsilon_start, learner.epsilon_end) == (1.0, 0.05)
    state = jax.jit(learner.init, static_argnums=1)(
        KEY, TaskSpec("MiniGrid", Box(147, 0.0, 10.0), Discrete(7), 1), ZERO
    )
    network = state.network
    assert network.head is not None and isinstance(state.optimiser, RMSpropState)
    weights = (*network.trunk.weights, *network.head.weights)
    assert [w.shape for w in weights] == [(147, 73), (73, 36), (36, 64), (64, 64), (64, 7)]
    for weight, bias in zip(weights, (*network.trunk.biases, *network.head.biases), strict=True):
        np.testing.assert_allclose(np.linalg.norm(np.asarray(weight), axis=0), 1.0, rtol=1e-5)
        assert not np.asarray(bias).any()


def test_unit_rows_are_gaussian_directions() -> None:
    # Of 10,000 directions in 64 dimensions each coordinate has mean 0 and variance 1/64.
    weight = np.asarray(make_unit_rows_mlp(KEY, (64, 10_000)).weights[0])
    assert np.abs(weight.mean(axis=1)).max() < 5 / 8 / 100
    np.testing.assert_allclose(weight.var(axis=1) * 64, 1.0, atol=0.08)


def test_tanh_head_by_hand() -> None:
    # Trunk: relu(2x) = 2x for x > 0, times 3 -> 6x, minus 1; tanh; then (1, -2) of it plus (0, 10).
    trunk = MLP((array([2.0]), array([3.0])), (array(0.0), array(-1.0)), False)
    network = QNetwork(trunk, MLP((array([1.0, -2.0]),), (array(0.0, 10.0),), False))
    out = np.asarray(network(array([0.25], [-5.0])))
    np.testing.assert_allclose(out, [[np.tanh(0.5), 10 - 2 * np.tanh(0.5)], [np.tanh(-1), 10 - 2 * np.tanh(-1)]], 1e-6)


def test_rmsprop_by_hand_and_against_numpy() -> None:
    # Gradient 2: v = 0.01 * 4 = 0.04, step 0.1 * 2 / 0.2 = 1. Gradient -1: v = 0.0396 + 0.01 = 0.0496, root
    # 0.22271057, step 0.1 / 0.22271057 = 0.44901325 back.
    params = array(5.0)
    state = rmsprop_init(params)
    params, state = rmsprop_step(params, array(2.0), state, 0.1)
    assert float(params[0]) == pytest.approx(4.0, rel=1e-5)
    params, state = rmsprop_step(params, array(-1.0), state, 0.1)
    assert float(params[0]) == pytest.approx(4.44901325, rel=1e-5) and int(state.steps) == 2
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        params = jnp.asarray(rng.normal(size=5))
        state, theirs, second = rmsprop_init(params), np.array(params), np.zeros(5)
        for _ in range(100):
            grad = rng.normal(size=5) * np.array([1.0, 1e3, 1e-3, 1e-8, 0.0])
            params, state = rmsprop_step(params, jnp.asarray(grad), state, 0.01)
            second = 0.99 * second + 0.01 * grad**2
            theirs = theirs - 0.01 * grad / (np.sqrt(second) + 1e-8)
        np.testing.assert_allclose(np.asarray(params), theirs, rtol=1e-10)


def test_runs_side_by_side_equal_runs_alone() -> None:
    """Three runs with rates of their own: 1e-9 relative after 60 updates in float64."""
    learner = DQN(widths=(16,), layer_norm=True, head="tanh64", target="hard", target_every=20, optimiser="rmsprop")
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        runs = [as_arrays(learner, lr) for lr in (1e-3, 3e-4, 1e-4)]
        batches = Transition(
            jnp.asarray(rng.normal(size=(60, 32, 3))),
            jnp.asarray(rng.integers(0, 4, (60, 32)), jnp.int32),
            jnp.asarray(rng.normal(size=(60, 32))),
            jnp.asarray(rng.normal(size=(60, 32, 3))),
            jnp.asarray(rng.uniform(size=(60, 32)) < 0.1),
        )
        spec, indices = TaskSpec("x", Box(3, -1.0, 1.0), Discrete(4), 1), jnp.arange(1, 61, dtype=jnp.int32)

        def train(one: DQN, start: DQNState) -> DQNState:
            def body(state: DQNState, step: tuple[Transition, Array]) -> tuple[DQNState, None]:
                return one.update(state, step[0], step[0].reward, KEY, step[1])[0], None

            return jax.lax.scan(body, start, (batches, indices))[0]

        starts = [run.init(make_key(i), spec, jnp.zeros(())) for i, run in enumerate(runs)]
        together = jax.jit(jax.vmap(train))(stack_runs(runs), stack_runs(starts))
        alone = stack_runs([jax.jit(train)(run, start) for run, start in zip(runs, starts, strict=True)])
    for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-12)


def as_arrays(learner: DQN, lr: float) -> DQN:
    """The learner with another rate, as arrays so that all runs share one compilation."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float), dataclasses.replace(learner, lr=lr))


def probe_transitions(discrete: bool) -> Transition:
    """Of each question 1024 transitions under random actions, observed as a choice or as a vector."""
    starts = jax.vmap(Probe("Constant").reset)(jax.random.split(KEY, 512))
    drawn = jnp.asarray(np.random.default_rng(1).integers(0, 2, (2, 512)), jnp.int32)
    data = []
    for question in QUESTIONS:
        task, shown = Probe(question, discrete=True), Probe(question, discrete)
        states, steps = starts, []
        for actions in drawn[: LAST_STEP[question] + 1]:
            results = jax.vmap(task.step, in_axes=(0, 0, None))(states, actions, KEY)
            seen, then = jax.vmap(shown.observe)(states), jax.vmap(shown.observe)(results.state)
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


@pytest.mark.parametrize("table_like", [True, False], ids=["one-hot", "vector"])
def test_probe_questions_are_answered_from_random_data(table_like: bool) -> None:
    """All questions and two seeds as one program; data of a random policy are enough for an off-policy learner."""
    learner, spec = DQN(lr=2e-3, widths=(32, 32), batch_size=64, tau=0.05), Probe("Constant", table_like).spec
    spec = TaskSpec(spec.name, spec.observation, Discrete(2), 1)
    data = jax.jit(probe_transitions, static_argnums=0)(table_like)
    shown = jnp.arange(4, dtype=jnp.int32) if table_like else array([0, -1], [0, 1], [1, -1], [1, 1])

    picks = jnp.asarray(np.random.default_rng(0).integers(0, 1024, (800, 64)), jnp.int32)

    def train(transitions: Transition, key: Array) -> tuple[Array, Array]:
        def body(state: DQNState, chosen: Array) -> tuple[DQNState, None]:
            batch = jax.tree.map(lambda leaf: leaf[chosen], transitions)
            return learner.update(state, batch, batch.reward, key, jnp.ones((), jnp.int32))[0], None

        state, _ = jax.lax.scan(body, learner.init(key, spec, ZERO), picks)
        values = jax.vmap(lambda o: learner.estimate(state, o))(shown)
        return values, jax.vmap(lambda o: learner.judge(state, o, KEY))(shown)

    seeds = jax.random.split(KEY, 2)
    over_seeds = jax.vmap(train, in_axes=(None, 0))
    values, actions = jax.jit(jax.vmap(over_seeds, in_axes=(0, None)))(data, seeds)
    for question, value, action in zip(QUESTIONS, np.asarray(values), np.asarray(actions), strict=True):
        minus, plus, second = ANSWERS[question]
        np.testing.assert_allclose(value[:, :2], [[minus, plus]] * 2, atol=0.05, err_msg=question)
        if second is not None:
            np.testing.assert_allclose(value[:, 2:], second, atol=0.05)
        if question in ("Action", "Credit"):
            assert (action[:, :2] == 1).all(), question


def test_continuous_actions_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(UserError, match=r"'dqn' needs a finite set of actions.*use 'td3' or 'sac'"):
        DQN().check(TaskSpec("arm", Box(3, -1.0, 1.0), Box(1, -1.0, 1.0), 1))
    for fits in (LINE, TABLE):
        DQN().check(fits)
    bad: dict[str, Any] = {
        "lr": 0.0, "gamma": 1.0, "tau": 0.0, "epsilon_start": 1.5, "epsilon_end": -0.1, "epsilon_updates": 0,
        "batch_size": 0, "widths": (), "head": "tanh", "first_weights": "zero", "target": "none", "target_every": 0,
        "loss": "l1", "optimiser": "sgd",
    }  # fmt: skip
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"dqn.{name}"):
            DQN(**{name: value})

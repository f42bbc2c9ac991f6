"""Bonuses: counts and disagreement by hand, who trains on what, and what the bonus says of known and unknown data."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.disagreement import Disagreement, DisagreementState, disagreement, weighted_squared_error
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.learners.base import UpdateInfo
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.policies import make_policies
from hyper_rl.networks import MLP
from hyper_rl.normalise import RunningMoments
from hyper_rl.training.program import Program, RunState, Streams
from hyper_rl.training.record import empty_window
from hyper_rl.training.replay import ReplayLayout
from hyper_rl.training.step import improve
from hyper_rl.types import Transition

KEY = jax.random.key(0)
PLANE = TaskSpec("plane", Box(2, -1.0, 1.0), Box(1, -1.0, 1.0), 1)
GRID = TaskSpec("grid", Discrete(3), Discrete(2), 3)


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def transitions(observation: Any, action: Any, next_observation: Any) -> Transition:
    count = len(observation)
    arrays = [jnp.asarray(x, float) for x in (observation, action, next_observation)]
    return Transition(arrays[0], arrays[1], jnp.zeros((count,), float), arrays[2], jnp.zeros((count,), bool))


def test_counts_by_hand() -> None:
    # (0, 1) three times, (2, 0) once, the rest never: 1/sqrt(3), 1, and 1 for what was never tried.
    bonus = Counts()
    state = bonus.init(KEY, GRID)
    for s, a in ((0, 1), (2, 0), (0, 1), (0, 1)):
        number, action = jnp.asarray(s, jnp.int32), jnp.asarray(a, jnp.int32)
        state = bonus.observe(state, Transition(number, action, jnp.zeros((), float), number, jnp.zeros((), bool)))
    assert np.asarray(state).tolist() == [[0, 3], [0, 0], [1, 0]]
    numbers = jnp.asarray([0, 2, 1], jnp.int32), jnp.asarray([1, 0, 1], jnp.int32)
    batch = Transition(*numbers, jnp.zeros((3,), float), numbers[0], jnp.zeros((3,), bool))
    np.testing.assert_allclose(np.asarray(bonus.reward(state, batch)), [3**-0.5, 1.0, 1.0], rtol=1e-6)
    rewards, same, loss = bonus.learn(state, batch, KEY)
    np.testing.assert_array_equal(np.asarray(rewards), np.asarray(bonus.reward(state, batch)))
    assert same is state and float(loss) == 0.0 and bonus.largest == 1.0


def test_disagreement_by_hand() -> None:
    # Two models, one sample, two dimensions: (1, 5) and (3, 5): variances 1 and 0, mean 0.5.
    # Three models, one dimension: 0, 3, 6: mean 3, population variance (9 + 0 + 9) / 3 = 6.
    assert np.asarray(disagreement(array([[1.0, 5.0]], [[3.0, 5.0]]))).tolist() == [0.5]
    assert np.asarray(disagreement(array([[0.0]], [[3.0]], [[6.0]]))).tolist() == [6.0]


def test_model_loss_by_hand() -> None:
    # Predictions (2, -1) and (6, -3), targets (1, 1) and (6, 0): errors (1, -2) and (0, -3),
    # squared (1, 4) and (0, 9): means 2.5 and 4.5; weights 0.25 and 0.75: 0.625 + 3.375 = 4.
    # Slope in an error e of weight w and two dimensions: 2 e w / 2 = e w.
    loss, slopes = weighted_squared_error(array([1.0, -2.0], [0.0, -3.0]), array(0.25, 0.75))
    assert float(loss) == pytest.approx(4.0, rel=1e-6)
    np.testing.assert_allclose(np.asarray(slopes), [[0.25, -0.5], [0.0, -2.25]], rtol=1e-6)


def test_learning_takes_the_gradient_of_the_loss() -> None:
    """The written-out gradient on the picked rows against automatic differentiation of the same loss."""
    bonus = Disagreement(widths=(8, 8))
    rng = np.random.default_rng(3)
    batch = transitions(rng.normal(size=(32, 2)), rng.normal(size=(32, 1)), rng.normal(size=(32, 2)))
    state = bonus.init(KEY, PLANE)
    rewards, after, loss = bonus.learn(state, batch, KEY)
    np.testing.assert_allclose(np.asarray(rewards), np.asarray(bonus.reward(state, batch)), rtol=1e-6)
    picks = jnp.asarray([[6 * model + row for row in range(8)] for model in range(5)])

    def loss_of(models: MLP) -> Float[Array, ""]:
        outputs = jax.vmap(lambda model: model(bonus.inputs(state, batch)))(models)
        errors = jnp.take_along_axis(outputs - batch.next_observation[None], picks[:, :, None], axis=1)
        return jnp.square(errors).mean(axis=(1, 2)).sum()

    total, grads = jax.value_and_grad(loss_of)(state.models)
    assert float(loss) == pytest.approx(float(total) / 5, rel=1e-5)
    for mine, automatic in zip(jax.tree.leaves(after.optimiser.first), jax.tree.leaves(grads), strict=True):
        np.testing.assert_allclose(np.asarray(mine), 0.1 * np.asarray(automatic), rtol=1e-4, atol=1e-7)


def sample_weights(bonus: Disagreement, batch: Transition, keys: Array) -> Float[np.ndarray, "keys models batch"]:
    """How much each model learns from each transition, read off the derivative of its output bias's gradient.

    The gradient of the output bias is the weighted sum of 2 (f - y) / n, and Adam's first moment holds a tenth of it;
    so moving y_i by one changes it by -0.2 w_i / n.
    """
    state = bonus.init(KEY, PLANE)

    def moved(next_observation: Float[Array, "batch 2"], key: Array) -> Float[Array, " models"]:
        _, after, _ = bonus.learn(state, batch._replace(next_observation=next_observation), key)
        return after.optimiser.first.biases[-1][:, 0]

    slopes = jax.jit(jax.vmap(jax.jacrev(moved), in_axes=(None, 0)))(batch.next_observation, keys)
    return np.asarray(slopes)[..., 0] / -0.1


@pytest.mark.parametrize("selection", ["subset", "mask"])
def test_each_model_trains_on_its_own_quarter_of_the_batch(selection: Any) -> None:
    rng = np.random.default_rng(0)
    batch = transitions(rng.normal(size=(64, 2)), rng.normal(size=(64, 1)), rng.normal(size=(64, 2)))
    bonus = Disagreement(widths=(4,), selection=selection)
    weights = sample_weights(bonus, batch, jax.random.split(KEY, 50))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-4)
    chosen = weights > 1e-6
    if selection == "subset":
        # Windows of sixteen, twelve apart, each row worth 1/16.
        for model in range(5):
            assert np.flatnonzero(chosen[0, model]).tolist() == list(range(12 * model, 12 * model + 16))
        np.testing.assert_allclose(weights[chosen], 1 / 16, rtol=1e-4)
    else:
        # A coin per transition: 16 on average (standard error over 250 masks 0.22), all that are chosen alike.
        assert chosen.sum(axis=-1).mean() == pytest.approx(16, abs=1.0)
        alike = chosen / chosen.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(weights, alike, atol=1e-4)
    # Every transition is used by somebody, and no two models share their choice.
    assert (weights.mean(axis=(0, 1)) > 0).all()
    for one in chosen:
        assert len({tuple(row) for row in one}) == 5


def test_whole_batch_when_the_share_is_one() -> None:
    rng = np.random.default_rng(0)
    batch = transitions(rng.normal(size=(8, 2)), rng.normal(size=(8, 1)), rng.normal(size=(8, 2)))
    weights = sample_weights(Disagreement(widths=(4,), selection="mask", share=1.0), batch, jax.random.split(KEY, 2))
    np.testing.assert_allclose(weights, 1 / 8, atol=1e-5)


def dynamics(observation: Any, action: Any) -> Any:
    turned = np.stack([observation[:, 1], -observation[:, 0]], axis=1)
    return observation + 0.3 * np.sin(3 * turned) + 0.2 * action


def square(rng: np.random.Generator, count: int, low: float, high: float) -> Transition:
    observation, action = rng.uniform(low, high, (count, 2)), rng.uniform(-1, 1, (count, 1))
    return transitions(observation, action, dynamics(observation, action))


@jax.jit
def trained(bonus: Disagreement, start: DisagreementState, data: Transition, updates: int) -> DisagreementState:
    def seen(state: DisagreementState, one: Transition) -> tuple[DisagreementState, None]:
        return bonus.observe(state, one), None

    def body(i: Array, state: DisagreementState) -> DisagreementState:
        picks = jax.random.randint(jax.random.fold_in(KEY, i), (64,), 0, data.reward.shape[0])
        batch = jax.tree.map(lambda leaf: leaf[picks], data)
        return bonus.learn(state, batch, jax.random.fold_in(KEY, i + updates))[1]

    observed = jax.lax.scan(seen, start, data)[0]
    return jax.lax.fori_loop(0, updates, body, observed)


@pytest.mark.parametrize("options", [{}, {"target": "change", "normalise": True}])
def test_bonus_falls_on_known_data_and_stays_high_far_away(options: dict[str, Any]) -> None:
    """Trained on one fixed stream from the lower left quarter of the square, asked about both ends of it."""
    rng = np.random.default_rng(0)
    data = square(rng, 1000, -1.0, 0.0)
    known, far = square(rng, 200, -1.0, 0.0), square(rng, 200, 1.0, 2.0)
    bonus = Disagreement(lr=1e-3, widths=(32, 32), **options)
    fresh = bonus.init(KEY, PLANE)
    start, state = trained(bonus, fresh, data, 0), trained(bonus, fresh, data, 4000)
    reward = jax.jit(bonus.reward)
    before, after, away = (float(reward(s, b).mean()) for s, b in ((start, known), (state, known), (state, far)))
    assert after < before / 10
    assert away > 10 * after


def state_with(observations: RunningMoments, changes: RunningMoments) -> DisagreementState:
    start = Disagreement(widths=(4,)).init(KEY, PLANE)
    return start._replace(observations=observations, changes=changes)


@pytest.mark.parametrize(
    ("options", "inputs", "targets"),
    [
        # s = (3, 10), a = 0.5, s' = (5, 9): change (2, -1).
        # Observations: mean (1, 10), deviation (2, 4); changes: deviation (0.5, 8), whose mean plays no part.
        ({"target": "next", "normalise": False}, [3.0, 10.0, 0.5], [5.0, 9.0]),
        ({"target": "change", "normalise": False}, [3.0, 10.0, 0.5], [2.0, -1.0]),
        ({"target": "next", "normalise": True}, [1.0, 0.0, 0.5], [2.0, -0.25]),
        ({"target": "change", "normalise": True}, [1.0, 0.0, 0.5], [4.0, -0.125]),
    ],
)
def test_what_is_predicted_from_what_by_hand(options: Any, inputs: list[float], targets: list[float]) -> None:
    count = jnp.asarray(10, jnp.int32)
    # 10 values of deviation d have a sum of squares of 10 d^2.
    observations = RunningMoments(count, array(1.0, 10.0), array(40.0, 160.0))
    changes = RunningMoments(count, array(7.0, 7.0), array(2.5, 640.0))
    state, bonus = state_with(observations, changes), Disagreement(widths=(4,), **options)
    batch = transitions([[3.0, 10.0]], [[0.5]], [[5.0, 9.0]])
    np.testing.assert_allclose(np.asarray(bonus.inputs(state, batch)), [inputs], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(bonus.targets(state, batch)), [targets], rtol=1e-6)


def test_running_statistics_are_kept_only_where_used() -> None:
    one = jax.tree.map(lambda leaf: leaf[0], transitions([[3.0, 10.0]], [[0.5]], [[5.0, 9.0]]))
    plain, scaled = Disagreement(widths=(4,)), Disagreement(widths=(4,), normalise=True)
    start = plain.init(KEY, PLANE)
    assert plain.observe(start, one) is start
    seen = scaled.observe(start, one)
    assert int(seen.observations.seen) == 2 and np.asarray(seen.observations.mean).tolist() == [4.0, 9.5]
    seen = Disagreement(widths=(4,), normalise=True, target="change").observe(start, one)
    assert int(seen.observations.seen) == 1 and np.asarray(seen.observations.mean).tolist() == [3.0, 10.0]
    assert np.asarray(seen.changes.mean).tolist() == [2.0, -1.0]


def test_what_moves_only_at_the_end_of_episodes_is_predicted_in_its_own_units() -> None:
    # The second coordinate is 5 in one of 16 observations, else 0: mean 5/16, deviation 5 sqrt(15)/16, so that 5 is
    # sqrt(15) deviations from the mean. In one of 1024 it would be sqrt(1023), some 32, and is clipped.
    bonus = Disagreement(widths=(4,), normalise=True)
    inside = jax.tree.map(lambda leaf: leaf[0], transitions([[1.0, 0.0]], [[0.5]], [[-1.0, 0.0]]))
    last = transitions([[1.0, 0.0]], [[0.5]], [[-1.0, 5.0]])
    state = bonus.init(KEY, PLANE)
    for _ in range(7):
        state = bonus.observe(state, inside)
    state = bonus.observe(state, jax.tree.map(lambda leaf: leaf[0], last))
    np.testing.assert_allclose(np.asarray(bonus.targets(state, last)), [[-1.0, 15**0.5]], rtol=1e-5)
    rare = RunningMoments(jnp.asarray(1024, jnp.int32), array(0.0, 5 / 1024), array(1024.0, 25 * 1023 / 1024))
    targets = bonus.targets(state._replace(observations=rare), last)
    np.testing.assert_allclose(np.asarray(targets), [[-1.0, 10.0]], rtol=1e-5)
    after_it = transitions([[-1.0, 5.0]], [[0.5]], [[-1.0, 5.0]])
    inputs = bonus.inputs(state._replace(observations=rare), after_it)
    np.testing.assert_allclose(np.asarray(inputs), [[-1.0, 10.0, 0.5]], rtol=1e-5)


def test_normalised_bonus_does_not_depend_on_the_units_of_the_observation() -> None:
    """The same stream in metres and kilometres (powers of two, so that rounding is the same) gives the same bonus."""
    rng = np.random.default_rng(1)
    data = square(rng, 1000, -1.0, 1.0)
    units = array([1024.0, 0.25])
    other = data._replace(observation=data.observation * units, next_observation=data.next_observation * units)
    bonus = Disagreement(lr=1e-3, widths=(32, 32), target="change", normalise=True)
    fresh = bonus.init(KEY, PLANE)
    ours, theirs = (bonus.reward(trained(bonus, fresh, d, 100), d) for d in (data, other))
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4)


class Listener(eqx.Module):
    """A learner that only remembers the rewards it was given."""

    gamma: float = 0.5

    def update(
        self, state: Any, batch: Transition, rewards: Array, key: Array, index: Array
    ) -> tuple[Array, UpdateInfo]:
        return rewards, UpdateInfo(jnp.zeros((), float), jnp.zeros((), float))


def test_bonus_is_recomputed_on_the_batch_from_the_models_before_their_update() -> None:
    # Observation 2, action 1, next observation 2, reward, termination: the replay has no room for a bonus.
    assert ReplayLayout.of(PLANE, 10).width == 2 + 1 + 2 + 2
    bonus: Any = Disagreement(lr=0.1, widths=(4,))
    listener: Any = Listener()
    nothing: Any = None
    budget = jnp.asarray(1, jnp.int32)
    policies, paid = make_policies("hyper", 0.5, 0.5), ExplorerReward(2.0)
    program = Program(nothing, listener, bonus, policies, paid, Streams.from_seed(0), budget, 1)
    state = RunState(
        jnp.zeros((2, 8), float), bonus.init(KEY, PLANE), paid.init(), None, nothing, nothing, empty_window(2), nothing
    )
    batch = square(np.random.default_rng(0), 8, -1.0, 1.0)._replace(reward=jnp.arange(8, dtype=float))
    step, reward = jax.jit(improve), jax.jit(bonus.reward)
    first = np.asarray(reward(state.bonus, batch))
    once = step(program, state, batch, KEY, KEY, jnp.asarray(1))
    np.testing.assert_array_equal(np.asarray(once.learners[0]), np.arange(8))
    np.testing.assert_allclose(np.asarray(once.learners[1]), np.arange(8) + 2 * first, rtol=1e-5)
    # The models have moved, so the very same batch is worth something else now, and that is what is paid.
    second = np.asarray(reward(once.bonus, batch))
    assert np.abs(second - first).max() > 1e-2
    twice = step(program, once, batch, KEY, KEY, jnp.asarray(2))
    np.testing.assert_allclose(np.asarray(twice.learners[1]), np.arange(8) + 2 * second, rtol=1e-5)
    assert float(twice.window.bonus_mean) == pytest.approx(first.mean() + second.mean(), rel=1e-5)


def test_the_wrong_kind_of_task_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(UserError, match="disagreement"):
        Counts().check(PLANE)
    Disagreement().check(PLANE)
    Disagreement().check(GRID)  # numbered states and actions as one-hot vectors
    Counts().check(GRID)
    bad: dict[str, Any] = {"lr": -1.0, "models": 1, "widths": (), "share": 0.0, "selection": "all", "target": "past"}
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"disagreement.{name}"):
            Disagreement(**{name: value})

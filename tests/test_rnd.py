"""RND: gradient, what is frozen, what is paid by hand, and what the error says of known and unknown states."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.bonuses.base import Bonus
from hyper_rl.bonuses.rnd import RND, RNDState, centred
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.networks import MLP, adam_init
from hyper_rl.normalise import RunningMoments, moments_add, moments_init
from hyper_rl.types import Transition, stack_runs, take_run

KEY = jax.random.key(0)
PLANE = TaskSpec("plane", Box(2, -1.0, 1.0), Box(1, -1.0, 1.0), 1)
GRID = TaskSpec("grid", Discrete(6), Discrete(2), 6)
VARIANTS: list[dict[str, Any]] = [{"widths": (8,), "outputs": 4}, {"variant": "lesson"}]


def reached(next_observation: Any) -> Transition:
    """Transitions that lead to these observations; RND looks at nothing else."""
    after = jnp.asarray(next_observation)
    count = after.shape[0]
    nothing = jnp.zeros((count,), float)
    return Transition(jnp.zeros_like(after), nothing, nothing, after, jnp.zeros((count,), bool))


def points(seed: int, count: int, low: float = -1.0, high: float = 1.0) -> Transition:
    return reached(jnp.asarray(np.random.default_rng(seed).uniform(low, high, (count, 2)), float))


@partial(jax.jit, static_argnums=2)
def made(bonus: RND, key: Array, spec: TaskSpec) -> RNDState:
    return bonus.init(key, spec)


@jax.jit
def observed(bonus: RND, state: RNDState, data: Transition) -> RNDState:
    return jax.lax.scan(lambda s, one: (bonus.observe(s, one), None), state, data)[0]


@jax.jit
def learned(bonus: RND, state: RNDState, batch: Transition) -> tuple[Array, RNDState, Array]:
    return bonus.learn(state, batch, KEY)


@jax.jit
def errors(bonus: RND, state: RNDState, data: Transition) -> Float[Array, " batch"]:
    return bonus.errors(state, data.next_observation)


@jax.jit
def paid_for(bonus: RND, state: RNDState, data: Transition) -> Float[Array, " batch"]:
    return bonus.reward(state, data)


@jax.jit
def trained(bonus: RND, state: RNDState, data: Transition, updates: int) -> RNDState:
    """`updates` batches of 256 from the data; the running statistics of the observations stay as they are."""

    def body(i: Array, state: RNDState) -> RNDState:
        picks = jax.random.randint(jax.random.fold_in(KEY, i), (256,), 0, data.reward.shape[0])
        return bonus.learn(state, jax.tree.map(lambda leaf: leaf[picks], data), KEY)[1]

    return jax.lax.fori_loop(0, updates, body, state)


def stacked(items: list[Any]) -> Any:
    """As `stack_runs`, in numpy: nothing to compile for each shape."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *items)


def test_error_by_hand() -> None:
    # Target: one layer, (x, y) -> (x + y, 2x); predictor -> (0, 1). Seen: mean (1, 2), deviations (2, 0.5).
    # s' = (3, 2): normalised (1, 0): target (1, 2), differences (-1, -1): mean square 1.
    # s' = (-1, 12): normalised (-1, 20), clipped to (-1, 5): target (4, -2), differences (-4, 3): (16 + 9) / 2 = 12.5.
    bonus = RND(widths=(8,), outputs=2)
    target = MLP((jnp.asarray([[1.0, 2.0], [1.0, 0.0]], float),), (jnp.zeros((2,), float),), False)
    predictor = MLP((jnp.zeros((2, 2), float),), (jnp.asarray([0.0, 1.0], float),), False)
    seen = RunningMoments(jnp.asarray(4, jnp.int32), jnp.asarray([1.0, 2.0], float), jnp.asarray([16.0, 1.0], float))
    state = RNDState(None, target, predictor, adam_init(predictor), seen, moments_init(1))
    batch = reached(jnp.asarray([[3.0, 2.0], [-1.0, 12.0]], float))
    np.testing.assert_allclose(np.asarray(paid_for(bonus, state, batch)), [1.0, 12.5], rtol=1e-6)


def test_centring_by_hand() -> None:
    # Errors 1, 2, 6: mean 3, sample variance (4 + 1 + 9) / 2 = 7. Then 3 -> 0, 10 -> 7 / sqrt(7), 1 -> -2 / sqrt(7).
    # One error alone has no deviation: nothing is paid. 5, 5: no deviation but the floor of 1e-5 of the mean.
    seen = moments_init(1)
    values = jnp.asarray([3.0, 10.0, 1.0], float)
    assert np.asarray(centred(seen, values)).tolist() == [0.0, 0.0, 0.0]
    for i, error in enumerate((1.0, 2.0, 6.0)):
        seen = moments_add(seen, jnp.asarray([error], float))
        if i == 0:
            assert np.asarray(centred(seen, values)).tolist() == [0.0, 0.0, 0.0]
    np.testing.assert_allclose(np.asarray(centred(seen, values)), [0.0, 7**0.5, -2 / 7**0.5], rtol=1e-6)
    flat = moments_init(1)
    for _ in range(2):
        flat = moments_add(flat, jnp.asarray([5.0], float))
    np.testing.assert_allclose(np.asarray(centred(flat, jnp.asarray([5.0, 5.0001], float))), [0.0, 2.0], rtol=2e-2)


def test_lesson_counts_new_transitions_and_trained_batches_and_pays_what_is_above_average() -> None:
    with jax.enable_x64(True):
        bonus, data = RND(variant="lesson"), points(1, 12)
        state = made(bonus, KEY, PLANE)
        wrong = np.asarray(errors(bonus, state, data))
        state = observed(bonus, state, data)
        expected = (wrong - wrong.mean()) / (wrong.std(ddof=1) + 1e-10)
        paid, after, loss = learned(bonus, state, data)
        np.testing.assert_allclose(np.asarray(paid), expected, rtol=1e-9)
        assert paid.min() < 0 < paid.max()
        # The whole batch is learned from, and its mean error is one more value of the statistics.
        assert float(loss) == pytest.approx(wrong.mean(), rel=1e-12)
        assert int(after.errors.seen) == 13
        assert float(after.errors.mean[0]) == pytest.approx(np.append(wrong, wrong.mean()).mean(), rel=1e-12)
        # The published sizes.
        assert state.trunk is not None
        assert [w.shape for w in state.trunk.weights] == [(2, 73), (73, 36), (36, 64)]
        assert [w.shape for w in state.predictor.weights] == [(64, 64), (64, 16)]


@pytest.mark.parametrize("options", VARIANTS)
def test_gradient_against_finite_differences_and_frozen_parts(options: dict[str, Any]) -> None:
    """Adam's first moment after one update is a tenth of the gradient of the mean error over the trained rows."""
    with jax.enable_x64(True):
        bonus, data = RND(**options), points(2, 12)
        rows = 12 if options.get("variant") == "lesson" else 3
        state = observed(bonus, made(bonus, KEY, PLANE), points(3, 12))
        paid, after, loss = learned(bonus, state, data)
        np.testing.assert_allclose(np.asarray(paid), np.asarray(paid_for(bonus, state, data)), rtol=1e-12)

        def error(predictor: MLP) -> float:
            return float(errors(bonus, state._replace(predictor=predictor), data)[:rows].mean())

        assert float(loss) == pytest.approx(error(state.predictor), rel=1e-12)
        leaves, tree = jax.tree.flatten(jax.tree.map(np.asarray, state.predictor))
        gradients = jax.tree.leaves(after.optimiser.first)
        rng = np.random.default_rng(0)
        for i, (leaf, gradient) in enumerate(zip(leaves, gradients, strict=True)):
            direction = rng.normal(size=leaf.shape)
            up, down = ([*leaves[:i], leaf + step * direction, *leaves[i + 1 :]] for step in (1e-6, -1e-6))
            slope = (error(jax.tree.unflatten(tree, up)) - error(jax.tree.unflatten(tree, down))) / 2e-6
            assert 10 * (np.asarray(gradient) * direction).sum() == pytest.approx(slope, rel=1e-6, abs=1e-10)

        later = learned(bonus, after, data)[1]
        frozen = [(s.trunk, s.target, s.observations) for s in (state, later)]
        assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, frozen), strict=True))
        assert not np.array_equal(state.predictor.weights[0], later.predictor.weights[0])
        assert all(leaf.dtype != np.float32 for leaf in jax.tree.leaves(later))


def test_ratio_of_far_to_visited_error_starts_near_one_and_ends_above_ten() -> None:
    """Statistics of the whole square, then frozen; the stream comes from its lower left quarter only.

    The two quarters lie alike around the mean, so an untrained predictor is wrong by as much in either, up to the
    luck of the draw: over 100 initialisations the ratio has a geometric mean of 0.97 and lies between 0.63 and 1.71.
    """
    bonus = RND()
    stream, visited, far = points(1, 2000, -1.0, 0.0), points(2, 500, -1.0, 0.0), points(3, 500, 0.0, 1.0)
    fresh = jax.vmap(lambda key: made(bonus, key, PLANE))(jax.random.split(KEY, 100))
    start = observed(bonus, take_run(fresh, 0), points(4, 1000))

    def wrong(predictor: MLP, target: MLP) -> Float[Array, "2"]:
        state = start._replace(predictor=predictor, target=target)
        return jnp.stack([errors(bonus, state, data).mean() for data in (visited, far)])

    before = np.asarray(jax.vmap(wrong)(fresh.predictor, fresh.target))
    ratios = before[:, 1] / before[:, 0]
    assert ratios.min() > 0.5 and ratios.max() < 2.0
    assert np.exp(np.log(ratios).mean()) == pytest.approx(1.0, abs=0.1)

    end = trained(bonus, start, stream, 1000)
    after = np.asarray(wrong(end.predictor, end.target))
    assert after[1] > 10 * after[0]
    # What is visited is known, and what is far is still worth a visit.
    assert after[0] < before[0, 0] / 10
    assert after[1] > before[0, 1] / 10


def test_numbered_states_are_one_hot_and_the_bonus_falls_on_those_visited() -> None:
    """Six states, of which three are ever reached."""
    bonus = RND(lr=1e-3, **VARIANTS[0])
    data = reached(jnp.asarray(np.random.default_rng(0).integers(0, 3, 500), jnp.int32))
    state = observed(bonus, made(bonus, KEY, GRID), data)
    each = reached(jnp.arange(6, dtype=jnp.int32))
    before, after = (np.asarray(errors(bonus, s, each)) for s in (state, trained(bonus, state, data, 1000)))
    assert before.shape == (6,)
    assert (after[:3] < before[:3] / 10).all()
    assert after[3:].min() > 10 * after[:3].max()


@pytest.mark.parametrize(("options", "spec"), [(VARIANTS[0], PLANE), (VARIANTS[1], GRID)])
def test_a_batch_of_one_and_observations_that_never_change(options: dict[str, Any], spec: TaskSpec) -> None:
    bonus = RND(**options)
    assert isinstance(bonus, Bonus) and bonus.largest == 0.0
    bonus.check(spec)
    still = jnp.full((1, 2), 3.0, float) if spec is PLANE else jnp.full((1,), 3, jnp.int32)
    one = reached(still)
    state = made(bonus, KEY, spec)
    for _ in range(20):
        state = observed(bonus, state, one)
        expected = paid_for(bonus, state, one)
        paid, state, loss = learned(bonus, state, one)
        np.testing.assert_allclose(np.asarray(paid), np.asarray(expected), rtol=1e-4, atol=1e-3)
        assert paid.shape == (1,) and loss.shape == ()
    assert all(np.isfinite(leaf).all() for leaf in [paid, loss, *jax.tree.leaves(state)])
    # Just off where it has always been: still a number.
    moved = reached(still + 1)
    assert np.isfinite(np.asarray(paid_for(bonus, state, moved))).all()


def test_several_runs_at_once_equal_each_alone() -> None:
    with jax.enable_x64(True):
        bonuses = [RND(lr=lr, variant="lesson") for lr in (1e-4, 3e-3, 1e-3)]
        keys, data = jax.random.split(KEY, 3), [points(seed, 12) for seed in range(3)]

        runs = zip(bonuses, keys, data, strict=True)
        states = [observed(bonus, made(bonus, key, PLANE), batch) for bonus, key, batch in runs]
        alone = [learned(*run) for run in zip(bonuses, states, data, strict=True)]
        together = jax.vmap(learned)(stack_runs(bonuses), stacked(states), stacked(data))
        for i, one in enumerate(alone):
            for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(one), strict=True):
                np.testing.assert_allclose(np.asarray(a)[i], np.asarray(b), rtol=1e-9, atol=1e-12)


def test_impossible_numbers_are_refused() -> None:
    bad: dict[str, Any] = {"lr": 0.0, "variant": "plain", "widths": (0,), "outputs": 0, "share": 1.5}
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"rnd.{name}"):
            RND(**{name: value})
    for name, value in {"widths": (64,), "outputs": 16, "share": 1.0}.items():
        given: dict[str, Any] = {name: value}
        with pytest.raises(UserError, match=f"rnd.{name}.*lesson"):
            RND(variant="lesson", **given)

"""ICM: losses and gradient, who learns from what, noise that no action moves, and known against unknown places."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.bonuses.base import Bonus
from hyper_rl.bonuses.icm import ICM, ICMState, Networks, Surprise
from hyper_rl.bonuses.rnd import standardised
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.networks import MLP, adam_init, adam_step, make_mlp
from hyper_rl.normalise import moments_init
from hyper_rl.types import Transition, stack_runs

KEY = jax.random.key(0)
PLANE = TaskSpec("plane", Box(2, -1.0, 1.0), Box(2, -1.0, 1.0), 1)
STEPS = TaskSpec("steps", Box(2, -1.0, 1.0), Discrete(5), 1)
GRID = TaskSpec("grid", Discrete(6), Discrete(2), 6)
SMALL: dict[str, Any] = {"widths": (32,), "features": 8}
MOVES = np.asarray([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])


def transitions(observation: Any, action: Any, next_observation: Any) -> Transition:
    count = len(observation)
    before, taken, after = (
        jnp.asarray(x, jnp.int32 if np.asarray(x).dtype.kind == "i" else float)
        for x in (observation, action, next_observation)
    )
    return Transition(before, taken, jnp.zeros((count,), float), after, jnp.zeros((count,), bool))


def walk(seed: int, spec: TaskSpec, count: int, low: float = -1.0, high: float = 1.0, noise: int = 0) -> Transition:
    """A step of 0.2 in the action's direction, through a current; `noise` more coordinates are redrawn every step."""
    rng = np.random.default_rng(seed)
    place = rng.uniform(low, high, (count, 2))
    action = rng.integers(0, 5, count) if isinstance(spec.action, Discrete) else rng.uniform(-1, 1, (count, 2))
    current = 0.2 * np.sin(3 * np.stack([place[:, 1], -place[:, 0]], axis=1))
    moved = place + current + 0.2 * (MOVES[action] if isinstance(spec.action, Discrete) else action)
    before, after = (np.concatenate([x, rng.normal(size=(count, noise))], axis=1) for x in (place, moved))
    return transitions(before, action, after)


@partial(jax.jit, static_argnums=2)
def made(bonus: ICM, key: Array, spec: TaskSpec) -> ICMState:
    return bonus.init(key, spec)


@jax.jit
def observed(bonus: ICM, state: ICMState, data: Transition) -> ICMState:
    return jax.lax.scan(lambda s, one: (bonus.observe(s, one), None), state, data)[0]


@jax.jit
def learned(bonus: ICM, state: ICMState, batch: Transition) -> tuple[Array, ICMState, Array]:
    return bonus.learn(state, batch, KEY)


@jax.jit
def surprise(bonus: ICM, state: ICMState, data: Transition) -> Surprise:
    return bonus.surprise(state.networks, state.observations, data)


@jax.jit
def trained(bonus: ICM, state: ICMState, data: Transition, updates: int) -> ICMState:
    def body(i: Array, state: ICMState) -> ICMState:
        picks = jax.random.randint(jax.random.fold_in(KEY, i), (128,), 0, data.reward.shape[0])
        return bonus.learn(state, jax.tree.map(lambda leaf: leaf[picks], data), KEY)[1]

    return jax.lax.fori_loop(0, updates, body, state)


def stacked(items: list[Any]) -> Any:
    """As `stack_runs`, in numpy: nothing to compile for each shape."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *items)


def matrix(*rows: list[float]) -> MLP:
    """A single linear layer."""
    return MLP((jnp.asarray(rows, float),), (jnp.zeros((len(rows[0]),), float),), False)


def test_losses_by_hand() -> None:
    # phi(x, y) = (x + y, 2y): s = (1, 2) -> (3, 4), s' = (0, 1) -> (1, 2).
    # Forward from (3, 4, a1, a2), with (a1, a2) = (0.5, -1): (3 + a1, 4 + a2) = (3.5, 3): errors (2.5, 1):
    # half of 6.25 + 1 is 3.625. Inverse from (3, 4, 1, 2): (3 - 2, 4 - 4) = (1, 0): errors (0.5, 1): mean square 0.625.
    # Loss 0.8 * 0.625 + 0.2 * 3.625 = 1.225.
    encoder = matrix([1.0, 0.0], [1.0, 2.0])
    forward = matrix([1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0])
    inverse = matrix([1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [-1.0, -2.0])
    bonus = ICM(features=2, normalise=False)
    networks = Networks(encoder, inverse, forward)
    state = ICMState(networks, adam_init(networks), moments_init(2))
    paid, _, loss = learned(bonus, state, transitions([[1.0, 2.0]], [[0.5, -1.0]], [[0.0, 1.0]]))
    assert float(paid[0]) == pytest.approx(3.625, rel=1e-6)
    assert float(loss) == pytest.approx(1.225, rel=1e-6)
    # Two numbered actions, the second taken: logits (1, 0), cross-entropy log(e + 1) = 1.3133; one-hot (0, 1) gives
    # forward (3, 5): errors (2, 3): 6.5.
    wrong = surprise(bonus, state, transitions([[1.0, 2.0]], [1], [[0.0, 1.0]]))
    assert float(wrong.inverse[0]) == pytest.approx(np.log(np.e + 1), rel=1e-6)
    assert float(wrong.forward[0]) == pytest.approx(6.5, rel=1e-6)


@pytest.mark.parametrize("spec", [PLANE, STEPS])
def test_gradient_against_finite_differences(spec: TaskSpec) -> None:
    """Adam's first moment after one update is a tenth of the gradient of the loss over the trained quarter.

    Every weight is free: the encoder feels the forward loss through both ends of the transition.
    """
    with jax.enable_x64(True):
        bonus, data = ICM(**SMALL), walk(1, spec, 12)
        state = observed(bonus, made(bonus, KEY, spec), walk(2, spec, 20))
        paid, after, loss = learned(bonus, state, data)
        np.testing.assert_allclose(np.asarray(paid), np.asarray(surprise(bonus, state, data).forward), rtol=1e-12)

        def error(networks: Networks) -> float:
            wrong = surprise(bonus, state._replace(networks=networks), data)
            return float(0.8 * wrong.inverse[:3].mean() + 0.2 * wrong.forward[:3].mean())

        assert float(loss) == pytest.approx(error(state.networks), rel=1e-12)
        leaves, tree = jax.tree.flatten(jax.tree.map(np.asarray, state.networks))
        rng = np.random.default_rng(0)
        for i, (leaf, gradient) in enumerate(zip(leaves, jax.tree.leaves(after.optimiser.first), strict=True)):
            direction = rng.normal(size=leaf.shape)
            up, down = ([*leaves[:i], leaf + step * direction, *leaves[i + 1 :]] for step in (1e-6, -1e-6))
            slope = (error(jax.tree.unflatten(tree, up)) - error(jax.tree.unflatten(tree, down))) / 2e-6
            assert 10 * (np.asarray(gradient) * direction).sum() == pytest.approx(slope, rel=1e-6, abs=1e-9)
        assert all(leaf.dtype != np.float32 for leaf in jax.tree.leaves(after))


def unexplained(error: Float[Array, "batch n"], target: Float[Array, "batch n"]) -> Float[Array, ""]:
    """Mean squared error in units of the target's variance."""
    return jnp.square(error).sum() / jnp.square(target - target.mean(axis=0, keepdims=True)).sum()


def raw_forward_model(key: Array, data: Transition, held: Transition) -> Float[Array, ""]:
    """What a network as large as ICM's leaves unexplained of the observations themselves."""
    inputs, seen = jnp.concatenate([data.observation, data.action], axis=1), data.next_observation

    def body(i: Array, carry: Any) -> Any:
        model, optimiser = carry
        picks = jax.random.randint(jax.random.fold_in(key, i), (32,), 0, seen.shape[0])
        grads = jax.grad(lambda m: jnp.square(m(inputs[picks]) - seen[picks]).mean())(model)
        return adam_step(model, grads, optimiser, 1e-3)

    model = make_mlp(key, (inputs.shape[1], 32, seen.shape[1]))
    model, _ = jax.lax.fori_loop(0, 600, body, (model, adam_init(model)))
    guess = model(jnp.concatenate([held.observation, held.action], axis=1))
    return unexplained(guess - held.next_observation, held.next_observation)


def test_noise_that_no_action_moves_is_not_worth_much() -> None:
    """Two coordinates that are walked in and one of pure noise: a third of the variance is nobody's to predict.

    A forward model of the raw observation is left with that third for good; in ICM's features it is nearly gone.
    """
    spec, bonus = TaskSpec("noisy", Box(3, -1.0, 1.0), Box(2, -1.0, 1.0), 1), ICM(**SMALL)

    def shares(key: Array, data: Transition, held: Transition) -> tuple[Array, Array]:
        state = observed(bonus, bonus.init(key, spec), data)
        scaled = partial(standardised, state.observations)
        raw = [
            d._replace(observation=scaled(d.observation), next_observation=scaled(d.next_observation))
            for d in (data, held)
        ]
        state = trained(bonus, state, data, 600)
        features = state.networks.encoder(raw[1].next_observation)
        spread = jnp.square(features - features.mean(axis=0, keepdims=True)).sum()
        return 2 * surprise(bonus, state, held).forward.sum() / spread, raw_forward_model(key, *raw)

    seeds = range(3)
    data, held = (stacked([walk(s + shift, spec, n, noise=1) for s in seeds]) for shift, n in ((0, 2000), (10, 500)))
    ours, plain = jax.jit(jax.vmap(shares))(jax.random.split(KEY, 3), data, held)
    assert (np.asarray(plain) > 1 / 4).all()
    assert (np.asarray(ours) < np.asarray(plain) / 10).all()


def test_bonus_falls_on_known_data_and_stays_high_far_away() -> None:
    bonus = ICM(**SMALL)
    data, known, far = walk(0, PLANE, 1000, -1.0, 0.0), walk(1, PLANE, 200, -1.0, 0.0), walk(2, PLANE, 200, 1.0, 2.0)
    start = observed(bonus, made(bonus, KEY, PLANE), data)
    end = trained(bonus, start, data, 1000)
    before, after, away = (
        float(surprise(bonus, state, data).forward.mean()) for state, data in ((start, known), (end, known), (end, far))
    )
    assert after < before / 10
    assert away > 10 * after


def test_numbered_states_and_actions() -> None:
    """Six states in a ring, two actions; only the moves from the first three are ever made."""
    bonus = ICM(**SMALL)
    rng = np.random.default_rng(0)
    place, action = rng.integers(0, 3, 500), rng.integers(0, 2, 500)
    data = transitions(place, action, (place + 2 * action - 1) % 6)
    state = observed(bonus, made(bonus, KEY, GRID), data)
    assert state.observations.mean.shape == (6,)
    each = transitions(np.arange(6), np.ones(6, int), (np.arange(6) + 1) % 6)
    before, after = (np.asarray(surprise(bonus, s, each).forward) for s in (state, trained(bonus, state, data, 1000)))
    assert (after[:3] < before[:3] / 10).all()
    assert after[3:].min() > 10 * after[:3].max()


def test_a_batch_of_one_and_observations_that_never_change() -> None:
    bonus = ICM(**SMALL)
    assert isinstance(bonus, Bonus) and bonus.largest == 0.0
    bonus.check(PLANE)
    bonus.check(GRID)
    one = transitions([[3.0, -7.0]], [[0.5, 0.5]], [[3.0, -7.0]])
    state = made(bonus, KEY, PLANE)
    for _ in range(20):
        state = observed(bonus, state, one)
        expected = surprise(bonus, state, one).forward
        paid, state, loss = learned(bonus, state, one)
        np.testing.assert_allclose(np.asarray(paid), np.asarray(expected), rtol=1e-4)
        assert paid.shape == (1,) and loss.shape == ()
    assert all(np.isfinite(leaf).all() for leaf in [paid, loss, *jax.tree.leaves(state)])
    assert int(state.observations.seen) == 20
    plain = ICM(**SMALL, normalise=False)
    assert plain.observe(state, jax.tree.map(lambda leaf: leaf[0], one)) is state


def test_several_runs_at_once_equal_each_alone() -> None:
    with jax.enable_x64(True):
        bonuses = [ICM(lr=lr, forward_weight=w, **SMALL) for lr, w in ((1e-4, 0.2), (3e-3, 0.5), (1e-3, 0.1))]
        keys, data = jax.random.split(KEY, 3), [walk(seed, STEPS, 12) for seed in range(3)]
        states = [made(bonus, key, STEPS) for bonus, key in zip(bonuses, keys, strict=True)]
        alone = [learned(*run) for run in zip(bonuses, states, data, strict=True)]
        together = jax.vmap(learned)(stack_runs(bonuses), stacked(states), stacked(data))
        for i, one in enumerate(alone):
            for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(one), strict=True):
                np.testing.assert_allclose(np.asarray(a)[i], np.asarray(b), rtol=1e-9, atol=1e-12)


def test_impossible_numbers_are_refused() -> None:
    bad: dict[str, Any] = {"lr": 0.0, "forward_weight": 1.5, "widths": (), "features": 0, "share": 0.0}
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"icm.{name}"):
            ICM(**{name: value})

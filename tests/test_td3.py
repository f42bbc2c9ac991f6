"""TD3: its losses by hand on tiny networks, its noise, its delay, its hyper-parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.learners.base import UpdateInfo
from hyper_rl.learners.td3 import TD3, TD3State, actor_loss, critic_loss, critic_values, policy_action, td_target
from hyper_rl.networks import MLP, adam_init
from hyper_rl.presets import find_preset
from hyper_rl.types import Transition

KEY = jax.random.key(0)
SPEC = TaskSpec("line", Box(1, -1.0, 1.0), Box(1, -1.0, 1.0), 1)


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def affine(weight: list[list[float]], bias: float) -> MLP:
    return MLP((array(*weight),), (array(bias),), False)


def stacked(*members: MLP) -> MLP:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def state_of(actor: MLP, critics: MLP, actor_target: MLP, critics_target: MLP) -> TD3State:
    zero = jnp.zeros((), float)
    return TD3State(actor, critics, actor_target, critics_target, adam_init(actor), adam_init(critics), zero)


def batch_of(count: int, *, reward: float = 0.0, terminated: bool = False) -> Transition:
    zeros = jnp.zeros((count, 1), float)
    return Transition(zeros, zeros, jnp.full((count,), reward, float), zeros, jnp.full((count,), terminated))


def leaves_equal(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


def update(
    learner: TD3, state: TD3State, batch: Transition, rewards: Float[Array, " batch"], seed: int, index: int
) -> tuple[TD3State, UpdateInfo]:
    return COMPILED(learner, state, batch, rewards, jax.random.key(seed), jnp.asarray(index))


# The learner is data, so one compilation serves every test whose networks and batch have the same shape.
COMPILED = jax.jit(TD3.update)
ZERO_ACTOR = affine([[0.0]], 0.0)
ZERO_CRITICS = stacked(affine([[0.0], [0.0]], 0.0), affine([[0.0], [0.0]], 0.0))


def test_td_target_by_hand() -> None:
    # 1 + 0.9 * 2 = 2.8; terminated: 1; a value that is infinite where it does not count does not leak in.
    y = td_target(array(1.0, 1.0, 1.0), jnp.asarray([False, True, True]), array(2.0, 2.0, jnp.inf), 0.9)
    np.testing.assert_allclose(np.asarray(y), [2.8, 1.0, 1.0], rtol=1e-6)


def test_critic_loss_by_hand() -> None:
    # Q_1 = relu(s + 2a - 1) * 3 + 0.5, Q_2 = s - a (as relu(s - a) - relu(a - s), all in two hidden units).
    # (s, a) = (1, 0.5): Q_1 = relu(1) * 3 + 0.5 = 3.5, Q_2 = 0.5; target 3: errors 0.5 and -2.5
    # (s, a) = (-1, 0.5): Q_1 = relu(-1) * 3 + 0.5 = 0.5, Q_2 = -1.5; target 0: errors 0.5 and -1.5
    # Means of squares: (0.25 + 0.25) / 2 = 0.25 and (6.25 + 2.25) / 2 = 4.25; their sum 4.5
    first = MLP((array([1.0, 0.0], [2.0, 0.0]), array([3.0], [0.0])), (array(-1.0, 0.0), array(0.5)), False)
    second = MLP((array([1.0, -1.0], [-1.0, 1.0]), array([1.0], [-1.0])), (array(0.0, 0.0), array(0.0)), False)
    critics, s, a = stacked(first, second), array([1.0], [-1.0]), array([0.5], [0.5])
    np.testing.assert_allclose(np.asarray(critic_values(critics, s, a)), [[3.5, 0.5], [0.5, -1.5]], rtol=1e-6)
    assert float(critic_loss(critics, s, a, array(3.0, 0.0))) == pytest.approx(4.5, rel=1e-6)


def test_actor_loss_and_its_gradient_by_hand() -> None:
    # pi(s) = tanh(2s - 1), Q_1 = s - 3a. s = 0.5: a = tanh(0) = 0, Q_1 = 0.5; s = 1: a = tanh(1) = 0.76159416,
    # Q_1 = 1 - 2.28478247 = -1.28478247. Loss = -(0.5 - 1.28478247) / 2 = 0.39239123
    # d loss / d bias = 3 * mean(1 - a^2) = 3 * (1 + 0.41997434) / 2 = 2.12996151; the second critic has no say.
    actor = affine([[2.0]], -1.0)
    critics = stacked(affine([[1.0], [-3.0]], 0.0), affine([[100.0], [100.0]], 100.0))
    loss, grads = jax.value_and_grad(actor_loss)(actor, critics, array([0.5], [1.0]))
    assert float(loss) == pytest.approx(0.39239123, rel=1e-6)
    assert float(grads.biases[0][0]) == pytest.approx(2.12996151, rel=1e-6)


def test_one_update_by_hand() -> None:
    # pi' = pi = tanh(0) = 0, no noise; Q'_1 = 4, Q'_2 = 2, so y = 1 + 0.5 * 2 = 2. Q_1 = 0, Q_2 = 5, at s = a = 0.
    # Loss = (0 - 2)^2 + (5 - 2)^2 = 13. Only biases have a gradient (-4 and 6), and Adam's first step has the size of
    # the rate: Q_1's bias goes to +0.1, Q_2's to 4.9. The first update moves nothing else.
    critics = stacked(affine([[0.0], [-2.0]], 0.0), affine([[0.0], [0.0]], 5.0))
    targets = stacked(affine([[0.0], [0.0]], 4.0), affine([[0.0], [0.0]], 2.0))
    learner = TD3(lr=0.1, gamma=0.5, tau=0.25, target_noise=0.0)
    state = state_of(ZERO_ACTOR, critics, ZERO_ACTOR, targets)
    batch, ones = batch_of(64), jnp.ones((64,), float)
    first, info = update(learner, state, batch, ones, 0, 1)
    assert float(info.loss) == pytest.approx(13.0, rel=1e-6)
    np.testing.assert_allclose(np.asarray(first.critics.biases[0])[:, 0], [0.1, 4.9], rtol=1e-5)
    np.testing.assert_array_equal(np.asarray(first.critics.weights[0]), np.asarray(critics.weights[0]))
    assert leaves_equal(first.critics_target, targets) and leaves_equal(first.actor, ZERO_ACTOR)

    # The second update: Q = 0.1 and 4.9, y still 2, loss 1.9^2 + 2.9^2 = 12.02. Then the actor, against Q_1 = b - 2a:
    # loss -b, gradient of its bias +2, so the bias goes to -0.1; then targets move a quarter of the way.
    second, info = update(learner, first, batch, ones, 0, 2)
    assert float(info.loss) == pytest.approx(12.02, rel=1e-5)
    after = np.asarray(second.critics.biases[0])[:, 0]
    assert float(info.actor_loss) == pytest.approx(-after[0], rel=1e-6)
    assert float(second.actor.biases[0][0]) == pytest.approx(-0.1, rel=1e-5)
    assert float(second.actor_target.biases[0][0]) == pytest.approx(-0.025, rel=1e-5)
    moved = np.asarray(second.critics_target.biases[0])[:, 0]
    np.testing.assert_allclose(moved, 0.75 * np.array([4.0, 2.0]) + 0.25 * after, rtol=1e-6)


def test_rewards_given_replace_those_of_the_batch_and_termination_stops_the_bootstrap() -> None:
    # Q = 0, Q' = 7. Terminated: y = 3, loss 2 * 9 = 18; else y = 3 + 0.99 * 7 = 9.93, loss 2 * 98.6049.
    state = state_of(ZERO_ACTOR, ZERO_CRITICS, ZERO_ACTOR, stacked(*[affine([[0.0], [0.0]], 7.0)] * 2))
    for terminated, expected in ((True, 18.0), (False, 2 * 9.93**2)):
        batch = batch_of(64, reward=-50.0, terminated=terminated)
        _, info = update(TD3(), state, batch, jnp.full((64,), 3.0, float), 0, 1)
        assert float(info.loss) == pytest.approx(expected, rel=1e-5)


def test_target_noise_is_clipped_and_the_smaller_critic_is_taken() -> None:
    # Noise of deviation 1e4 clipped at 0.5 is +0.5 or -0.5. Q'_1 = a', Q'_2 = -a': the smaller is -0.5 either way,
    # y = 1 - 0.9 * 0.5 = 0.55 and the loss against Q = 0 is 2 * 0.55^2.
    targets = stacked(affine([[0.0], [1.0]], 0.0), affine([[0.0], [-1.0]], 0.0))
    state = state_of(ZERO_ACTOR, ZERO_CRITICS, ZERO_ACTOR, targets)
    learner = TD3(gamma=0.9, target_noise=1e4, noise_clip=0.5)
    _, info = update(learner, state, batch_of(64), jnp.ones((64,), float), 0, 1)
    assert float(info.loss) == pytest.approx(2 * 0.55**2, rel=1e-5)


def test_target_noise_has_its_deviation() -> None:
    # Q' = a' = noise of deviation 0.2 clipped at 0.5, Q = 0, gamma 1/2, r = 0: loss = E[noise^2] / 2. Clipping at 2.5
    # deviations keeps 1 - 2 (2.5 phi(2.5) + Phi(-2.5)) + 2 * 6.25 Phi(-2.5) = 0.9776 of the variance 0.04.
    phi, tail = 0.017528300, 0.006209665
    second_moment = 0.04 * (1 - 2 * (2.5 * phi + tail) + 2 * 6.25 * tail)
    state = state_of(ZERO_ACTOR, ZERO_CRITICS, ZERO_ACTOR, stacked(*[affine([[0.0], [1.0]], 0.0)] * 2))
    count = 100_000
    _, info = update(TD3(gamma=0.5), state, batch_of(count), jnp.zeros((count,), float), 0, 1)
    # Relative standard error of the mean square of 1e5 numbers: sqrt(2 / 1e5) = 0.0045.
    assert float(info.loss) == pytest.approx(second_moment / 2, rel=0.02)


def test_target_action_is_clipped_to_the_action_range() -> None:
    # pi' = tanh(20) = 1 and noise +-0.5, so a' = 1 (clipped from 1.5) or 0.5. With Q' = a', Q = 0 and gamma = 1/2
    # the loss is (share + (1 - share) / 4) / 2, `share` being how often the noise was positive; unclipped: over 1/2.
    state = state_of(ZERO_ACTOR, ZERO_CRITICS, affine([[0.0]], 20.0), stacked(*[affine([[0.0], [1.0]], 0.0)] * 2))
    learner = TD3(gamma=0.5, target_noise=1e4)
    for seed in range(4):
        _, info = update(learner, state, batch_of(64), jnp.zeros((64,), float), seed, 1)
        positive = 64 * (2 * float(info.loss) - 0.25) / 0.75
        assert 10 < positive < 54 and positive == pytest.approx(round(positive), abs=1e-3)


def test_policy_delay_holds_actor_and_targets_on_odd_updates() -> None:
    learner = TD3(widths=(8,), batch_size=64)
    state = learner.init(KEY, SPEC, jnp.zeros((), float))
    draws = np.random.default_rng(1).normal(size=(3, 64, 1))
    s, a, s_next = (jnp.asarray(draw, float) for draw in draws)
    batch = Transition(s, a, s[:, 0], s_next, jnp.zeros((64,), bool))
    for index in range(1, 7):
        before = state
        state, info = update(learner, state, batch, batch.reward, index, index)
        assert not leaves_equal(state.critics, before.critics)
        if index % 2 == 1:
            assert leaves_equal((state.actor, state.actor_optimiser), (before.actor, before.actor_optimiser))
            assert leaves_equal(state.actor_target, before.actor_target)
            assert leaves_equal(state.critics_target, before.critics_target)
            assert float(info.actor_loss) == float(before.actor_loss)
            continue
        assert not leaves_equal(state.actor, before.actor)
        follow(state.actor_target, before.actor_target, state.actor)
        follow(state.critics_target, before.critics_target, state.critics)
        # The actor climbed against the critics as they are after this very update.
        climbed = jax.jit(actor_loss)(before.actor, state.critics, s)
        assert float(info.actor_loss) == pytest.approx(float(climbed), rel=1e-4)
    assert int(state.actor_optimiser.steps) == 3 and int(state.critics_optimiser.steps) == 6


def follow(target: MLP, old: MLP, online: MLP) -> None:
    """`target` went from `old` half a percent of the way to `online`."""
    for got, was, to in zip(*(jax.tree.leaves(net) for net in (target, old, online)), strict=True):
        wanted = 0.995 * np.asarray(was) + 0.005 * np.asarray(to)
        np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-5, atol=1e-7)


def test_acting_noise_has_deviation_a_tenth_and_stays_in_range() -> None:
    learner = TD3()
    keys, observation = jax.random.split(KEY, 20_000), array(0.3)
    idle = state_of(ZERO_ACTOR, ZERO_CRITICS, ZERO_ACTOR, ZERO_CRITICS)
    actions = np.asarray(jax.vmap(learner.act, in_axes=(None, None, 0))(idle, observation, keys))[:, 0]
    # Standard errors: 0.1 / sqrt(20000) = 0.0007 of the mean, 0.1 / sqrt(40000) = 0.0005 of the deviation.
    assert abs(actions.mean()) < 0.004 and actions.std() == pytest.approx(0.1, abs=0.0025)
    full = idle._replace(actor=affine([[0.0]], 20.0))
    pushed = np.asarray(jax.vmap(learner.act, in_axes=(None, None, 0))(full, observation, keys))[:, 0]
    assert pushed.max() == 1.0 and 0.4 < (pushed == 1.0).mean() < 0.6


def test_judged_action_has_no_noise_and_the_estimate_is_its_value() -> None:
    # pi(0.3) = tanh(2 * 0.3 - 1) = tanh(-0.4) = -0.37994896; Q_1 = 0.3 - 3a = 1.43984689
    actor = affine([[2.0]], -1.0)
    critics = stacked(affine([[1.0], [-3.0]], 0.0), affine([[100.0], [100.0]], 100.0))
    learner, state = TD3(), state_of(actor, critics, actor, critics)
    for seed in range(3):
        action = learner.judge(learner.policy(state), array(0.3), jax.random.key(seed))
        assert float(action[0]) == pytest.approx(-0.37994896, rel=1e-6)
    assert float(learner.estimate(learner.policy(state), array(0.3))) == pytest.approx(1.43984689, rel=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_initial_state(layer_norm: bool) -> None:
    """Weights within PyTorch's bounds, two different critics, targets equal to what they follow."""
    learner = TD3(layer_norm=layer_norm)
    state = learner.init(KEY, TaskSpec("x", Box(4, -1.0, 1.0), Box(2, -1.0, 1.0), 1), jnp.asarray(123.0, float))
    assert [w.shape for w in state.actor.weights] == [(4, 256), (256, 256), (256, 2)]
    assert [w.shape for w in state.critics.weights] == [(2, 6, 256), (2, 256, 256), (2, 256, 1)]
    for network, fan_ins in ((state.actor, (4, 256, 256)), (state.critics, (6, 256, 256))):
        for fan_in, weight, bias in zip(fan_ins, network.weights, network.biases, strict=True):
            for values in (np.asarray(weight), np.asarray(bias)):
                assert np.abs(values).max() <= fan_in**-0.5 * (1 + 1e-6)
        # 65,536 draws come close to the bound.
        assert np.abs(np.asarray(network.weights[1])).max() > 0.999 / 16
    assert np.abs(np.asarray(state.critics.weights[1][0] - state.critics.weights[1][1])).max() > 0.05
    assert leaves_equal(state.actor, state.actor_target) and leaves_equal(state.critics, state.critics_target)
    assert state.critics.layer_norm is layer_norm and state.actor.layer_norm is False
    action = np.asarray(policy_action(state.actor, jnp.ones((1, 4), float)))
    assert action.shape == (1, 2) and np.abs(action).max() < 1


def test_hyper_parameters_of_the_paper_preset_are_the_authors() -> None:
    learner = find_preset("paper").learners["td3"]
    assert (learner.lr, learner.gamma, learner.tau) == (3e-4, 0.99, 0.005)
    assert (learner.action_noise, learner.target_noise, learner.noise_clip) == (0.1, 0.2, 0.5)
    assert (learner.batch_size, learner.policy_delay, learner.widths) == (256, 2, (256, 256))
    assert learner.layer_norm is False and find_preset("robust").learners["td3"].layer_norm is True


def test_discrete_tasks_and_impossible_numbers_are_refused() -> None:
    box, few = Box(2, -1.0, 1.0), Discrete(2)
    TD3().check(SPEC)
    with pytest.raises(UserError, match=r"'td3' needs continuous actions, and grid .*use 'dqn' or 'tabular_q'$"):
        TD3().check(TaskSpec("grid", few, few, 2))
    with pytest.raises(UserError, match=r"'td3' needs continuous actions, and cart .*use 'dqn'$"):
        TD3().check(TaskSpec("cart", box, few, 1))
    with pytest.raises(UserError, match=r"'td3' needs continuous observations, and those of odd are discrete"):
        TD3().check(TaskSpec("odd", few, box, 2))
    bad: dict[str, Any] = {"lr": 0.0, "gamma": 1.5, "tau": 0.0, "batch_size": 0, "policy_delay": 0, "widths": ()}
    for name, value in bad.items():
        with pytest.raises(UserError, match=f"td3.{name}"):
            TD3(**{name: value})

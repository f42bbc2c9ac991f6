"""The cart and its pole against Gymnasium's CartPole-v1."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from hyper_rl.envs.base import Discrete, Task
from hyper_rl.envs.cartpole import HORIZON, MAX_ANGLE, CartPole, CartPoleState

KEY = jax.random.key(0)


def theirs() -> Any:
    return gymnasium.make("CartPole-v1").unwrapped


def test_single_steps_equal_gymnasium_everywhere_even_beyond_the_limits() -> None:
    rng = np.random.default_rng(0)
    states = rng.uniform(-1, 1, (2_000, 4)) * np.array([3.0, 4.0, 0.3, 4.0])
    actions = rng.integers(0, 2, 2_000)
    env, expected, ends = theirs(), np.zeros((2_000, 4)), np.zeros(2_000, bool)
    env.reset(seed=0)
    for i, (state, action) in enumerate(zip(states, actions, strict=True)):
        env.state, env.steps_beyond_terminated = tuple(state), None
        _, reward, ends[i], truncated, _ = env.step(int(action))
        expected[i] = env.state
        assert reward == 1.0 and not truncated
    assert 0.2 < ends.mean() < 0.8

    with jax.enable_x64(True):
        begin = CartPoleState(*jnp.asarray(states.T))
        result = jax.vmap(CartPole().step, in_axes=(0, 0, None))(begin, jnp.asarray(actions, jnp.int32), KEY)
        observations = np.asarray(jax.vmap(CartPole().observe)(result.state))
    assert observations.dtype == np.float64
    # Values up to 5 in float64: a few units in the last place.
    assert np.abs(observations - expected).max() < 1e-14
    np.testing.assert_array_equal(np.asarray(result.terminated), ends)
    assert (np.asarray(result.reward) == 1.0).all() and not np.asarray(result.success).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_500_balanced_steps_equal_gymnasium(seed: int) -> None:
    """A balancing rule with a few blunders keeps the episode going for all its steps and off the fixed point."""
    env, rng = theirs(), np.random.default_rng(seed)
    env.reset(seed=seed)
    actions, states = [], [env.state]
    for _ in range(HORIZON):
        x, speed, angle, turning = env.state
        action = int(angle + 0.5 * turning + 0.02 * x + 0.05 * speed > 0)
        actions.append(1 - action if rng.uniform() < 0.05 else action)
        assert not env.step(actions[-1])[2]
        states.append(env.state)
    # Replayed actions do not react, so a rounding error grows as a pole falls: e times in a quarter of a second, 1e17
    # times over the whole episode. One second (50 steps) at a time it grows about 50 times.
    expected = np.array(states[1:]).reshape(10, 50, 4)
    with jax.enable_x64(True):
        task = CartPole()

        def body(state: CartPoleState, action: Array) -> tuple[CartPoleState, Array]:
            state = task.step(state, action, KEY).state
            return state, task.observe(state)

        begin = CartPoleState(*jnp.asarray(np.array(states[:-1:50]).T))
        played = jnp.asarray(actions, jnp.int32).reshape(10, 50)
        _, observations = jax.vmap(lambda state, one: jax.lax.scan(body, state, one))(begin, played)
    assert np.abs(np.asarray(observations) - expected).max() < 1e-13


def test_spec_and_horizon_are_gymnasiums() -> None:
    task, env = CartPole(), gymnasium.make("CartPole-v1")
    assert isinstance(task, Task)
    assert env.spec is not None and int(task.horizon) == env.spec.max_episode_steps == 500
    assert isinstance(env.action_space, gymnasium.spaces.Discrete) and task.spec.action == Discrete(2)
    assert env.action_space.n == 2 and env.observation_space.shape == (4,)
    assert env.unwrapped.theta_threshold_radians == MAX_ANGLE  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="horizon"):
        CartPole(horizon=0)


def test_shown_observation_is_gymnasiums_order() -> None:
    env = gymnasium.make("CartPole-v1")
    shown, _ = env.reset(seed=5)
    state = CartPoleState(*jnp.asarray(env.unwrapped.state, float))  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.asarray(CartPole().observe(state)), shown, atol=1e-8)


def test_reset_is_uniform_and_small() -> None:
    states = np.asarray(jax.vmap(lambda key: CartPole().observe(CartPole().reset(key)))(jax.random.split(KEY, 20_000)))
    assert states.shape == (20_000, 4) and np.abs(states).max() <= 0.05
    for values in states.T:
        scaled = np.sort(values / 0.1 + 0.5)
        # Kolmogorov-Smirnov distance from the uniform law; 2.2 / sqrt(n) is exceeded once in 8000.
        assert np.abs(scaled - np.linspace(0, 1, len(scaled))).max() < 2.2 / np.sqrt(len(scaled))
    assert np.abs(np.corrcoef(states.T) - np.eye(4)).max() < 0.03


def test_has_one_cell() -> None:
    task = CartPole()
    assert int(task.cell(task.reset(KEY))) == 0 and task.spec.cells == 1

"""The pendulum against Gymnasium's Pendulum-v1."""

from __future__ import annotations

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from hyper_rl.envs.base import Box, Task
from hyper_rl.envs.pendulum import Pendulum, PendulumState

KEY = jax.random.key(0)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("hold", [1, 25])
def test_200_steps_equal_gymnasium(seed: int, hold: int) -> None:
    rng = np.random.default_rng(seed)
    # Beyond the torque limit on purpose; held pushes spin the pendulum past the speed limit and past half a turn.
    actions = np.repeat(rng.uniform(-3, 3, (200 // hold, 1)), hold, axis=0)
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=seed)
    start = np.array(env.state)  # type: ignore[attr-defined]
    angles, speeds, rewards = [], [], []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        angle, speed = env.state  # type: ignore[attr-defined]
        assert not terminated and not truncated
        angles.append(angle)
        speeds.append(speed)
        rewards.append(float(reward))
    # Gymnasium rounds what it shows to float32, so the comparison uses its state.
    expected = np.stack([np.cos(angles), np.sin(angles), speeds], axis=1)

    with jax.enable_x64(True):
        task = Pendulum()

        def body(state: PendulumState, action: Array) -> tuple[PendulumState, tuple[Array, Array]]:
            result = task.step(state, action, KEY)
            return result.state, (task.observe(result.state), result.reward)

        _, (observations, ours) = jax.lax.scan(body, PendulumState(*jnp.asarray(start)), jnp.asarray(actions))
        assert observations.dtype == jnp.float64
    assert np.abs(np.asarray(observations) - expected).max() < 1e-9
    assert np.abs(np.asarray(ours) - np.array(rewards)).max() < 1e-9


def test_shown_observation_is_gymnasiums_order() -> None:
    env = gymnasium.make("Pendulum-v1")
    shown, _ = env.reset(seed=5)
    angle, speed = env.unwrapped.state  # type: ignore[attr-defined]
    ours = Pendulum().observe(PendulumState(jnp.asarray(angle, float), jnp.asarray(speed, float)))
    np.testing.assert_allclose(np.asarray(ours), shown, atol=1e-6)


def test_spec_and_horizon_are_gymnasiums() -> None:
    task, theirs = Pendulum(), gymnasium.make("Pendulum-v1")
    assert isinstance(task, Task)
    assert theirs.spec is not None and int(task.horizon) == theirs.spec.max_episode_steps == 200
    assert isinstance(theirs.action_space, gymnasium.spaces.Box)
    assert task.spec.action == Box(1, float(theirs.action_space.low[0]), float(theirs.action_space.high[0]))
    assert task.spec.observation == Box(3, -8.0, 8.0)
    with pytest.raises(ValueError, match="horizon"):
        Pendulum(horizon=0)


def test_reset_is_uniform_over_all_angles_and_small_speeds() -> None:
    states = jax.vmap(Pendulum().reset)(jax.random.split(KEY, 20_000))
    for values, bound in ((np.asarray(states.angle), np.pi), (np.asarray(states.speed), 1.0)):
        assert np.abs(values).max() <= bound * (1 + 1e-6)
        scaled = np.sort(values / (2 * bound) + 0.5)
        # Kolmogorov-Smirnov distance from the uniform law; 1.95 / sqrt(n) is exceeded once in a thousand.
        assert np.abs(scaled - np.linspace(0, 1, len(scaled))).max() < 1.95 / np.sqrt(len(scaled))


def test_never_terminates_nor_succeeds_and_has_one_cell() -> None:
    task = Pendulum()
    state = task.reset(KEY)
    result = task.step(state, jnp.ones(1), KEY)
    assert not bool(result.terminated) and not bool(result.success)
    assert int(task.cell(result.state)) == 0 and task.spec.cells == 1

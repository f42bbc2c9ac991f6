"""Locomotion under Gymnasium ids: the dense tasks are Gymnasium's own, the sparse ones pay for speed alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from hyper_rl.envs.gym_tasks import task_id
from hyper_rl.envs.gym_tasks.locomotion import MAKERS, THRESHOLDS
from hyper_rl.errors import UserError


def make(name: str, **keywords: Any) -> Any:
    return gymnasium.make(task_id(name), **keywords)


def random_actions(env: Any, count: int) -> list[Any]:
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(count)]


@pytest.mark.parametrize("name", [*MAKERS, *(f"Sparse{name}" for name in THRESHOLDS)])
def test_gymnasiums_own_checker_passes(name: str) -> None:
    env = make(name)
    assert env.spec.max_episode_steps == 1000
    check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", MAKERS)
def test_a_dense_task_is_gymnasiums(name: str) -> None:
    ours, theirs = make(name), gymnasium.make(f"{name}-v5")
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    np.testing.assert_array_equal(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])
    for action in random_actions(ours, 5):
        (seen, *rest), (expected, *others) = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(seen, expected)
        assert rest[:3] == others[:3]


@pytest.mark.parametrize("name", THRESHOLDS)
def test_a_sparse_task_pays_one_above_the_threshold_and_nothing_else(name: str) -> None:
    """Same motion and same ends as the dense task; a threshold in the middle of the speeds seen makes both cases."""
    dense = gymnasium.make(f"{name}-v5")
    actions = random_actions(dense, 40)
    seen = [dense.reset(seed=2)[0]]
    speeds, ends = [], []
    for action in actions:
        observation, _, terminated, _, info = dense.step(action)
        seen.append(observation)
        speeds.append(info["x_velocity"])
        ends.append(terminated)
        if terminated:
            break
    threshold = float(np.median(speeds))
    sparse = make(f"Sparse{name}", threshold=threshold)
    paid = []
    np.testing.assert_array_equal(sparse.reset(seed=2)[0], seen[0])
    for step, (action, ended) in enumerate(zip(actions, ends, strict=False)):
        observation, reward, terminated, truncated, info = sparse.step(action)
        np.testing.assert_array_equal(observation, seen[step + 1])
        assert (reward, terminated, truncated) == (float(info["x_velocity"] > threshold), ended, False)
        assert info["success"] is (reward == 1.0)
        paid.append(reward)
    assert set(paid) == {0.0, 1.0}


def test_falling_ends_a_sparse_episode_and_the_limit_truncates_it() -> None:
    hopper = make("SparseHopper")
    hopper.reset(seed=0)
    ends = [hopper.step(action)[2:4] for action in random_actions(hopper, 100)]
    assert (True, False) in ends
    cheetah = make("SparseHalfCheetah", max_episode_steps=4)
    cheetah.reset(seed=0)
    ends = [cheetah.step(action)[2:4] for action in random_actions(cheetah, 4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_making_a_task_writes_no_log_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in MAKERS:
        make(name)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_default_thresholds_and_options() -> None:
    for name, threshold in {"Hopper": 2.0, "Walker2d": 2.0, "HalfCheetah": 4.0, "Humanoid": 2.0}.items():
        assert make(f"Sparse{name}").unwrapped.threshold == threshold
    still = make("SparseHopper", threshold=1, reset_noise_scale=0.0)
    copied = pickle.loads(pickle.dumps(still.unwrapped))
    assert copied.threshold == 1
    np.testing.assert_array_equal(copied.reset(seed=0)[0], still.reset(seed=1)[0])
    with pytest.raises(UserError, match="threshold: got nan"):
        make("SparseHopper", threshold=float("nan"))


def test_a_sparse_episode_is_a_function_of_its_seed() -> None:
    env, other = make("SparseWalker2d"), make("SparseWalker2d")
    actions = random_actions(env, 10)
    first = env.reset(seed=4)[0]
    np.testing.assert_array_equal(first, other.reset(seed=4)[0])
    for action in actions:
        np.testing.assert_array_equal(env.step(action)[0], other.step(action)[0])
    assert not np.array_equal(first, other.reset(seed=5)[0])

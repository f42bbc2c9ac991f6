"""MiniGrid under Gymnasium ids: encodings, Fetch's sentence, the cap, seeds."""

from __future__ import annotations

import pickle
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from minigrid.core.constants import COLOR_TO_IDX, OBJECT_TO_IDX, STATE_TO_IDX

from hyper_rl.envs.gym_tasks import task_id
from hyper_rl.envs.gym_tasks.minigrid import (
    COLOURS,
    FETCHED,
    KINDS,
    SETTINGS,
    MiniGridTaskEnv,
    encode_one_hot,
    encode_raw,
    encode_target,
)
from hyper_rl.envs.gym_tasks.minigrid_view import view
from hyper_rl.errors import UserError

LEFT, RIGHT, FORWARD, PICKUP = 0, 1, 2, 3
NATIVE = {"Empty-5x5": 100, "Empty-16x16": 1024, "Fetch-8x8": 320, "UnlockPickup": 288, "LavaCrossingS9N1": 324}


def make(name: str, **keywords: Any) -> Any:
    return gymnasium.make(task_id(name), **keywords)


@pytest.mark.parametrize("encoding", ["raw", "one-hot"])
@pytest.mark.parametrize("name", SETTINGS)
def test_gymnasiums_own_checker_passes(name: str, encoding: str) -> None:
    env = make(name, encoding=encoding)
    check_env(env.unwrapped, skip_render_check=True)
    size = {"raw": 147, "one-hot": 980}[encoding] + (8 if name == "Fetch-8x8" else 0)
    assert env.observation_space.shape == (size,)
    assert env.action_space.n == 7


def test_the_numbers_of_kinds_are_minigrids() -> None:
    assert (len(OBJECT_TO_IDX), len(COLOR_TO_IDX), len(STATE_TO_IDX)) == KINDS
    assert tuple(COLOR_TO_IDX) == COLOURS
    assert list(COLOR_TO_IDX.values()) == list(range(6))


def test_both_encodings_hold_the_whole_view() -> None:
    view = np.random.default_rng(0).integers(0, KINDS, (7, 7, 3)).astype(np.uint8)
    raw, one_hot = encode_raw(view), encode_one_hot(view)
    assert raw.dtype == one_hot.dtype == np.float32
    np.testing.assert_array_equal(raw.reshape(7, 7, 3), view)
    parts = np.split(one_hot.reshape(7, 7, 20), [11, 17], axis=-1)
    assert all((part.sum(axis=-1) == 1).all() for part in parts)
    np.testing.assert_array_equal(np.stack([part.argmax(axis=-1) for part in parts], axis=-1), view)


def test_the_view_is_minigrids_own() -> None:
    ours, theirs = make("UnlockPickup"), gymnasium.make("MiniGrid-UnlockPickup-v0")
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0]["image"].ravel())
    for action in np.random.default_rng(0).integers(0, 7, 50):
        (seen, *rest), (expected, *others) = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(seen, expected["image"].ravel())
        assert rest[:3] == others[:3]


def test_fetchs_sentence_names_the_target_in_every_wording() -> None:
    encoded = [encode_target(f"{start} purple ball").tolist() for start in ("get a", "go fetch a", "you must fetch a")]
    assert encoded == [[0, 0, 0, 1, 0, 0, 0, 1]] * 3
    env = make("Fetch-8x8")
    targets = set()
    for seed in range(100):
        observation, _ = env.reset(seed=seed)
        colour, kind = observation[147:153], observation[153:]
        assert colour.sum() == kind.sum() == 1
        grid = env.unwrapped._grid
        target = (COLOURS[colour.argmax()], FETCHED[kind.argmax()])
        assert target == (grid.targetColor, grid.targetType)
        targets.add(target)
        np.testing.assert_array_equal(env.step(LEFT)[0][147:], observation[147:])
    assert len(targets) == 12, "all colours and both types occur"


def fetch(env: Any, seed: int, wanted: bool) -> tuple[Any, ...] | None:
    """Pick up an object that the observation says is (or is not) the target, if one comes to stand ahead."""
    observation, _ = env.reset(seed=seed)
    target = (OBJECT_TO_IDX[FETCHED[observation[153:].argmax()]], observation[147:153].argmax())
    for action in [*[FORWARD] * 5, RIGHT] * 8:
        kind, colour, _ = observation[:147].reshape(7, 7, 3)[3, 5]
        if kind in (5, 6) and ((kind, colour) == target) is wanted:
            return tuple(env.step(PICKUP)[1:])
        observation, *_ = env.step(action)
    return None


def test_fetch_is_solved_by_reading_the_observation_alone() -> None:
    env = make("Fetch-8x8", max_steps="native")
    right = [result for seed in range(40) if (result := fetch(env, seed, True)) is not None]
    wrong = [result for seed in range(40) if (result := fetch(env, seed, False)) is not None]
    assert len(right) > 5
    assert len(wrong) > 5
    assert all(reward > 0 and ended and not cut and info["success"] for reward, ended, cut, info in right)
    assert all(reward == 0 and ended and not cut and not info["success"] for reward, ended, cut, info in wrong)


def test_episodes_are_cut_at_100_steps_or_as_told() -> None:
    for keywords, cap in (({}, 100), ({"max_steps": 7}, 7), ({"max_steps": "native"}, 1024)):
        env = make("Empty-16x16", **keywords)
        assert env.spec.max_episode_steps == cap
        env.reset(seed=0)
        ends = [env.step(LEFT)[2:4] for _ in range(cap)]
        assert ends[-1] == (False, True)
        assert set(ends[:-1]) == {(False, False)}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_native_limits(name: str) -> None:
    assert make(name, max_steps="native").spec.max_episode_steps == NATIVE[name]


@pytest.mark.parametrize("max_steps", [0, True, 2000, "nativ"])
def test_a_cap_must_make_sense(max_steps: Any) -> None:
    with pytest.raises(UserError, match=r"max_steps: got .* must be native or a whole number from 1 to 1024"):
        make("Empty-16x16", max_steps=max_steps)


def test_success_pays_by_the_native_limit_whatever_the_cap() -> None:
    for keywords in ({}, {"max_steps": 60}):
        env = make("Empty-16x16", **keywords)
        env.reset(seed=0)
        for action in [FORWARD] * 13 + [RIGHT] + [FORWARD] * 12:
            assert env.step(action)[1:4] == (0.0, False, False)
        _, reward, terminated, truncated, info = env.step(FORWARD)
        assert reward == 1 - 0.9 * 27 / 1024
        assert (terminated, truncated, info) == (True, False, {"success": True, "cell": 195})
        assert (env.unwrapped.cell_count, env.unwrapped.cell_grid) == (196, (14, 14))


@pytest.mark.parametrize("name", ["Fetch-8x8", "UnlockPickup", "LavaCrossingS9N1"])
def test_the_layout_is_a_function_of_the_seed_and_new_every_episode(name: str) -> None:
    env = make(name)

    def layout(seed: int | None) -> Any:
        env.reset(seed=seed)
        return env.unwrapped._grid.grid.encode().tolist()

    assert layout(1) == layout(1)
    again, drawn = layout(2), layout(None)
    assert len({str(grid) for grid in (layout(1), again, drawn)}) == 3
    layout(2)
    assert layout(None) == drawn


def test_encoding_is_checked_and_kept_by_a_copy() -> None:
    with pytest.raises(UserError, match="encoding: unknown 'onehot'; did you mean one-hot"):
        make("Empty-5x5", encoding="onehot")
    env = make("LavaCrossingS9N1", encoding="one-hot").unwrapped
    copied = pickle.loads(pickle.dumps(env))
    np.testing.assert_array_equal(copied.reset(seed=1)[0], env.reset(seed=1)[0])


def test_it_is_drawn() -> None:
    env = make("Empty-5x5", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (160, 160, 3)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_fast_view_equals_minigrids_number_by_number(name: str) -> None:
    from minigrid.core import world_object
    from minigrid.minigrid_env import MiniGridEnv

    world, ball = MiniGridTaskEnv(name)._grid, cast(Any, world_object).Ball("green")
    whole_view = cast(Any, MiniGridEnv).gen_obs
    rng = np.random.default_rng(0)
    for episode in range(30):
        world.reset(seed=episode)
        # Random actions rarely open a door or carry something for long.
        for content in world.grid.grid:
            if isinstance(content, world_object.Door):
                content.is_open, content.is_locked = bool(rng.integers(2)), False
        world.carrying = ball if episode % 3 == 0 else None
        for _ in range(20):
            world.agent_pos = (int(rng.integers(1, world.width - 1)), int(rng.integers(1, world.height - 1)))
            _, _, terminated, *_ = world.step(int(rng.integers(7)))
            seen = whole_view(world)
            np.testing.assert_array_equal(view(world), seen["image"])
            fast = world.gen_obs()
            assert (fast["direction"], fast["mission"]) == (seen["direction"], seen["mission"])
            if terminated:
                break

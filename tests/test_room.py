"""The 30x30 room: moves, walls, goals, distances, and its numbers as parameters."""

from __future__ import annotations

from collections import deque
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.envs.base import Discrete, StepResult, Task
from hyper_rl.envs.registry import TASKS
from hyper_rl.envs.room import DOWN, LEFT, RIGHT, UP, Room
from hyper_rl.errors import UserError
from hyper_rl.types import stack_runs

KEY = jax.random.key(0)


@jax.jit
def everywhere(room: Room) -> StepResult:
    """Every action from every cell: leaves of shape [cells, 4]."""
    cells, actions = jnp.arange(room.size**2, dtype=jnp.int32), jnp.arange(4, dtype=jnp.int32)
    step = jax.vmap(jax.vmap(room.step, in_axes=(None, 0, None)), in_axes=(0, None, None))
    return step(cells, actions, KEY)


def distance(room: Room, goal: int) -> int:
    """Shortest path from the start to `goal`, walking through neither goal on the way."""
    result = everywhere(room)
    moved, terminated = np.asarray(result.state), np.asarray(result.terminated)
    start = int(room.reset(KEY))
    steps, frontier = {start: 0}, deque([start])
    while frontier:
        cell = frontier.popleft()
        for action in range(4):
            reached = int(moved[cell, action])
            if reached not in steps:
                steps[reached] = steps[cell] + 1
                if not terminated[cell, action]:
                    frontier.append(reached)
    return steps[goal]


def test_description() -> None:
    room = Room()
    assert isinstance(room, Task) and TASKS["Room"].make is Room
    assert room.spec.observation == Discrete(900) and room.spec.action == Discrete(4)
    assert room.spec.cells == 900 and room.spec.grid == (30, 30)
    assert (room.goal_reward, room.subgoal_reward, room.horizon, room.subgoal) == (1.0, 0.1, 100, (17, 17))


def test_every_episode_starts_in_the_centre() -> None:
    starts = jax.vmap(Room().reset)(jax.random.split(KEY, 100))
    assert set(np.asarray(starts).tolist()) == {15 * 30 + 15}
    assert int(Room().observe(starts[0])) == int(Room().cell(starts[0])) == 465


def test_moves_and_walls() -> None:
    moved = np.asarray(everywhere(Room()).state)
    shifts = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}
    for cell in range(900):
        row, column = divmod(cell, 30)
        for action, (down, right) in shifts.items():
            to_row, to_column = row + down, column + right
            outside = not (0 <= to_row < 30 and 0 <= to_column < 30)
            assert moved[cell, action] == (cell if outside else to_row * 30 + to_column)


def test_goals_rewards_and_success() -> None:
    """Both goals end the episode and pay; only the optimal one is a success; nothing else pays."""
    result = everywhere(Room())
    moved = np.asarray(result.state)
    at_goal, at_subgoal = moved == 899, moved == 17 * 30 + 17
    # Two neighbours lead into the corner, and its two walls keep an agent there; four lead into the sub-goal.
    assert at_goal.sum() == 4 and at_subgoal.sum() == 4
    np.testing.assert_array_equal(np.asarray(result.terminated), at_goal | at_subgoal)
    np.testing.assert_array_equal(np.asarray(result.success), at_goal)
    np.testing.assert_allclose(np.asarray(result.reward), 1.0 * at_goal + 0.1 * at_subgoal)


def test_shortest_paths() -> None:
    room = Room()
    assert distance(room, room.goal_cell) == 28
    assert distance(room, room.subgoal_cell) == 4


def test_goal_is_reached_by_walking() -> None:
    """Right along the middle row, then down: 28 steps, the last one a success."""
    room, cell = Room(), Room().reset(KEY)
    step = jax.jit(room.step)
    for t, action in enumerate([RIGHT] * 14 + [DOWN] * 14):
        result = step(cell, jnp.asarray(action, jnp.int32), KEY)
        cell = result.state
        assert bool(result.terminated) == bool(result.success) == (t == 27)
        assert float(result.reward) == (1.0 if t == 27 else 0.0)
    assert int(cell) == room.goal_cell


def test_parameters() -> None:
    room = Room(goal_reward=5.0, subgoal_reward=-2.0, horizon=60, size=7, subgoal=(1, 5))
    result = everywhere(room)
    moved, reward = np.asarray(result.state), np.asarray(result.reward)
    assert (reward[moved == 48] == 5.0).all() and (reward[moved == 12] == -2.0).all()
    assert np.count_nonzero(reward) == np.count_nonzero((moved == 48) | (moved == 12))
    assert room.horizon == 60 and int(room.reset(KEY)) == 3 * 7 + 3
    assert distance(room, 48) == 6 and distance(room, 12) == 4


def test_rewards_and_horizon_are_data_of_one_program() -> None:
    rooms = stack_runs([Room(goal_reward=1.0, horizon=100), Room(goal_reward=10.0, horizon=200)])
    before_goal, down = jnp.asarray(869, jnp.int32), jnp.asarray(DOWN, jnp.int32)
    paid = jax.vmap(lambda room: room.step(before_goal, down, KEY).reward)(rooms)
    assert np.asarray(paid).tolist() == [1.0, 10.0]
    assert np.asarray(rooms.horizon).tolist() == [100, 200]
    with pytest.raises(UserError, match="static"):
        stack_runs([Room(), Room(subgoal=(13, 17))])


@pytest.mark.parametrize(
    ("name", "value"),
    [("size", 1), ("horizon", 0), ("goal_reward", float("nan")), ("subgoal_reward", float("inf")),
     ("subgoal", (30, 0)), ("subgoal", (-1, 5)), ("subgoal", (15, 15)), ("subgoal", (29, 29))],
)  # fmt: skip
def test_impossible_rooms_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"room.{name}"):
        Room(**{name: value})

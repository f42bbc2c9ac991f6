"""The scripted maze driver: shortest ways, and every goal reached within the shortest horizon of its maze."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest

from hyper_rl.envs.maze import SETTINGS, make_maze
from hyper_rl.envs.maze_controller import drive, shortest_path, stack_gains
from hyper_rl.envs.maze_layout import MEDIUM, MazeLayout
from hyper_rl.threefry import make_key

GAINS = {"MediumMaze": (0.9, 12.0, 0.8), "LargeMaze": (0.5, 3.0, 0.5)}
"""What the study table-2 chooses at the paper's scale."""


def test_the_shortest_way_is_one() -> None:
    path = shortest_path(MEDIUM, (1, 1), (6, 6))
    assert (path[0], path[-1], len(path)) == ((1, 1), (6, 6), 11)
    assert all(not MEDIUM.walls[cell] for cell in path)
    steps = [abs(a - c) + abs(b - d) for (a, b), (c, d) in itertools.pairwise(path)]
    assert steps == [1] * 10
    closed = MazeLayout(("11111", "10101", "11111"))
    with pytest.raises(ValueError, match="no way leads"):
        shortest_path(closed, (1, 1), (1, 3))


@pytest.mark.parametrize("maze", GAINS)
def test_every_goal_is_reached_within_every_horizon(maze: str) -> None:
    tasks = [make_maze(name) for name in SETTINGS if name.startswith(maze)]
    assert len({(task.layout, task.start, task.goal) for task in tasks}) == 1, "they differ in the horizon alone"
    shortest = min(int(task.horizon) for task in tasks)
    found = drive(tasks[0], stack_gains([GAINS[maze]]), jax.random.split(make_key(7), 128), shortest)
    assert found.reached.shape == (1, 128) and found.reached.all()
    assert found.steps.min() > 110 and found.steps.max() < shortest


def test_settings_are_driven_apart_and_the_limit_counts() -> None:
    task = make_maze("MediumMaze-Medium")
    keys = jax.random.split(make_key(0), 4)
    # No force at all stays where it is; the good setting gets there in the same program.
    found = drive(task, stack_gains([(0.0, 0.0, 0.1), GAINS["MediumMaze"]]), keys, 180)
    assert found.reached.tolist() == [[False] * 4, [True] * 4]
    assert np.all(found.steps[0] == 180) and np.all(found.steps[1] < 180)

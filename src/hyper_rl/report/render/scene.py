"""A task seen from above, as plain geometry: what there is to draw, without drawing it.

All coordinates are in cells, x to the right and y downwards, (0, 0) at the upper left corner of the map.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from hyper_rl.envs.base import Task
from hyper_rl.envs.maze import GOAL_RADIUS, PointMaze
from hyper_rl.envs.maze_layout import MazeLayout
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError
from hyper_rl.report.render.paths import Walk

Points = Float[np.ndarray, "points 2"]

LANE = 0.16
"""Distance between the lines of two episodes on a lattice, where they would else hide each other."""


@dataclass(frozen=True)
class Scene:
    """The map of a task."""

    walls: Bool[np.ndarray, "rows columns"]
    lattice: bool
    """The agent jumps from cell to cell; else it moves freely and the border cells are walls."""
    goal_radius: float
    """The goal is reached within this distance."""
    horizon: int
    subgoal: tuple[float, float] | None = None
    """A goal that pays less."""


@dataclass(frozen=True)
class Trail:
    """The path of one episode on the map, and what is told of it."""

    points: Points
    """From the start to where it ended."""
    goal: tuple[float, float]
    walk: Walk


def scene_of(task: Task) -> Scene:
    if isinstance(task, Room):
        row, column = task.subgoal
        return Scene(np.zeros((task.size, task.size), bool), True, 0.5, int(task.horizon), (column + 0.5, row + 0.5))
    if isinstance(task, PointMaze):
        return Scene(task.layout.walls, False, GOAL_RADIUS, int(task.horizon))
    raise UserError(f"task: {task.spec.name} has no map to draw; a Room or a maze has one")


def trails_of(task: Task, walks: list[Walk]) -> list[Trail]:
    return [_trail(task, walk, number - (len(walks) - 1) / 2) for number, walk in enumerate(walks)]


def _trail(task: Task, walk: Walk, lane: float) -> Trail:
    if isinstance(task, Room):
        cells = np.asarray(walk.states)
        middle = np.stack([cells % task.size, cells // task.size], axis=-1) + 0.5
        goal = task.goal_cell
        offset = float(np.clip(lane * LANE, -0.35, 0.35))
        return Trail(middle + offset, (goal % task.size + 0.5, goal // task.size + 0.5), walk)
    assert isinstance(task, PointMaze), "scene_of refuses every other task"
    state = walk.states
    points = to_cells(task.layout, state.ball.x, state.ball.y)
    goal_x, goal_y = to_cells(task.layout, state.goal_x[0], state.goal_y[0])
    return Trail(points, (float(goal_x), float(goal_y)), walk)


def to_cells(layout: MazeLayout, x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "*points 2"]:
    """The maze's own coordinates have their origin in the middle and y upwards."""
    return np.stack([x + layout.columns / 2, layout.rows / 2 - y], axis=-1)

"""Point mazes: steer a ball by force from one corner of a maze to a goal it is never shown.

The tasks are gymnasium-robotics' sparse PointMaze with fixed start and goal cells and `continuing_task=False`,
reduced to the four numbers (x, y, vx, vy). Start and goal are drawn anew in every episode, uniformly within 0.25 of
the middle of their cells; since sqrt(2) * 0.25 is below the goal radius 0.45, the middle of the goal cell always
counts as reached, and hiding the goal leaves the task unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Box, StepResult, TaskSpec
from hyper_rl.envs.maze_layout import LARGE, MEDIUM, Cell, MazeLayout
from hyper_rl.envs.maze_physics import Ball, move_ball

GOAL_RADIUS = 0.45
PLACEMENT_NOISE = 0.25


class MazeState(eqx.Module):
    ball: Ball
    goal_x: Float[Array, ""]
    """The goal is drawn at reset and seen only by the reward."""
    goal_y: Float[Array, ""]


class PointMaze(eqx.Module):
    """One maze task: reward 1 and termination on the first step that ends within `GOAL_RADIUS` of the goal."""

    horizon: Int[Array, ""]
    name: str = eqx.field(static=True)
    layout: MazeLayout = eqx.field(static=True)
    start: Cell = eqx.field(static=True)
    goal: Cell = eqx.field(static=True)

    def __init__(self, name: str, layout: MazeLayout, start: Cell, goal: Cell, horizon: int) -> None:
        layout.require_free(start, "start")
        layout.require_free(goal, "goal")
        if horizon < 1:
            raise ValueError(f"the horizon must be at least 1, not {horizon}")
        self.horizon = jnp.asarray(horizon, jnp.int32)
        self.name, self.layout, self.start, self.goal = name, layout, start, goal

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            name=self.name,
            observation=Box(4, -float("inf"), float("inf")),
            action=Box(2, -1.0, 1.0),
            cells=len(self.layout.free_cells),
            grid=(self.layout.rows, self.layout.columns),
        )

    def reset(self, key: PRNGKeyArray) -> MazeState:
        noise = jax.random.uniform(key, (4,), minval=-PLACEMENT_NOISE, maxval=PLACEMENT_NOISE)
        x, y = self.layout.centre(self.start)
        goal_x, goal_y = self.layout.centre(self.goal)
        still = jnp.zeros((), noise.dtype)
        return MazeState(Ball(x + noise[0], y + noise[1], still, still), goal_x + noise[2], goal_y + noise[3])

    def step(self, state: MazeState, action: Float[Array, "2"], key: PRNGKeyArray) -> StepResult:
        del key  # nothing is random once the episode has begun
        force = action.astype(state.goal_x.dtype)
        ball = move_ball(self.layout, state.ball, force[0], force[1])
        off_x, off_y = ball.x - state.goal_x, ball.y - state.goal_y
        reached = off_x * off_x + off_y * off_y <= GOAL_RADIUS * GOAL_RADIUS
        return StepResult(
            state=MazeState(ball, state.goal_x, state.goal_y),
            reward=reached.astype(ball.x.dtype),
            terminated=reached,
            success=reached,
        )

    def observe(self, state: MazeState) -> Float[Array, "4"]:
        return jnp.stack(state.ball)

    def cell(self, state: MazeState) -> Int[Array, ""]:
        """Index among the free cells, in reading order; `cell_row_column` gives the place in the map."""
        column = jnp.floor(state.ball.x + self.layout.columns / 2)
        row = jnp.floor(self.layout.rows / 2 - state.ball.y)
        index = (row * self.layout.columns + column).astype(jnp.int32)
        return jnp.asarray(self.layout.free_cell_index.ravel()).at[index].get(mode="clip")

    def cell_row_column(self, cell: int) -> Cell:
        """Row and column in the whole map of the free cell with this index, for heat maps."""
        return self.layout.free_cells[cell]


@dataclass(frozen=True)
class MazeSetting:
    """Layout, start and goal cell, and episode limit of a named task."""

    layout: MazeLayout
    start: Cell
    goal: Cell
    horizon: int


# Limits are the paper's. It does not print its cells: these are opposite corners, about 140 and 250 steps apart.
SETTINGS: Mapping[str, MazeSetting] = MappingProxyType(
    {
        "MediumMaze-Easy": MazeSetting(MEDIUM, (1, 1), (6, 6), 500),
        "MediumMaze-Medium": MazeSetting(MEDIUM, (1, 1), (6, 6), 200),
        "LargeMaze-Easy": MazeSetting(LARGE, (1, 1), (7, 10), 1000),
        "LargeMaze-Medium": MazeSetting(LARGE, (1, 1), (7, 10), 500),
        "LargeMaze-Hard": MazeSetting(LARGE, (1, 1), (7, 10), 300),
    }
)


def make_maze(name: str, horizon: int | None = None, start: Cell | None = None, goal: Cell | None = None) -> PointMaze:
    """The named task, with any of its numbers replaced."""
    if name not in SETTINGS:
        raise ValueError(f"no maze called {name!r}; there are {', '.join(SETTINGS)}")
    setting = SETTINGS[name]
    return PointMaze(
        name=name,
        layout=setting.layout,
        start=setting.start if start is None else start,
        goal=setting.goal if goal is None else goal,
        horizon=setting.horizon if horizon is None else horizon,
    )


MAZES: Mapping[str, Callable[[], PointMaze]] = MappingProxyType({name: partial(make_maze, name) for name in SETTINGS})

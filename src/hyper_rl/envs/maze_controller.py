"""A driver for the mazes that learns nothing: shortest path over cells, and a spring and damper towards the next point.

It shows how many steps a good policy needs. What it needs is an upper bound on the optimum, and it sees what a policy
sees: position and velocity, not where in its cell the goal was drawn.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyper_rl.envs.maze import MazeState, PointMaze
from hyper_rl.envs.maze_layout import Cell, MazeLayout


class Gains(NamedTuple):
    """How the controller drives. Array leaves make one program of many settings."""

    cut: Float[np.ndarray | Array, "..."]
    """How far the aim lies beyond the next cell, towards the one after it: 0 keeps to the middle, 1 cuts corners."""
    stiffness: Float[np.ndarray | Array, "..."]
    """Force per unit of distance to the aim; the motor saturates at one."""
    damping: Float[np.ndarray | Array, "..."]
    """Force against each unit of speed."""


CUTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
STIFFNESSES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
DAMPINGS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)


def gain_grid() -> list[tuple[float, float, float]]:
    """All settings that are tried, as (cut, stiffness, damping)."""
    return list(itertools.product(CUTS, STIFFNESSES, DAMPINGS))


def stack_gains(settings: Sequence[tuple[float, float, float]]) -> Gains:
    cut, stiffness, damping = np.asarray(settings, float).T
    return Gains(cut, stiffness, damping)


def shortest_path(layout: MazeLayout, start: Cell, goal: Cell) -> list[Cell]:
    """Cells from start to goal, both included; walls are not crossed and corners not cut."""
    towards = _steps_towards(layout, goal)
    if start not in towards:
        raise ValueError(f"no way leads from cell {start} to cell {goal}")
    path = [start]
    while path[-1] != goal:
        path.append(towards[path[-1]])
    return path


def _steps_towards(layout: MazeLayout, goal: Cell) -> dict[Cell, Cell]:
    """For each cell from which the goal can be reached, the neighbour one step nearer to it."""
    towards, frontier, free = {goal: goal}, [goal], set(layout.free_cells)
    for cell in frontier:
        row, column = cell
        for neighbour in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if neighbour in free and neighbour not in towards:
                towards[neighbour] = cell
                frontier.append(neighbour)
    return towards


class WaypointController(eqx.Module):
    """The way through one maze, as two points for each cell: the next cell's middle, and the one after it."""

    first: Float[np.ndarray, "rows columns 2"]
    second: Float[np.ndarray, "rows columns 2"]

    def __init__(self, layout: MazeLayout, goal: Cell) -> None:
        towards = _steps_towards(layout, goal)
        first = np.zeros((layout.rows, layout.columns, 2))
        second = np.zeros((layout.rows, layout.columns, 2))
        for cell, after in towards.items():
            first[cell], second[cell] = layout.centre(after), layout.centre(towards[after])
        self.first, self.second = first, second

    def act(self, gains: Gains, observation: Float[Array, "4"]) -> Float[Array, "2"]:
        """The action for (x, y, vx, vy)."""
        rows, columns, _ = self.first.shape
        row = jnp.floor(rows / 2 - observation[1]).astype(jnp.int32)
        column = jnp.floor(observation[0] + columns / 2).astype(jnp.int32)
        kind = observation.dtype
        first, second = (jnp.asarray(table, kind)[row, column] for table in (self.first, self.second))
        cut, stiffness, damping = (jnp.asarray(gain, kind) for gain in gains)
        aim = first + cut * (second - first)
        return jnp.clip(stiffness * (aim - observation[:2]) - damping * observation[2:], -1.0, 1.0)


class Drives(NamedTuple):
    """What came of episodes; axes: settings, episodes."""

    reached: Bool[np.ndarray, "settings episodes"]
    steps: Int[np.ndarray, "settings episodes"]
    """Steps to the goal; the limit where it was not reached."""


def drive(task: PointMaze, gains: Gains, keys: PRNGKeyArray, limit: int) -> Drives:
    """Episodes of up to `limit` steps from the starts and with the goals that the task draws from `keys`."""
    controller = WaypointController(task.layout, task.goal)
    reached, steps = jax.device_get(_drive(task, controller, gains, keys, limit=limit))
    return Drives(np.asarray(reached), np.asarray(steps))


@partial(jax.jit, static_argnames=("limit",))
def _drive(
    task: PointMaze, controller: WaypointController, gains: Gains, keys: PRNGKeyArray, *, limit: int
) -> tuple[Bool[Array, "settings episodes"], Int[Array, "settings episodes"]]:
    def episode(mine: Gains, key: PRNGKeyArray) -> tuple[Bool[Array, ""], Int[Array, ""]]:
        def step(carry: tuple[MazeState, Bool[Array, ""]], _: None) -> tuple[tuple[MazeState, Bool[Array, ""]], Array]:
            state, done = carry
            result = task.step(state, controller.act(mine, task.observe(state)), key)
            return (result.state, done | result.success), ~done

        start = (task.reset(key), jnp.zeros((), bool))
        (_, done), counted = jax.lax.scan(step, start, None, length=limit)
        return done, counted.sum(dtype=jnp.int32)

    over_episodes = jax.vmap(episode, in_axes=(None, 0))
    return jax.vmap(over_episodes, in_axes=(0, None))(gains, keys)


def best_gains(task: PointMaze, keys: PRNGKeyArray, limit: int) -> tuple[float, float, float]:
    """The setting with the fewest steps on these episodes, among those that reach every goal."""
    settings = gain_grid()
    found = drive(task, stack_gains(settings), keys, limit)
    mean = np.where(found.reached.all(axis=1), found.steps.mean(axis=1), np.inf)
    if not np.isfinite(mean).any():
        raise ValueError(f"no setting reaches every goal of {task.name} within {limit} steps")
    return settings[int(mean.argmin())]

"""A ball driver for the maze tests: shortest path over cells, and a spring and damper towards the next waypoint.

It runs unchanged on NumPy (beside MuJoCo) and on JAX (inside a batched loop): pass the module as `xp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hyper_rl.envs.maze_layout import Cell, MazeLayout


def next_cells(layout: MazeLayout, goal: Cell) -> dict[Cell, Cell]:
    """For each free cell, the neighbour one step nearer to the goal (the goal itself for the goal)."""
    towards = {goal: goal}
    frontier = [goal]
    free = set(layout.free_cells)
    while frontier:
        row, column = cell = frontier.pop(0)
        for neighbour in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
            if neighbour in free and neighbour not in towards:
                towards[neighbour] = cell
                frontier.append(neighbour)
    return towards


@dataclass(frozen=True)
class WaypointController:
    """Aims `look_ahead` cells along the shortest path; from 2 on it cuts corners and so rubs along the walls."""

    layout: MazeLayout
    goal: Cell
    look_ahead: int
    stiffness: float
    damping: float

    @property
    def targets(self) -> Float[np.ndarray, "rows columns 2"]:
        towards = next_cells(self.layout, self.goal)
        table = np.zeros((self.layout.rows, self.layout.columns, 2))
        for cell in self.layout.free_cells:
            waypoint = cell
            for _ in range(self.look_ahead):
                waypoint = towards[waypoint]
            table[cell] = self.layout.centre(waypoint)
        return table

    def act(self, targets: Any, observation: Any, xp: Any) -> Any:
        """The action for one observation (x, y, vx, vy); `targets` is the table above as an array of `xp`."""
        row = xp.floor(self.layout.rows / 2 - observation[1]).astype(xp.int32)
        column = xp.floor(observation[0] + self.layout.columns / 2).astype(xp.int32)
        pull = self.stiffness * (targets[row, column] - observation[:2]) - self.damping * observation[2:]
        return xp.clip(pull, -1.0, 1.0)

"""Where the walls of a point maze are: maps, cells and coordinates.

A map is a tuple of strings, one per row, `1` for a wall and `0` for a free cell. Cells have side 1 and the maze is
centred on the origin, so cell (row i, column j) has its middle at x = j + 1/2 - columns/2, y = rows/2 - i - 1/2:
rows count downwards, y upwards. Everything here is static: tables are NumPy arrays built while tracing, so they
become constants of the compiled program and are shared by every environment of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Int32

Cell: TypeAlias = tuple[int, int]
"""(row, column) in the whole map."""

WALL_BESIDE, WALL_ABOVE_OR_BELOW, WALL_ACROSS_CORNER = 1, 2, 4
"""Bits of `MazeLayout.walls_near_quadrant`."""


@dataclass(frozen=True)
class MazeLayout:
    """A maze map. Hashable, so that a task may hold it as static data."""

    lines: tuple[str, ...]

    def __post_init__(self) -> None:
        if len({len(line) for line in self.lines}) != 1 or not set("".join(self.lines)) <= {"0", "1"}:
            raise ValueError("a maze map needs rows of one length made of 0 (free) and 1 (wall)")
        walls = self.walls
        if not (walls[0].all() and walls[-1].all() and walls[:, 0].all() and walls[:, -1].all()):
            raise ValueError("the border of a maze map must be wall: the contact model has no outside")

    @property
    def rows(self) -> int:
        return len(self.lines)

    @property
    def columns(self) -> int:
        return len(self.lines[0])

    @property
    def walls(self) -> Bool[np.ndarray, "rows columns"]:
        return np.array([[mark == "1" for mark in line] for line in self.lines])

    @property
    def free_cells(self) -> tuple[Cell, ...]:
        """Free cells in reading order; the position in this tuple is the index that `PointMaze.cell` returns."""
        rows, columns = np.nonzero(~self.walls)
        return tuple(zip(rows.tolist(), columns.tolist(), strict=True))

    @property
    def free_cell_index(self) -> Int32[np.ndarray, "rows columns"]:
        """Index of each free cell. A wall reads 0, an entry nobody sees: the ball's centre cannot be in one."""
        index = np.zeros((self.rows, self.columns), np.int32)
        for number, cell in enumerate(self.free_cells):
            index[cell] = number
        return index

    @property
    def walls_near_quadrant(self) -> Int32[np.ndarray, "half_rows half_columns"]:
        """Which of the three nearest other cells are walls, for each quarter of each cell, as bits.

        A ball that is small against a cell can touch only the cells beside, above or below, and across the corner,
        on its own side of its cell. Their three bits in one table make the lookup of a step a single gather.
        """
        outside = np.pad(self.walls, 1, constant_values=True)
        half_row, half_column = np.indices((2 * self.rows, 2 * self.columns))
        row, column = half_row // 2 + 1, half_column // 2 + 1
        next_row, next_column = row + 2 * (half_row % 2) - 1, column + 2 * (half_column % 2) - 1
        bits = (
            WALL_BESIDE * outside[row, next_column]
            + WALL_ABOVE_OR_BELOW * outside[next_row, column]
            + WALL_ACROSS_CORNER * outside[next_row, next_column]
        )
        return np.asarray(bits, np.int32)

    def centre(self, cell: Cell) -> tuple[float, float]:
        """(x, y) of the middle of a cell."""
        row, column = cell
        return column + 0.5 - self.columns / 2, self.rows / 2 - row - 0.5

    def require_free(self, cell: Cell, role: str) -> None:
        row, column = cell
        if not (0 <= row < self.rows and 0 <= column < self.columns):
            raise ValueError(f"the {role} cell {cell} is outside the {self.rows} by {self.columns} maze")
        if self.walls[cell]:
            raise ValueError(f"the {role} cell {cell} is a wall")


MEDIUM = MazeLayout(
    (
        "11111111",
        "10011001",
        "10010001",
        "11000111",
        "10010001",
        "10100101",
        "10001001",
        "11111111",
    )
)

LARGE = MazeLayout(
    (
        "111111111111",
        "100001000001",
        "101101010101",
        "100000010001",
        "101111011101",
        "100101000001",
        "110101010111",
        "100100010001",
        "111111111111",
    )
)

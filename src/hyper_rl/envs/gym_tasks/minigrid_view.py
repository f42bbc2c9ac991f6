"""What the agent of a MiniGrid task sees, computed faster than minigrid does it and equal to it number by number.

minigrid builds a small grid of objects, turns it cell by cell and encodes it into an array element by element: that is
most of the cost of a step. Here the view is read straight from the world's own list of objects, row by row away
from the agent, and ends at the first row of which nothing is seen. The rules are minigrid's:

- the agent stands in the middle of the nearest row; a cell is seen if light reaches it, which spreads sideways within a
  row and forward to the next one, from every cell that is seen and does not block it (some tasks see everything);
- cells outside the world are walls; the agent's own cell shows what it carries.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import UInt8

SIZE = 7
MIDDLE = SIZE // 2
UNSEEN, EMPTY, WALL = bytes(3), bytes((1, 0, 0)), bytes((2, 5, 0))
"""Encodings of a cell that is not seen, of a free one and of a wall (the numbers of minigrid 3.2)."""
AHEAD = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""One step forward, by direction; y counts downwards. The agent's right is the next direction's."""
OWN_CELL = (MIDDLE * SIZE + SIZE - 1) * 3
"""Where the picture shows the agent's own cell."""


def can_show(env: Any) -> bool:
    """Whether the view has the usual size."""
    return bool(env.agent_view_size == SIZE)


def view(env: Any) -> UInt8[np.ndarray, "7 7 3"]:
    """The picture that `env.gen_obs()["image"]` shows, of minigrid's `MiniGridEnv` as it stands now."""
    picture = bytearray((EMPTY if env.see_through_walls else UNSEEN) * (SIZE * SIZE))
    (_see_everything if env.see_through_walls else _see_by_light)(env, picture)
    carried = env.carrying
    picture[OWN_CELL : OWN_CELL + 3] = bytes(carried.encode()) if carried else EMPTY
    return np.frombuffer(picture, np.uint8).reshape(SIZE, SIZE, 3)


def _see_everything(env: Any, picture: bytearray) -> None:
    """Into a picture of free cells, whatever else there is."""
    world, width, height = env.grid.grid, env.grid.width, env.grid.height
    left_x, left_y, ahead_x, ahead_y, right_x, right_y = _nearest_row(env)
    for column in range(SIZE):
        x, y, at = left_x + column * right_x, left_y + column * right_y, (column * SIZE + SIZE - 1) * 3
        for _ in range(SIZE):
            if 0 <= x < width and 0 <= y < height:
                content = world[y * width + x]
                if content is not None:
                    picture[at : at + 3] = bytes(content.encode())
            else:
                picture[at : at + 3] = WALL
            x, y, at = x + ahead_x, y + ahead_y, at - 3


def _see_by_light(env: Any, picture: bytearray) -> None:
    """Into a picture of nothing, what light reaches."""
    world, width, height = env.grid.grid, env.grid.width, env.grid.height
    x, y, ahead_x, ahead_y, right_x, right_y = _nearest_row(env)
    lit = [False] * SIZE
    lit[MIDDLE] = True
    for row in range(SIZE - 1, -1, -1):
        codes, clear = [], []
        for column in range(SIZE):
            cell_x, cell_y = x + column * right_x, y + column * right_y
            if 0 <= cell_x < width and 0 <= cell_y < height:
                content = world[cell_y * width + cell_x]
                codes.append(EMPTY if content is None else bytes(content.encode()))
                clear.append(content is None or content.see_behind())
            else:
                codes.append(WALL)
                clear.append(False)
        beyond = _spread(lit, clear)
        for column in range(SIZE):
            if lit[column]:
                at = (column * SIZE + row) * 3
                picture[at : at + 3] = codes[column]
        if True not in beyond:
            return
        lit, x, y = beyond, x + ahead_x, y + ahead_y


def _nearest_row(env: Any) -> tuple[int, int, int, int, int, int]:
    """The leftmost cell of the agent's own row, the step to the row ahead and the step to the right."""
    (x, y), direction = env.agent_pos, env.agent_dir
    ahead, right = AHEAD[direction], AHEAD[(direction + 1) % 4]
    return int(x) - MIDDLE * right[0], int(y) - MIDDLE * right[1], *ahead, *right


def _spread(lit: list[bool], clear: list[bool]) -> list[bool]:
    """Light along one row, first to the right and then to the left (`lit` changes), and what reaches the next row."""
    beyond = [False] * SIZE
    for column in range(SIZE - 1):
        if lit[column] and clear[column]:
            lit[column + 1] = beyond[column] = beyond[column + 1] = True
    for column in range(SIZE - 1, 0, -1):
        if lit[column] and clear[column]:
            lit[column - 1] = beyond[column] = beyond[column - 1] = True
    return beyond

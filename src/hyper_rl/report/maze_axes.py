"""A maze drawn with matplotlib: walls, starts and goals. Coordinates in cells, y downwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool

from hyper_rl.report.render.sheet import FLOOR, GOAL, INK, WALL, Colour


def as_hex(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)


def walls_of(lines: Sequence[str]) -> Bool[np.ndarray, "rows columns"]:
    return np.array([[mark == "1" for mark in line] for line in lines])


def draw_walls(axis: Any, walls: Bool[np.ndarray, "rows columns"]) -> None:
    from matplotlib.colors import ListedColormap

    rows, columns = walls.shape
    colours = ListedColormap([as_hex(FLOOR), as_hex(WALL)])
    # Pixel edges, so that SVG viewers do not blur a map of a few cells.
    axis.pcolormesh(np.arange(columns + 1), np.arange(rows + 1), walls, cmap=colours, vmin=0, vmax=1, rasterized=False)
    axis.set(xlim=(0.65, columns - 0.65), ylim=(rows - 0.65, 0.65), xticks=[], yticks=[], aspect="equal")
    for side in axis.spines.values():
        side.set_visible(False)


def draw_placement(axis: Any, cell: Sequence[int], noise: float, colour: str, label: str | None = None) -> None:
    """The square within which a start or a goal is drawn."""
    from matplotlib.patches import Rectangle

    corner = (cell[1] + 0.5 - noise, cell[0] + 0.5 - noise)
    axis.add_patch(
        Rectangle(corner, 2 * noise, 2 * noise, facecolor=colour, alpha=0.35, edgecolor=colour, label=label, zorder=2)
    )


def draw_goal_radius(axis: Any, cell: Sequence[int], radius: float, label: str | None = None) -> None:
    """Where a goal in the middle of its cell counts as reached."""
    from matplotlib.patches import Circle

    middle = (cell[1] + 0.5, cell[0] + 0.5)
    axis.add_patch(
        Circle(middle, radius, fill=False, linestyle="--", linewidth=1, edgecolor=as_hex(GOAL), label=label, zorder=3)
    )


def draw_start(axis: Any, x: float, y: float, label: str | None = None) -> None:
    axis.plot(
        [x],
        [y],
        "o",
        color="white",
        markeredgecolor=as_hex(INK),
        markeredgewidth=1.4,
        markersize=7,
        label=label,
        zorder=5,
    )


def draw_goal(axis: Any, x: float, y: float, label: str | None = None) -> None:
    axis.plot(
        [x],
        [y],
        "*",
        color=as_hex(GOAL),
        markeredgecolor="white",
        markeredgewidth=0.6,
        markersize=13,
        label=label,
        zorder=5,
    )

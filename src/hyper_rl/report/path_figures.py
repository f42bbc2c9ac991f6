"""Paths through mazes with matplotlib: a map for every method and beta, coloured by who acted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hyper_rl.envs.maze import GOAL_RADIUS
from hyper_rl.report.maze_axes import as_hex, draw_goal, draw_start, draw_walls
from hyper_rl.report.panels import Panel
from hyper_rl.report.plots import require_matplotlib, said_beta, wrapped
from hyper_rl.report.render.sheet import EXPLORER, GOAL, INK, TASK_POLICY
from hyper_rl.report.trajectories import UNIT, Key, MazePath, RunPaths, maze_of, split_path

MOST_BETAS = 6
"""Columns of a figure; more betas are thinned out evenly."""


def path_figure(panel: Panel, found: Mapping[Key, RunPaths]) -> Any | None:
    """None where no run of the panel has paths."""
    cells = {
        (row, run.beta): found[run.group, run.index]
        for row, series in enumerate(panel.series)
        for run in series.runs
        if (run.group, run.index) in found
    }
    if not cells:
        return None
    plt = require_matplotlib()
    rows, betas = sorted({row for row, _ in cells}), _some(sorted({beta for _, beta in cells}))
    task = maze_of(panel.runs[0].config)
    walls = task.layout.walls
    one_beta = len(betas) == 1
    # Side by side where there is one beta: a column of maps alone would be mostly margin.
    shape = (1, len(rows)) if one_beta else (len(rows), len(betas))
    height, width = walls.shape
    size = (2.9 * shape[1] + 0.3, 2.9 * height / width * shape[0] + 0.45 * shape[0] + 0.9)
    figure, axes = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained")
    for place, row in enumerate(rows):
        for column, beta in enumerate(betas):
            axis = axes[0][place] if one_beta else axes[place][column]
            draw_walls(axis, walls)
            axis.set_title(wrapped(f"{panel.series[row].name}, {said_beta(beta)}", 38), fontsize=9)
            for path in cells[row, beta].paths if (row, beta) in cells else ():
                draw_path(axis, path)
    figure.legend(
        handles=_legend(), loc="outside lower center", ncols=3 if shape[1] < 3 else 6, frameon=False, fontsize=8
    )
    figure.suptitle(f"{panel.title}: episodes as in training, at its end", fontsize=10)
    return figure


def draw_path(axis: Any, path: MazePath) -> None:
    from matplotlib.patches import Circle

    goal = (path.goal[0] / UNIT, path.goal[1] / UNIT)
    axis.add_patch(Circle(goal, GOAL_RADIUS, facecolor=as_hex(GOAL), alpha=0.12, linewidth=0, zorder=1.5))
    for points, colour in zip(split_path(path), (TASK_POLICY, EXPLORER), strict=True):
        axis.plot(points[:, 0], points[:, 1], color=as_hex(colour), linewidth=1.1, alpha=0.9, zorder=3)
    draw_start(axis, path.x[0] / UNIT, path.y[0] / UNIT)
    if path.handover:
        at = path.handover
        axis.plot([path.x[at] / UNIT], [path.y[at] / UNIT], "D", **_handover(), zorder=4)
    draw_goal(axis, *goal)


def _handover() -> dict[str, Any]:
    return {"color": "white", "markeredgecolor": as_hex(INK), "markersize": 4.5}


def _legend() -> list[Any]:
    from matplotlib.lines import Line2D

    blank: dict[str, Any] = {"linestyle": "none"}
    return [
        Line2D([], [], color=as_hex(TASK_POLICY), label="task policy (Hyper: repositioning)"),
        Line2D([], [], color=as_hex(EXPLORER), label="explorer"),
        Line2D([], [], marker="o", color="white", markeredgecolor=as_hex(INK), label="start", **blank),
        Line2D([], [], marker="D", label="hand-over", **_handover(), **blank),
        Line2D([], [], marker="*", color=as_hex(GOAL), markersize=10, label="goal", **blank),
    ]


def _some(betas: list[float]) -> list[float]:
    if len(betas) <= MOST_BETAS:
        return betas
    return [betas[place] for place in np.unique(np.round(np.linspace(0, len(betas) - 1, MOST_BETAS)).astype(int))]

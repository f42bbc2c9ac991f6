"""Figures of studies that are computed and not trained, from their stored tables alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hyper_rl.report.computed_tables import cell_text, computed_tables
from hyper_rl.report.maze_axes import (
    as_hex,
    draw_goal,
    draw_goal_radius,
    draw_placement,
    draw_start,
    draw_walls,
    walls_of,
)
from hyper_rl.report.plots import require_matplotlib
from hyper_rl.report.render.sheet import GOAL, INK, MUTED
from hyper_rl.studies.computed_table_2 import maze_name
from hyper_rl.studies.store import StudyResult
from hyper_rl.theory.plots import beta_figure, slope_figure

Tables = Mapping[str, Any]


def draw_computed(result: StudyResult, folder: Path, save: Callable[[Any, Path], list[Path]]) -> list[Path]:
    """Every figure that the finished parts can fill. `save` writes a figure under a name, in all formats."""
    require_matplotlib()
    drawn: list[Path] = []
    for name, tables in result.parts.items():
        if name in FIGURES:
            drawn += save(FIGURES[name](tables), folder / STEMS[name])
        elif name in FILES:
            drawn += FILES[name](tables, folder)
    for number, table in enumerate(computed_tables(result), start=1):
        if table.figure:
            stem = f"{result.name}-table" if number == 1 else f"{result.name}-table-{number}"
            drawn += save(_table_figure(table.title, table.note, table.columns, table.rows), folder / stem)
    return drawn


def _layouts(tables: Tables) -> Any:
    plt = require_matplotlib()
    mazes = tables["layouts.json"]["mazes"]
    figure, axes = plt.subplots(2, 3, figsize=(11.5, 7.2), squeeze=False, layout="constrained")
    flat = list(axes.ravel())
    # The mediums stand above, the last place of their row is the legend's.
    medium = [maze for maze in mazes if maze["task"].startswith("Medium")]
    large = [maze for maze in mazes if not maze["task"].startswith("Medium")]
    places = [*zip(flat, medium, strict=False), *zip(flat[3:], large, strict=False)]
    for axis, maze in places:
        _layout(axis, maze)
    free = [axis for axis in flat if not any(axis is used for used, _ in places)]
    for axis in free:
        axis.set_axis_off()
    if free:
        handles, labels = places[0][0].get_legend_handles_labels()
        free[0].legend(handles, labels, loc="center", frameon=False, fontsize=10, labelspacing=1.1)
    return figure


def _layout(axis: Any, maze: Mapping[str, Any]) -> None:
    draw_walls(axis, walls_of(maze["map"]))
    path = maze["shortest_path"]
    axis.plot(
        [column + 0.5 for _, column in path],
        [row + 0.5 for row, _ in path],
        ":", color=as_hex(MUTED), linewidth=1.6, label="shortest way over cells", zorder=1.5,
    )  # fmt: skip
    noise = maze["placement_noise"]
    draw_placement(axis, maze["start"], noise, as_hex(INK), f"start is drawn here (±{noise:g})")
    draw_placement(axis, maze["goal"], noise, as_hex(GOAL), f"goal is drawn here (±{noise:g})")
    draw_goal_radius(axis, maze["goal"], maze["goal_radius"], f"reached within {maze['goal_radius']:g} of the goal")
    draw_start(axis, maze["start"][1] + 0.5, maze["start"][0] + 0.5, "middle of the start cell")
    draw_goal(axis, maze["goal"][1] + 0.5, maze["goal"][0] + 0.5, "middle of the goal cell")
    start, goal = (f"({cell[0]}, {cell[1]})" for cell in (maze["start"], maze["goal"]))
    axis.set_title(f"{maze['task']}, H = {maze['horizon']}", fontsize=11)
    axis.set_xlabel(f"start {start}, goal {goal}, {maze['shortest_path_cells']} cells", fontsize=9)


def _steps(tables: Tables) -> Any:
    """How many steps each episode took, beside what the paper states and the horizons that its tasks allow."""
    plt = require_matplotlib()
    rows = tables["table-2.csv"]
    mazes = {maze_name(row["task"]): row for row in rows}
    figure, axes = plt.subplots(1, len(mazes), figsize=(5.2 * len(mazes), 3.6), squeeze=False, layout="constrained")
    for axis, (maze, row) in zip(axes[0], mazes.items(), strict=True):
        steps = [one["steps"] for one in tables["episodes.csv"] if one["task"] == row["task"]]
        axis.hist(steps, bins=range(min(steps), max(steps) + 2), color="#0072b2", alpha=0.8, label="episodes")
        axis.axvline(row["paper_steps"], color=as_hex(INK), linestyle="--", label=f"paper: about {row['paper_steps']}")
        axis.axvline(row["steps_mean"], color="#d1603d", label=f"mean {row['steps_mean']:.1f}")
        shortest = min(one["horizon"] for one in rows if maze_name(one["task"]) == maze)
        axis.axvline(shortest, color=as_hex(MUTED), linestyle=":", label=f"shortest horizon {shortest}")
        axis.set(xlabel="steps to the goal", ylabel="episodes", title=f"{maze}: {len(steps):,} episodes")
        axis.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0.0, -0.2), ncols=2)
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def _table_figure(title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    plt = require_matplotlib()
    figure, axis = plt.subplots(figsize=(1.1 + 1.15 * len(columns), 0.9 + 0.34 * (len(rows) + 1)), layout="constrained")
    axis.set_axis_off()
    table = axis.table(
        [[cell_text(value) for value in row] for row in rows], colLabels=list(columns), loc="center", cellLoc="center"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(9)
    table.auto_set_column_width(list(range(len(columns))))
    table.scale(1, 1.45)
    for (row, _), cell in table.get_celld().items():
        cell.set_edgecolor("#d9dde1")
        if row == 0:
            cell.set_text_props(weight="bold")
            cell.set_facecolor("#f6f7f8")
    axis.set_title(title, fontsize=11)
    figure.supxlabel(note, fontsize=8, color=as_hex(MUTED))
    return figure


def _beta_files(tables: Tables, folder: Path) -> list[Path]:
    path = folder / "linear-beta.png"
    beta_figure(path, tables["table.csv"])
    return [path]


def _slope_files(tables: Tables, folder: Path) -> list[Path]:
    path = folder / "linear-complexity.png"
    slope_figure(path, tables["complexity.csv"], tables["complexity.json"]["slopes"])
    return [path]


FIGURES: Mapping[str, Callable[[Tables], Any]] = {"layouts": _layouts, "controller": _steps}
STEMS = {"layouts": "figure-7", "controller": "table-2-steps"}
FILES: Mapping[str, Callable[[Tables, Path], list[Path]]] = {"table": _beta_files, "complexity": _slope_files}

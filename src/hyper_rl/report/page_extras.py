"""What the report page shows beside charts: paths through mazes, and tables and pictures of computed studies."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyper_rl.envs.maze import GOAL_RADIUS
from hyper_rl.report.computed_tables import computed_tables
from hyper_rl.report.page_charts import number
from hyper_rl.report.panels import Panel
from hyper_rl.report.trajectories import UNIT, Key, MazePath, RunPaths, is_maze, maze_of, paths_of, thinned_with
from hyper_rl.studies.store import StudyResult

POINTS_IN_ALL = 60_000
"""Of all paths of a page together, which keeps it small."""
FEWEST_POINTS = 30
PICTURES_IN_ALL = 2_500_000
"""Bytes of pictures on one page; pictures beyond that are left out."""


def maze_paths(study: StudyResult, panels: Sequence[Panel], names: Sequence[str], room: int) -> list[dict[str, Any]]:
    """One entry for each panel whose runs have paths. `room`: points for all of them."""
    if not any(is_maze(run) for run in study.runs):
        return []
    found = paths_of(study)
    most = max(FEWEST_POINTS, room // max(sum(len(run.paths) for run in found.values()), 1))
    drawn = [_panel(panel, names, found, most) for panel in panels]
    return [panel for panel in drawn if panel is not None]


def _panel(panel: Panel, names: Sequence[str], found: Mapping[Key, RunPaths], most: int) -> dict[str, Any] | None:
    items = [
        {
            "series": names.index(series.name),
            "beta": number(run.beta),
            "seed": run.seed,
            "paths": [_path(path, most) for path in found[run.group, run.index].paths],
        }
        for series in panel.series
        for run in series.runs
        if (run.group, run.index) in found
    ]
    if not items:
        return None
    task = maze_of(panel.runs[0].config)
    radius = round(GOAL_RADIUS * UNIT)
    return {"panel": panel.title, "map": list(task.layout.lines), "radius": radius, "items": items}


def _path(path: MazePath, most: int) -> dict[str, Any]:
    kept = thinned_with(len(path.x), path.handover, most)
    return {
        "x": [path.x[place] for place in kept],
        "y": [path.y[place] for place in kept],
        "handover": None if path.handover is None else int(np.searchsorted(kept, path.handover)),
        "goal": path.goal,
        "reached": path.reached,
        "steps": path.steps,
        "length": path.length,
    }


def tables_of(study: StudyResult) -> list[dict[str, Any]]:
    """Of a study that was computed; none of another."""
    return [
        {
            "title": table.title,
            "note": table.note,
            "columns": list(table.columns),
            "rows": [
                [number(value) if isinstance(value, int | float) else str(value) for value in row] for row in table.rows
            ],
        }
        for table in computed_tables(study)
    ]


def pictures_of(study: StudyResult, room: int) -> list[dict[str, str]]:
    """The figures in the folder of a computed study, where they have been drawn, up to `room` bytes.

    Tables that are figures too are left out: the page has them as tables.
    """
    if not study.parts:
        return []
    found = []
    for path in sorted((study.folder / "figures").glob("*.png")):
        if "-table" in path.stem:
            continue
        data = path.read_bytes()
        room -= len(data)
        if room >= 0:
            found.append({"name": path.stem, "png": base64.b64encode(data).decode("ascii")})
    return found

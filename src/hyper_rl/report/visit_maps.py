"""Visits of cells as maps: where in rows and columns each counted cell lies. A maze counts its free cells alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from hyper_rl.config import make_task
from hyper_rl.envs.maze import SETTINGS
from hyper_rl.errors import UserError
from hyper_rl.studies.store import RunResult

WALL = -1
"""Stands for the count of a cell that nobody can visit."""


@dataclass(frozen=True)
class VisitMap:
    rows: int
    columns: int
    places: Int[np.ndarray, " cells"]
    """Where each counted cell lies in the map, read row by row."""

    def fill(self, visits: np.ndarray) -> Int[np.ndarray, "rows columns"]:
        found = np.full(self.rows * self.columns, WALL, int)
        found[self.places] = visits
        return found.reshape(self.rows, self.columns)


def visit_map(runs: Sequence[RunResult]) -> VisitMap | None:
    """Of runs on one task; None where its cells form no map, or nobody counted."""
    counted = [run for run in runs if run.visits is not None]
    if not counted:
        return None
    config = counted[0].config
    grid = make_task(config.task, config.task_options, config.host).spec.grid
    if grid is None:
        return None
    rows, columns = grid
    if config.task in SETTINGS:
        free = SETTINGS[config.task].layout.free_cells
        places = np.array([row * columns + column for row, column in free])
    else:
        places = np.arange(rows * columns)
    for run in counted:
        if run.visits is not None and run.visits.size != len(places):
            cells = f"{rows} x {columns}" if len(places) == rows * columns else f"{len(places)} free ones"
            raise UserError(f"{run.group}: visits.csv has {run.visits.size} cells, the task {cells}")
    return VisitMap(rows, columns, places)

"""Figure 7: the mazes, with where an episode begins, where its goal is drawn, and the shortest way between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hyper_rl.envs.maze import GOAL_RADIUS, PLACEMENT_NOISE, SETTINGS, make_maze
from hyper_rl.envs.maze_controller import shortest_path
from hyper_rl.studies.computed import ComputedStudy, Part, Settings
from hyper_rl.training.run_folder import write_atomically

LAYOUTS = "layouts"
LAYOUTS_FILE = "layouts.json"


def layout_of(name: str) -> dict[str, Any]:
    """All that there is to draw of one maze task. Cells are (row, column), rows counted downwards."""
    task = make_maze(name)
    path = shortest_path(task.layout, task.start, task.goal)
    return {
        "task": name,
        "horizon": int(task.horizon),
        "map": list(task.layout.lines),
        "start": list(task.start),
        "start_centre": list(task.layout.centre(task.start)),
        "goal": list(task.goal),
        "goal_centre": list(task.layout.centre(task.goal)),
        "placement_noise": PLACEMENT_NOISE,
        "goal_radius": GOAL_RADIUS,
        "free_cells": len(task.layout.free_cells),
        "shortest_path": [list(cell) for cell in path],
        "shortest_path_cells": len(path) - 1,
    }


def write_layouts(folder: Path, settings: Settings) -> None:
    document = {"mazes": [layout_of(name) for name in settings["tasks"]]}
    write_atomically(folder / LAYOUTS_FILE, json.dumps(document, indent=1) + "\n")


ALL = {"tasks": list(SETTINGS)}
FIGURE_7 = ComputedStudy(
    name="figure-7",
    title="Figure 7: the mazes, with start, goal and horizon",
    description="Draws the five maze tasks. The paper's figure is not printed as numbers: the cells are ours.",
    parts=(Part(LAYOUTS, write_layouts, {"paper": ALL, "quick": ALL}),),
)

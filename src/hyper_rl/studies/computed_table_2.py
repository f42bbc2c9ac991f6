"""Table 2: how many steps a good policy needs in each maze, measured with a controller that learns nothing.

Its gains are chosen once per maze on episodes of their own; the episodes that count are others. What it needs is an
upper bound on what an optimal policy needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from hyper_rl.envs.maze import SETTINGS, make_maze
from hyper_rl.envs.maze_controller import best_gains, drive, gain_grid, shortest_path, stack_gains
from hyper_rl.studies.computed import ComputedStudy, Part, Settings
from hyper_rl.theory.record import save_rows
from hyper_rl.threefry import make_key

CONTROLLER = "controller"
TABLE_FILE, EPISODES_FILE = "table-2.csv", "episodes.csv"
STATED = {"MediumMaze": 150, "LargeMaze": 250}
"""The paper's "Optimal #Steps", each with an "approximately"."""
TUNING_SEED = 1_000_003
"""Not among the seeds of the episodes that count."""
LONGEST = 1_000
"""Steps allowed while gains are chosen."""


def maze_name(task: str) -> str:
    """MediumMaze or LargeMaze: tasks of one maze differ in the horizon alone."""
    return task.split("-")[0]


def measure(folder: Path, settings: Settings) -> None:
    tuning = jax.random.split(make_key(TUNING_SEED), settings["tuning_episodes"])
    gains: dict[str, tuple[float, float, float]] = {}
    table: list[dict[str, Any]] = []
    episodes: list[dict[str, Any]] = []
    for name in SETTINGS:
        task = make_maze(name)
        maze, horizon = maze_name(name), int(task.horizon)
        if maze not in gains:
            gains[maze] = best_gains(task, tuning, LONGEST)
        chosen = stack_gains([gains[maze]])
        found = []
        for seed in range(settings["seeds"]):
            keys = jax.random.split(make_key(seed), settings["episodes"])
            drives = drive(task, chosen, keys, horizon)
            reached, steps = drives.reached[0], drives.steps[0]
            found.append((reached, steps))
            episodes += [
                {"task": name, "seed": seed, "episode": i, "reached": int(reached[i]), "steps": int(steps[i])}
                for i in range(len(steps))
            ]
        reached, steps = (np.concatenate(column) for column in zip(*found, strict=True))
        table.append(_row(name, horizon, reached, steps, gains[maze]))
        share, mean = reached.mean(), steps.mean()
        print(f"{name}: goal reached in {share:.1%} of {len(steps)} episodes, {mean:.1f} steps", flush=True)
    save_rows(folder / EPISODES_FILE, episodes)
    save_rows(folder / TABLE_FILE, table)


def _row(
    name: str, horizon: int, reached: np.ndarray, steps: np.ndarray, gains: tuple[float, float, float]
) -> dict[str, Any]:
    """`steps` has the horizon where the goal was not reached."""
    task = make_maze(name)
    low, middle, high = (float(value) for value in np.quantile(steps, [0.05, 0.5, 0.95]))
    return {
        "task": name,
        "paper_steps": STATED[maze_name(name)],
        "horizon": horizon,
        "cells": len(shortest_path(task.layout, task.start, task.goal)) - 1,
        "episodes": len(steps),
        "reached": float(reached.mean()),
        "steps_mean": float(steps.mean()),
        "steps_median": middle,
        "steps_5%": low,
        "steps_95%": high,
        "steps_fewest": int(steps.min()),
        "steps_most": int(steps.max()),
        "horizon_per_step": horizon / float(steps.mean()),
        "cut": gains[0],
        "stiffness": gains[1],
        "damping": gains[2],
        "settings_tried": len(gain_grid()),
    }


TABLE_2 = ComputedStudy(
    name="table-2",
    title="Table 2: steps to the goal and horizon of each maze",
    description="Drives the ball along the shortest path; gains chosen on other episodes than those that count.",
    parts=(
        Part(
            CONTROLLER,
            measure,
            {
                "paper": {"tuning_episodes": 64, "seeds": 20, "episodes": 100},
                "quick": {"tuning_episodes": 16, "seeds": 2, "episodes": 20},
            },
        ),
    ),
)

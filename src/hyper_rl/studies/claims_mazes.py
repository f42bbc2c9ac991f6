"""What the paper says about the mazes themselves: Table 2, and section 6.1 on their horizons."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from hyper_rl.studies.cells import exactly
from hyper_rl.studies.computed_table_2 import maze_name
from hyper_rl.studies.statistics import Estimate, mean_of, share_of_trials
from hyper_rl.studies.store import StudyResult
from hyper_rl.studies.verdicts import Check, Claim, NotRun, at_least, at_most, more_than

STUDY = "table-2"
ABOUT = 0.15
"""How far 'approximately' reaches."""
NEARLY_ALWAYS = 0.95


def rows_of(study: StudyResult) -> list[Mapping[str, Any]]:
    if "controller" not in study.parts:
        raise NotRun("part controller is not finished")
    return list(study.parts["controller"]["table-2.csv"])


def stated_steps(study: StudyResult) -> list[Check]:
    """Tasks of one maze differ in the horizon alone, so its longest one tells all."""
    checks = []
    longest = {maze_name(row["task"]): row for row in sorted(rows_of(study), key=lambda row: float(row["horizon"]))}
    for maze, row in longest.items():
        steps = [one["steps"] for one in study.parts["controller"]["episodes.csv"] if one["task"] == row["task"]]
        found = mean_of([np.array(steps, float) / row["paper_steps"]])
        checks += [at_least(f"{maze}, steps / {row['paper_steps']}", found, 1 - ABOUT)]
        checks += [at_most(f"{maze}, steps / {row['paper_steps']}", found, 1 + ABOUT)]
    return checks


def horizons(study: StudyResult) -> list[Check]:
    rows = rows_of(study)
    checks = []
    for row in rows:
        found: Estimate = share_of_trials(round(row["reached"] * row["episodes"]), row["episodes"])
        checks.append(at_least(f"share within H = {row['horizon']}, {row['task']}", found, NEARLY_ALWAYS))
    for longer, shorter in itertools.pairwise(rows):
        if maze_name(longer["task"]) == maze_name(shorter["task"]):
            spare = [1 - row["steps_mean"] / row["horizon"] for row in (longer, shorter)]
            label = f"spare share of H, {longer['task']} - {shorter['task']}"
            checks.append(more_than(label, exactly(spare[0] - spare[1]), 0.0))
    return checks


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "table-2-steps", "The goal is about 150 steps away in MediumMaze and 250 in LargeMaze",
        "It takes approximately 150 steps for an optimal policy to reach the goal in MediumMaze and 250 steps in "
        "LargeMaze", "A.2, Table 2",
        (STUDY,), "a scripted controller along the shortest path, start and goal drawn anew in each of 2,000 episodes",
        "mean steps divided by the number stated", ">= 0.85 and <= 1.15 for both",
        "15% is still approximately. The controller bounds the optimum from above, and start and goal cells are ours",
        stated_steps,
    ),
    Claim(
        "table-2-horizons", "Every horizon can be met, and shorter ones leave less to spare",
        "A shorter horizon results in a lower tolerance for redundant steps, which requires the agent to find a "
        "sufficiently good policy to obtain positive feedback from the environment", "6.1, Table 2",
        (STUDY,), "the same controller, all five tasks",
        "share of episodes that reach the goal within H, exact interval; 1 - mean steps / H, longer - shorter horizon",
        ">= 0.95 on each; > 0", "a task that a good controller cannot solve would say nothing about learning", horizons,
    ),
)  # fmt: skip

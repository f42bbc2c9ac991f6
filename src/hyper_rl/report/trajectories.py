"""Paths through mazes as in training, coloured later by who acted: repositioning, or the explorer.

Nothing records paths while it trains. A finished run folder keeps its last checkpoint, and with it all learners, so a
few episodes are played with them as training would play them next, and kept in `trajectories.json` of the study.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from hyper_rl.config import Config, build_parts, make_task
from hyper_rl.envs.maze import SETTINGS, PointMaze
from hyper_rl.errors import UserError
from hyper_rl.methods.policies import make_policies
from hyper_rl.report.render.paths import Walk, training_walks
from hyper_rl.report.render.scene import Trail, trails_of
from hyper_rl.report.render.stored_learners import read_learners_of
from hyper_rl.studies.store import RunResult, StudyResult
from hyper_rl.studies.study_folder import StudyFolder
from hyper_rl.training.run_folder import RunFolder, write_atomically

FILE = "trajectories.json"
VERSION = 1
EPISODES = 3
SEED = 1_000_000
"""Of the episodes; the one that `hyper-rl render` takes where none is given, so both show the same ones."""
MOST_POINTS = 250
"""Of a path."""
UNIT = 100
"""Whole numbers to a cell."""


@dataclass(frozen=True)
class MazePath:
    """One episode. Coordinates in hundredths of a cell from the upper left corner, y downwards."""

    x: list[int]
    y: list[int]
    handover: int | None
    """The point from which on the explorer acted; None for never, 0 for from the start."""
    goal: list[int]
    reached: bool
    steps: int
    length: int | None
    """L of an episode that repositions."""


@dataclass(frozen=True)
class RunPaths:
    group: str
    index: int
    """Number of the run in its group."""
    step: int
    """Of training, at which the learners were stored."""
    paths: tuple[MazePath, ...]


Key = tuple[str, int]


def is_maze(run: RunResult) -> bool:
    return run.config.task in SETTINGS and run.config.method != "lesson"


def maze_of(config: Config) -> PointMaze:
    """The task as it is drawn; one that was trained on another backend is played in its JAX version."""
    if config.host is None:
        task = make_task(config.task, config.task_options, None)
    else:
        task = make_task(config.task, {"horizon": config.host["spec"]["horizon"]}, None)
    assert isinstance(task, PointMaze), "is_maze is asked before"
    return task


def shown_runs(result: StudyResult) -> list[RunResult]:
    """Of every maze group its first seed, at every beta."""
    kept: dict[tuple[str, float], RunResult] = {}
    for run in sorted(filter(is_maze, result.runs), key=lambda run: run.seed):
        label = json.dumps({key: run.labels[key] for key in sorted(run.labels)}, default=str)
        kept.setdefault((label, run.beta), run)  # a group that was divided has the same labels in all its parts
    order = {id(run): place for place, run in enumerate(result.runs)}
    return sorted(kept.values(), key=lambda run: order[id(run)])


def paths_of(result: StudyResult, *, keep: bool = False) -> dict[Key, RunPaths]:
    """The stored paths; those that are missing are played where the learners are still there.

    `keep` writes them into the study folder.
    """
    wanted = shown_runs(result)
    stored = read_paths(result.folder)
    found: dict[Key, RunPaths] = {}
    for run in wanted:
        known = stored.get((run.group, run.index))
        if known is not None and known.step == run.config.steps:
            found[run.group, run.index] = known
    for group in dict.fromkeys(run.group for run in wanted):
        new = [run for run in wanted if run.group == group and (group, run.index) not in found]
        if new and StudyFolder(result.folder).group(group).checkpoints.is_dir():
            for played in play(StudyFolder(result.folder).group(group), new):
                found[played.group, played.index] = played
    if keep and found and found != stored:
        document = {"version": VERSION, "runs": [asdict(played) for played in found.values()]}
        write_atomically(result.folder / FILE, json.dumps(document, separators=(",", ":")) + "\n")
    return found


def read_paths(folder: Path) -> dict[Key, RunPaths]:
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            return {}
        runs = [
            RunPaths(run["group"], run["index"], run["step"], tuple(MazePath(**path) for path in run["paths"]))
            for run in document["runs"]
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not readable ({error!r}); remove it, and it is made again") from None
    return {(run.group, run.index): run for run in runs}


def play(folder: RunFolder, runs: Sequence[RunResult]) -> list[RunPaths]:
    """Episodes of these runs of one group, as training would go on; none where no checkpoint can be used."""
    config = runs[0].config
    try:
        states, step = read_learners_of(folder, config, [run.index for run in runs])
    except UserError:
        return []
    task, learner = maze_of(config), build_parts(config).learner
    bounded = config.lengths == "bounded"
    scheduled = make_policies(config.method, config.p_start, config.p_end, bounded=bounded)
    now, budget = (jnp.asarray(number, jnp.int32) for number in (step, config.schedule_steps))
    p = min(1.0, float(scheduled.probability(now, budget)))
    policies = make_policies(config.method, p, p, bounded=bounded)
    found = []
    for run, learners in zip(runs, states, strict=True):
        walks = training_walks(task, learner, policies, learners, SEED, EPISODES)
        repositions = config.method == "hyper"
        paths = tuple(_path(trail, repositions) for trail in trails_of(task, walks))
        found.append(RunPaths(run.group, run.index, step, paths))
    return found


def _path(trail: Trail, repositions: bool) -> MazePath:
    walk = trail.walk
    handover = first_explored(walk)
    kept = thinned_with(len(trail.points), handover)
    points = np.round(trail.points[kept] * UNIT).astype(int)
    return MazePath(
        x=points[:, 0].tolist(),
        y=points[:, 1].tolist(),
        handover=None if handover is None else int(np.searchsorted(kept, handover)),
        goal=[round(UNIT * value) for value in trail.goal],
        reached=walk.success,
        steps=walk.steps,
        length=walk.length if repositions else None,
    )


def first_explored(walk: Walk) -> int | None:
    """The step from which on the explorer acts: who has begun to explore goes on to the end."""
    explored: Bool[np.ndarray, " steps"] = walk.explorer
    return int(explored.argmax()) if explored.any() else None


def thinned_with(count: int, place: int | None, most: int = MOST_POINTS) -> np.ndarray:
    """Places of about `most` of `count` points, at most: the first, the last and `place` among them."""
    spread = np.round(np.linspace(0, count - 1, min(count, most))).astype(int)
    return np.unique(spread if place is None else np.append(spread, place))


def split_path(path: MazePath) -> tuple[np.ndarray, np.ndarray]:
    """Points of the task policy's part and of the explorer's, in cells; they share the point of the hand-over."""
    points = np.stack([path.x, path.y], axis=1) / UNIT
    if path.handover is None:
        return points, points[:0]
    return points[: path.handover + 1] if path.handover else points[:0], points[path.handover :]

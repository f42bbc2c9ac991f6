"""The runs of a study as claims ask for them: final performance by task, method and beta.

Claims are about the paper, so they look at runs as the paper has them: never those of the preset `robust`, and lengths
bounded unless asked otherwise. A cell has at least the paper's five runs, or the claim was not run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from hyper_rl.config import Config, make_task
from hyper_rl.envs.registry import LOCOMOTION
from hyper_rl.studies.statistics import Estimate
from hyper_rl.studies.store import RunResult, StudyResult
from hyper_rl.studies.verdicts import NotRun

NEEDED_RUNS = 5
"""Runs of a cell: the paper's number."""
MAIN_BETA = 1.0
"""Of every method in the main comparison."""
SOLVED = 0.8
"""A run or cell that reaches the goal in at least this share of its episodes does so consistently."""
FAILED = 0.2
MAZES = ("MediumMaze-Easy", "MediumMaze-Medium", "LargeMaze-Easy", "LargeMaze-Medium", "LargeMaze-Hard")
DENSE = tuple(name for name in LOCOMOTION if not name.startswith("Sparse"))
NAMES = {"exploit": "TD3", "curiosity": "Curiosity", "decouple": "Decouple", "hyper": "Hyper", "lesson": "LESSON"}

Values = Float[np.ndarray, " runs"]


def runs_of(
    study: StudyResult, task: str, method: str, beta: float | None = None, *, lengths: str = "bounded"
) -> tuple[RunResult, ...]:
    """The method's runs on the task. `exploit` has no beta, so runs that differ in it alone are one run."""
    found = [
        run
        for run in study.runs
        if run.config.task == task
        and run.config.method == method
        and run.config.preset != "robust"
        and run.config.lengths == lengths
    ]
    if method == "exploit":
        return tuple({(run.seed, repr(run.config.task_options)): run for run in reversed(found)}.values())
    return tuple(run for run in found if beta is None or same(run.beta, beta))


def only(study: StudyResult, wanted: Callable[[RunResult], bool]) -> StudyResult:
    """The study with some of its runs, where it has more settings than the claim is about."""
    return dataclasses.replace(study, runs=tuple(run for run in study.runs if wanted(run)))


def same(first: float, second: float) -> bool:
    return math.isclose(first, second, rel_tol=1e-9)


def enough(runs: Sequence[RunResult], what: str) -> Sequence[RunResult]:
    """As many runs as a cell needs, and of one setting only."""
    if len(runs) < NEEDED_RUNS:
        raise NotRun(f"{what}: {len(runs)} of {NEEDED_RUNS} runs")
    if len({(run.beta, run.seed) for run in runs}) < len(runs):
        raise NotRun(f"{what}: runs of several settings")
    return runs


def cell(study: StudyResult, task: str, method: str, beta: float | None = None) -> Values:
    """Final performance of the runs of one cell."""
    at = "" if beta is None else f" at beta {beta:g}"
    runs = enough(runs_of(study, task, method, beta), f"{task}, {NAMES[method]}{at}")
    return np.array([performance(run) for run in runs])


def main_cell(study: StudyResult, task: str, method: str) -> Values:
    """Final performance of `main_runs`."""
    return np.array([performance(run) for run in main_runs(study, task, method)])


def main_runs(study: StudyResult, task: str, method: str) -> Sequence[RunResult]:
    """Those of the main comparison: at beta 1, whatever others are still to come, or at the only beta there is."""
    refuse_unfinished(study, [f"{task}-{method}"], swept=False)
    found = runs_of(study, task, method)
    if len({run.beta for run in found}) > 1:
        found = runs_of(study, task, method, MAIN_BETA)
    return enough(found, f"{task}, {NAMES[method]}")


def performance(run: RunResult) -> float:
    """Mean of the last five evaluations, as stored: return for locomotion, else success."""
    return final(run, "return" if run.config.task in LOCOMOTION else "success")


def final(run: RunResult, name: str) -> float:
    value = run.final.get(name)
    if value is not None and math.isfinite(value):
        return float(value)
    if not run.final.get("finite", True):
        return 0.0  # its numbers overflowed, so its policy is worth nothing
    raise NotRun(f"{run.group}, run {run.index}: no {name}")


def tasks_of(study: StudyResult, among: Sequence[str] | None = None) -> list[str]:
    """All tasks of the study, or all of those `among` that it has; all must be finished."""
    refuse_unfinished(study, [""] if among is None else [f"{task}-" for task in among])
    tasks = dict.fromkeys(run.config.task for run in study.runs)
    return [task for task in tasks if among is None or task in among]


def refuse_unfinished(study: StudyResult, beginnings: Sequence[str], *, swept: bool = True) -> None:
    """Half of a sweep, or half of the tasks, is not what a claim is about. Names of groups begin with TASK-METHOD.

    Without `swept` only the first group of a name counts: NAME~2 has the same settings and other betas.
    """
    for name in study.missing:
        first, _, further = name.partition("~")
        if name.startswith(tuple(beginnings)) and "robust" not in first.split("-") and (swept or not further):
            raise NotRun(f"{name} is not finished")


def betas_of(study: StudyResult, task: str, method: str) -> list[float]:
    refuse_unfinished(study, [f"{task}-{method}"])
    return sorted({run.beta for run in runs_of(study, task, method)})


def sweep(study: StudyResult, task: str, method: str) -> tuple[list[float], list[Values]]:
    """All betas of the method on the task and their cells, in units of `task_scale`."""
    betas = betas_of(study, task, method)
    if len(betas) < 2:
        raise NotRun(f"{task}, {NAMES[method]}: {len(betas)} beta")
    scale = task_scale(study, task)
    return betas, [cell(study, task, method, beta) / scale for beta in betas]


def task_scale(study: StudyResult, task: str) -> float:
    """What performance is divided by to pool tasks: one for success, the best cell's mean for returns.

    Fixed when runs are resampled.
    """
    if task not in LOCOMOTION:
        return 1.0
    means = []
    for method in NAMES:
        for beta in betas_of(study, task, method):
            runs = runs_of(study, task, method, beta)
            means.append(float(np.mean([performance(run) for run in runs])))
    best = max(means, default=0.0)
    return best if best > 0 else 1.0


@lru_cache(maxsize=256)
def _horizon(config_text: str) -> int:
    config = Config.from_json(config_text, "config")
    return int(make_task(config.task, config.task_options, config.host).horizon)


def horizon_of(run: RunResult) -> int:
    return _horizon(run.config.to_json())


def steps_to_solve(run: RunResult) -> float:
    """First evaluation from which on success stays at `SOLVED` or above; twice the budget for never."""
    success, step = run.curve["success"], run.curve["step"]
    below = np.flatnonzero(~(success >= SOLVED))
    first = 0 if below.size == 0 else int(below[-1]) + 1
    return float(step[first]) if first < len(step) else 2.0 * float(step[-1])


def exactly(value: float) -> Estimate:
    """A number that is computed and not sampled."""
    return Estimate(value, value, value, sampled=False)

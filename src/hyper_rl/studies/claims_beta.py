"""What the paper says about sensitivity to beta with function approximation: section 6.2, Figure 6."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from hyper_rl.studies.cells import Values, sweep, tasks_of
from hyper_rl.studies.statistics import Estimate, bootstrap, deviation_over_strata, score_statistic
from hyper_rl.studies.store import StudyResult
from hyper_rl.studies.verdicts import Check, Claim, NotRun, at_most, less_than, more_than

CURIOSITY, DECOUPLE, HYPER = "curiosity", "decouple", "hyper"
STUDIES = ("figure-6", "mazes")
SWEPT = {"mazes": ("MediumMaze-Medium", "LargeMaze-Medium")}
"""Tasks with a sweep of beta, in a study where not every task has one."""
REMARKS = {"mazes": "two mazes, beta up to 1000, in half the paper's steps"}
NEEDED_TASKS = 2
"""'Typically' and 'generally' are about tasks in the plural."""

Sweep = tuple[list[float], list[Values]]
PerTask = Callable[[Sequence[float], list[np.ndarray]], np.ndarray]
"""From the betas and the runs at each of them to one number of the task."""


def sweeps(study: StudyResult, method: str) -> list[Sweep]:
    tasks = SWEPT[study.name] if study.name in SWEPT else tasks_of(study)
    found = [sweep(study, task, method) for task in tasks]
    if len(found) < NEEDED_TASKS:
        raise NotRun(f"a sweep of beta: {len(found)} of at least {NEEDED_TASKS} tasks")
    return found


def performing(parts: Sequence[Sweep]) -> list[Sweep]:
    """Without the tasks on which the method has nothing at any beta: what never rises neither peaks nor drops."""
    kept = [(betas, cells) for betas, cells in parts if max(float(runs.mean()) for runs in cells) > 0]
    if len(kept) < NEEDED_TASKS:
        raise NotRun(f"tasks on which it gets anywhere: {len(kept)} of at least {NEEDED_TASKS}")
    return kept


def pooled(parts: Sequence[Sweep], per_task: PerTask, combine: Callable[[np.ndarray], np.ndarray]) -> Estimate:
    """`per_task` of every part, combined over the first axis, with its bootstrap interval."""
    cuts = list(itertools.accumulate((len(cells) for _, cells in parts), initial=0))

    def statistic(drawn: list[np.ndarray]) -> np.ndarray:
        each = [per_task(betas, drawn[i:j]) for (betas, _), (i, j) in zip(parts, itertools.pairwise(cuts), strict=True)]
        return combine(np.stack(each))

    return bootstrap([runs for _, cells in parts for runs in cells], statistic)


def over_tasks(each: np.ndarray) -> np.ndarray:
    return each.mean(axis=0)


def versus(study: StudyResult, first: str, second: str, per_task: PerTask) -> Estimate:
    """Mean over tasks of the first method's number minus the second's."""
    ours, theirs = sweeps(study, first), sweeps(study, second)
    if [betas for betas, _ in ours] != [betas for betas, _ in theirs]:
        raise NotRun("the same betas for both methods")
    count = len(ours)
    return pooled([*ours, *theirs], per_task, lambda each: each[:count].mean(axis=0) - each[count:].mean(axis=0))


def cell_means(drawn: list[np.ndarray]) -> np.ndarray:
    return np.stack([runs.mean(axis=-1) for runs in drawn], axis=-1)


def log_best_beta(betas: Sequence[float], drawn: list[np.ndarray]) -> np.ndarray:
    """log10 of the beta with the highest mean; the mean of them where several are equal."""
    means = cell_means(drawn)
    best = means >= means.max(axis=-1, keepdims=True)
    return np.asarray((best * np.log10(betas)).sum(axis=-1) / best.sum(axis=-1))


def kept_beyond_ten(betas: Sequence[float], drawn: list[np.ndarray]) -> np.ndarray:
    """Mean performance at betas above 10, as a share of the best cell up to 10."""
    beyond = np.asarray(betas) > 10
    means = cell_means(drawn)
    best = means[..., ~beyond].max(axis=-1)
    # Nothing to lose: what has nothing up to 10 has not dropped beyond it.
    return np.where(best > 0, means[..., beyond].mean(axis=-1) / np.where(best > 0, best, 1.0), 1.0)


def at_large_betas(betas: Sequence[float], drawn: list[np.ndarray]) -> np.ndarray:
    return cell_means(drawn)[..., np.asarray(betas) >= 10].mean(axis=-1)


def spread_over_betas(betas: Sequence[float], drawn: list[np.ndarray]) -> np.ndarray:
    return cell_means(drawn).std(axis=-1)


def deviation_of_runs(betas: Sequence[float], drawn: list[np.ndarray]) -> np.ndarray:
    return deviation_over_strata(drawn)


def score(betas: Sequence[float], drawn: list[np.ndarray]) -> np.ndarray:
    return score_statistic(betas)(drawn)


def peaks_small(study: StudyResult) -> list[Check]:
    return [at_most("log10(best beta)", pooled(performing(sweeps(study, CURIOSITY)), log_best_beta, over_tasks), 0.0)]


def peaks_differ(study: StudyResult) -> list[Check]:
    parts = performing(sweeps(study, CURIOSITY))
    found = pooled(parts, log_best_beta, lambda each: each.max(axis=0) - each.min(axis=0))
    return [more_than("decades between best betas", found, 0.0)]


def drops_beyond_ten(study: StudyResult) -> list[Check]:
    parts = performing(sweeps(study, CURIOSITY))
    if any(not (max(betas) > 10 >= min(betas)) for betas, _ in parts):
        raise NotRun("betas up to 10 and above")
    return [at_most("share kept beyond beta 10", pooled(parts, kept_beyond_ten, over_tasks), 0.5)]


def tolerates_large(study: StudyResult) -> list[Check]:
    if any(max(betas) < 10 for betas, _ in sweeps(study, HYPER)):
        raise NotRun("betas of 10 or more")
    return [more_than("at beta >= 10, Hyper - Curiosity", versus(study, HYPER, CURIOSITY, at_large_betas), 0.0)]


def more_consistent(study: StudyResult) -> list[Check]:
    return [less_than("spread, Hyper - Curiosity", versus(study, HYPER, CURIOSITY, spread_over_betas), 0.0)]


def more_robust(study: StudyResult) -> list[Check]:
    return [
        more_than("score, Hyper - Curiosity", versus(study, HYPER, CURIOSITY, score), 0.0),
        more_than("score, Hyper - Decouple", versus(study, HYPER, DECOUPLE, score), 0.0),
    ]


def smaller_variance(study: StudyResult) -> list[Check]:
    return [
        less_than("deviation, Hyper - Curiosity", versus(study, HYPER, CURIOSITY, deviation_of_runs), 0.0),
        less_than("deviation, Hyper - Decouple", versus(study, HYPER, DECOUPLE, deviation_of_runs), 0.0),
    ]


NOISE = "any difference beyond the noise"
UNITS = "performance in units of the task's best cell (success as it is)"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "curiosity-peaks-small-beta", "Curiosity peaks at a small beta",
        "Typically, the performance of the Curiosity agent peaks with a small value of β", "6.2, Figure 6",
        STUDIES, "Curiosity, all betas, tasks on which it gets anywhere",
        "log10 of the beta with the best mean, mean over tasks",
        "<= 0", "beta 1 is what the paper uses untuned, so small is at most that", peaks_small, REMARKS,
    ),
    Claim(
        "curiosity-peaks-differ", "Curiosity's best beta differs between tasks",
        "the Curiosity agent shows peak performance with different values of β", "6.2, Figure 6",
        STUDIES, "Curiosity, all betas, tasks on which it gets anywhere",
        "decades between the lowest and the highest best beta",
        "> 0", NOISE, peaks_differ, REMARKS,
    ),
    Claim(
        "curiosity-drops-large-beta", "Curiosity drops drastically for beta > 10",
        "drastically drops as β > 10", "6.2, Figure 6",
        STUDIES, "Curiosity, all betas, tasks on which it gets anywhere",
        "mean performance at betas above 10 divided by the best cell up to 10, mean over tasks", "<= 0.5",
        "losing half is drastic", drops_beyond_ten, REMARKS,
    ),
    Claim(
        "hyper-more-consistent", "Hyper is more consistent over beta than Curiosity",
        "Hyper shows considerably more consistent with different β values", "6.2, Figure 6",
        STUDIES, "Hyper and Curiosity, all tasks and betas",
        f"standard deviation over betas of the cell means, Hyper - Curiosity, mean over tasks; {UNITS}", "< 0", NOISE,
        more_consistent, REMARKS,
    ),
    Claim(
        "hyper-large-beta", "Hyper tolerates large beta better than Curiosity",
        "Hyper generally shows better tolerance to the large value of β", "6.2, Figure 6",
        STUDIES, "Hyper and Curiosity, beta >= 10, all tasks",
        f"mean performance, Hyper - Curiosity, mean over tasks; {UNITS}", "> 0", NOISE, tolerates_large, REMARKS,
    ),
    Claim(
        "hyper-more-robust", "Hyper is more robust to beta than the other methods",
        "The experiment shows that Hyper not only enjoys better robustness to β compared to other methods", "Figure 6",
        STUDIES, "Hyper, Curiosity, Decouple, all tasks and betas",
        f"robustness score, Hyper - each other, mean over tasks; {UNITS}", "> 0 against both", NOISE,
        more_robust, REMARKS,
    ),
    Claim(
        "hyper-smaller-variance", "Hyper has a smaller variance than the other methods",
        "but also enjoys a smaller variance", "Figure 6",
        STUDIES, "Hyper, Curiosity, Decouple, all tasks and betas",
        f"standard deviation over runs, Hyper - each other, mean over tasks and betas; {UNITS}", "< 0 against both",
        NOISE, smaller_variance, REMARKS,
    ),
)  # fmt: skip

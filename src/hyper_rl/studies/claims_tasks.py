"""What the paper says about whole tasks: section 6.1, Figures 5 and 8, appendix A.4 and A.5 (MiniGrid)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hyper_rl.studies.cells import (
    DENSE,
    FAILED,
    MAZES,
    NAMES,
    SOLVED,
    enough,
    exactly,
    main_cell,
    main_runs,
    refuse_unfinished,
    runs_of,
    task_scale,
    tasks_of,
)
from hyper_rl.studies.statistics import Estimate, bootstrap, difference_of, mean_of, share_of_trials
from hyper_rl.studies.store import RunResult, StudyResult
from hyper_rl.studies.verdicts import Check, Claim, NotRun, at_least, at_most, less_than, more_than, rare

EXPLOIT, CURIOSITY, DECOUPLE, HYPER, LESSON = "exploit", "curiosity", "decouple", "hyper", "lesson"
SPARSE = ("SparseHopper", "SparseWalker2d")
HARD_MAZES = ("MediumMaze-Medium", "LargeMaze-Medium", "LargeMaze-Hard")
"""Those the paragraph on the hard navigation tasks names."""
HARDEST = "LargeMaze-Hard"
HIGH_DIMENSIONAL = ("Ant", "Humanoid", "SparseHumanoid")
"""More than 100 numbers observed; the others have at most 17."""
MARGIN = 0.1
"""'Comparable': no more than a tenth behind."""
COMPARABLE = "0.1: a tenth of the success rate, or of the best method's return, still counts as comparable"
FULL, MAIN, ONLY_MAZES = "figure-8", "figure-5", "mazes"


def trials(study: StudyResult, tasks: Sequence[str], method: str) -> list[RunResult]:
    return [run for task in tasks for run in enough(runs_of(study, task, method), f"{task}, {NAMES[method]}")]


def share(runs: Sequence[RunResult], hit: Callable[[RunResult], bool]) -> tuple[Estimate, int]:
    hits = sum(map(hit, runs))
    return share_of_trials(hits, len(runs)), hits


def any_reward(run: RunResult) -> bool:
    """In any episode, judged or of training: where rewards are never negative, some mean return is above zero."""
    returns = np.concatenate([run.curve["return"], run.curve["behaviour_return"]])
    return bool(np.nanmax(returns, initial=0.0) > 0)


def td3_no_reward(study: StudyResult) -> list[Check]:
    found, hits = share(trials(study, SPARSE, EXPLOIT), any_reward)
    return [rare("share of trials with any reward", found, at_most_hits=0, hits=hits, limit=0.35, refuted_above=0.05)]


def found_goal(run: RunResult) -> bool:
    return run.final["goals"] > 0


def mazes_in(study: StudyResult, *methods: str) -> list[str]:
    """Its mazes; refused where the main comparison of one of the methods is still to come in any of them."""
    refuse_unfinished(study, [f"{task}-{method}" for task in MAZES for method in methods], swept=False)
    mazes = [task for task in MAZES if any(run.config.task == task for run in study.runs)]
    if len(mazes) < 3:
        raise NotRun(f"mazes: {len(mazes)} of at least 3 tasks")
    return mazes


def td3_maze_once(study: StudyResult) -> list[Check]:
    found, hits = share(trials(study, mazes_in(study, EXPLOIT), EXPLOIT), found_goal)
    return [rare("share of trials that met the goal", found, at_most_hits=1, hits=hits, limit=1 / 3, refuted_above=0.1)]


def curiosity_solves_sparse(study: StudyResult) -> list[Check]:
    return [at_least(f"return, {task}", mean_of([main_cell(study, task, CURIOSITY)]), 100.0) for task in SPARSE]


def behind(study: StudyResult, task: str, first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    scale = task_scale(study, task)
    return main_cell(study, task, first) / scale, main_cell(study, task, second) / scale


def curiosity_comparable_dense(study: StudyResult) -> list[Check]:
    tasks = tasks_of(study, DENSE)
    if not tasks:
        raise NotRun("dense locomotion")
    pairs = [behind(study, task, CURIOSITY, EXPLOIT) for task in tasks]
    found = difference_of([first for first, _ in pairs], [second for _, second in pairs])
    return [at_least(f"Curiosity - TD3, {len(tasks)} tasks", found, -MARGIN)]


def curiosity_finds_not_exploits(study: StudyResult) -> list[Check]:
    checks = []
    for task in HARD_MAZES:
        runs = main_runs(study, task, CURIOSITY)
        met = float(np.mean([found_goal(run) for run in runs]))
        checks.append(at_least(f"share that met the goal, {task}", exactly(met), SOLVED))
        checks.append(at_most(f"success, {task}", mean_of([main_cell(study, task, CURIOSITY)]), FAILED))
    return checks


def decouple_succeeds(study: StudyResult) -> list[Check]:
    tasks = ("MediumMaze-Medium", "LargeMaze-Medium")
    return [at_least(f"success, {task}", mean_of([main_cell(study, task, DECOUPLE)]), 0.5) for task in tasks]


def decouple_fails(study: StudyResult) -> list[Check]:
    return [at_most(f"success, {HARDEST}", mean_of([main_cell(study, HARDEST, DECOUPLE)]), FAILED)]


def decouple_struggles(study: StudyResult) -> list[Check]:
    tasks = tasks_of(study, HIGH_DIMENSIONAL)
    if not tasks:
        raise NotRun(f"one of {', '.join(HIGH_DIMENSIONAL)}")
    pairs = [behind(study, task, DECOUPLE, HYPER) for task in tasks]
    found = difference_of([first for first, _ in pairs], [second for _, second in pairs])
    return [at_most(f"Decouple - Hyper, {', '.join(tasks)}", found, -0.25)]


def only_hyper_consistent(study: StudyResult) -> list[Check]:
    checks = [at_least(f"success, Hyper, {HARDEST}", mean_of([main_cell(study, HARDEST, HYPER)]), SOLVED)]
    for other in (EXPLOIT, CURIOSITY, DECOUPLE):
        found = mean_of([main_cell(study, HARDEST, other)])
        checks.append(less_than(f"success, {NAMES[other]}, {HARDEST}", found, SOLVED))
    return checks


def only_hyper_solves_all(study: StudyResult) -> list[Check]:
    mazes = mazes_in(study, EXPLOIT, CURIOSITY, DECOUPLE, HYPER)
    checks = [at_least(f"success, Hyper, {task}", mean_of([main_cell(study, task, HYPER)]), SOLVED) for task in mazes]
    for other in (EXPLOIT, CURIOSITY, DECOUPLE):
        cells = [main_cell(study, task, other) for task in mazes]
        lowest = bootstrap(cells, lambda drawn: np.min([runs.mean(axis=-1) for runs in drawn], axis=0))
        checks.append(less_than(f"lowest success, {NAMES[other]}", lowest, SOLVED))
    return checks


def hyper_comparable(study: StudyResult) -> list[Check]:
    checks = []
    for task in tasks_of(study):
        for other in (EXPLOIT, CURIOSITY, DECOUPLE):
            hyper, theirs = behind(study, task, HYPER, other)
            checks.append(at_least(f"Hyper - {NAMES[other]}, {task}", difference_of([hyper], [theirs]), -MARGIN))
    if not checks:
        raise NotRun("any task")
    return checks


def learning_area(run: RunResult) -> float:
    """Mean success over all evaluations: how high the learning curve is as a whole."""
    return float(np.nanmean(run.curve["success"]))


def against_lesson(task: str, compare: Callable[[str, Estimate, float], Check], threshold: float) -> Claim:
    better = threshold == 0.0

    def judge(study: StudyResult) -> list[Check]:
        areas = [np.array([learning_area(run) for run in trials(study, [task], name)]) for name in (HYPER, LESSON)]
        return [compare(f"Hyper - LESSON, {task}", difference_of([areas[0]], [areas[1]]), threshold)]

    return Claim(
        id=f"minigrid-{task.lower()}",
        claim=f"Hyper {'outperforms' if better else 'is comparable to'} LESSON on {task}",
        sentence="Hyper performs comparable in Empty16x16 and Fetch8x8 tasks, and outperforms LESSON in UnlockPickup "
        "and LavaCrossingS9N1",
        where="A.5, Figure 9",
        studies=("figure-9",),
        runs=f"Hyper and LESSON, {task}",
        statistic="success, mean over all evaluations, Hyper - LESSON",
        threshold="> 0" if better else ">= -0.1",
        reason="any difference beyond the noise; the whole curve, as the sentence is about efficiency"
        if better
        else "0.1: a tenth of the success rate still counts as comparable",
        judge=judge,
    )


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "td3-sparse-no-reward", "TD3 receives no reward in any trial of sparse locomotion",
        "In the sparse reward locomotion environment (Hopper-Sparse, Walker2d-Sparse), it fails to receive any reward "
        "in any trial", "6.1",
        (FULL, MAIN), "TD3 (exploit), SparseHopper, SparseWalker2d",
        "share of trials with a return above zero in any evaluation or training window, exact interval",
        "none, and upper limit <= 0.35; contradicted if the lower limit is above 0.05",
        "none of ten has the upper limit 0.31; three of ten have the lower limit 0.07", td3_no_reward,
    ),
    Claim(
        "td3-maze-once", "TD3 finds the maze goal once in all trials",
        "it can only manage to find the goal location once in all trials", "6.1",
        (FULL, MAIN, ONLY_MAZES), "TD3 (exploit), all mazes of the study (at least three)",
        "share of trials that ever met the goal, exact interval",
        "at most one, and upper limit <= 1/3; contradicted if the lower limit is above 0.1",
        "one of 15 has the upper limit 0.32; five of 15 have the lower limit 0.12", td3_maze_once,
    ),
    Claim(
        "curiosity-sparse", "Curiosity succeeds in sparse locomotion",
        "Curiosity explores the environment efficiently and succeeds in the sparse-reward locomotion tasks", "6.1",
        (FULL, MAIN), "Curiosity, SparseHopper, SparseWalker2d", "mean return on each", ">= 100",
        "a tenth of the 1000 steps above the speed; TD3 is said to have none", curiosity_solves_sparse,
    ),
    Claim(
        "curiosity-dense", "Curiosity is comparable to TD3 in dense locomotion",
        "It also performs comparably, even favorably, in dense-reward locomotion tasks", "6.1",
        (FULL, MAIN), "Curiosity and TD3, dense locomotion tasks of the study",
        "return in units of the task's best cell, Curiosity - TD3, mean over tasks", ">= -0.1", COMPARABLE,
        curiosity_comparable_dense,
    ),
    Claim(
        "curiosity-mazes", "Curiosity finds the goal of hard mazes but never exploits it",
        "It manages to find the goal location, however, it never manages to learn to properly exploit the task", "6.1",
        (FULL, MAIN, ONLY_MAZES), f"Curiosity, {', '.join(HARD_MAZES)}",
        "share of trials that met the goal; mean success, on each", ">= 0.8; <= 0.2",
        "0.8 and 0.2 as in the room", curiosity_finds_not_exploits,
    ),
    Claim(
        "decouple-mazes", "Decouple succeeds on MediumMaze-Medium and LargeMaze-Medium",
        "The Decouple agent can learn a successful policy based on a limited number of success trajectories collected "
        "by the Curiosity agent in MediumMaze-Medium and LargeMaze-Medium", "6.1",
        (FULL, MAIN, ONLY_MAZES), "Decouple on the two", "mean success on each", ">= 0.5",
        "a policy that succeeds more often than not is successful; 'consistent' is said of Hyper alone",
        decouple_succeeds,
    ),
    Claim(
        "decouple-hardest", "Decouple fails on LargeMaze-Hard",
        "but it fails to do so in the hardest navigation task, LargeMaze-Hard", "6.1",
        (FULL, MAIN, ONLY_MAZES), "Decouple, LargeMaze-Hard", "mean success", "<= 0.2", "0.2 as in the room",
        decouple_fails,
    ),
    Claim(
        "decouple-high-dimensional", "Decouple struggles with high-dimensional locomotion",
        "The Decouple agent also struggles with high-dimensional locomotion tasks due to distribution shift", "6.1",
        (FULL, MAIN), f"Decouple and Hyper, those of {', '.join(HIGH_DIMENSIONAL)} in the study",
        "return in units of the task's best cell, Decouple - Hyper, mean over tasks", "<= -0.25",
        "a quarter of what can be reached is a struggle", decouple_struggles,
    ),
    Claim(
        "hyper-hardest", "Hyper alone consistently solves LargeMaze-Hard",
        "Notably, Hyper is the only agent that consistently tackles the task", "6.1",
        (FULL, MAIN, ONLY_MAZES), "all four methods, LargeMaze-Hard", "mean success", "Hyper >= 0.8, the others < 0.8",
        "0.8 as in the room", only_hyper_consistent,
    ),
    Claim(
        "hyper-all-mazes", "Hyper alone consistently solves all mazes, with beta 1 untuned",
        "Notably, Hyper is the only agent that consistently tackles the task", "6.1, read as all navigation tasks",
        (FULL, MAIN, ONLY_MAZES), "all four methods, all mazes of the study (at least three)",
        "mean success of Hyper on each; lowest mean success of each other method", "Hyper >= 0.8; the others < 0.8",
        "0.8 as in the room", only_hyper_solves_all,
    ),
    Claim(
        "hyper-comparable-main", "Hyper is comparable or better in all tasks",
        "Hyper performs comparable, often time favorable in all the tasks", "6.1, Figure 5",
        (MAIN,), "all methods, all tasks", "performance, Hyper - each other method on each task", ">= -0.1",
        COMPARABLE, hyper_comparable,
    ),
    Claim(
        "hyper-comparable-full", "Hyper is comparable to the best method in every task",
        "Hyper performs comparable to the best-performing algorithm in every task", "A.4, Figure 8",
        (FULL,), "all methods, all tasks", "performance, Hyper - each other method on each task", ">= -0.1",
        COMPARABLE, hyper_comparable,
    ),
    against_lesson("Empty-16x16", at_least, -MARGIN),
    against_lesson("Fetch-8x8", at_least, -MARGIN),
    against_lesson("UnlockPickup", more_than, 0.0),
    against_lesson("LavaCrossingS9N1", more_than, 0.0),
)  # fmt: skip

"""Studies made up by hand: one in which all that the paper says is so, and one in which none of it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.config import Config
from hyper_rl.studies.claims_room import ROWS
from hyper_rl.studies.store import RunResult, StudyResult

ROOM = Path(__file__).parents[1] / "results" / "room"
PAPER_BETAS = (5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1, 1.0, 10.0, 100.0)
DEEP_BETAS = (0.01, 0.1, 1.0, 10.0, 100.0)
SEEDS = range(5)
STEPS = np.arange(1, 11) * 100_000.0


@cache
def base_config() -> Config:
    return Config.from_json((ROOM / "hyper" / "config.json").read_text(), "config.json")


def make_run(task: str, method: str, beta: float, seed: int, final: Mapping[str, float], **more: Any) -> RunResult:
    """`more`: fields of the configuration, and `curve` and `visits`."""
    curve = {
        "step": STEPS,
        "success": np.full(10, final["success"]),
        "return": np.full(10, final["return"]),
        "behaviour_return": np.full(10, final["return"]),
        "mean_length": np.full(10, np.nan),
        **more.pop("curve", {}),
    }
    visits = more.pop("visits", None)
    config = dataclasses.replace(base_config(), task=task, method=method, betas=(beta,), seeds=(seed,), **more)
    labels = {"task": task, "method": method, "preset": config.preset, "learner": config.learner}
    whole = {"finite": 1.0, "goals": 10.0, "critic_estimate": 0.0, "discounted_return": 0.0, **final}
    return RunResult(f"{task}-{method}", labels, config, 0, beta, seed, whole, curve, visits)


def make_study(name: str, runs: Sequence[RunResult], scale: str = "paper") -> StudyResult:
    return StudyResult(Path(f"{name}-folder"), name, name, scale, tuple(runs), (), {}, f"hyper-rl study {name}")


def result(performance: float, **more: float) -> dict[str, float]:
    return {"success": performance, "return": performance, **more}


def sweep_runs(
    task: str, method: str, betas: Sequence[float], level: Callable[[float], float], noise: float = 0.0, **more: Any
) -> list[RunResult]:
    """Level by beta; seeds alternate by `noise` around it."""
    return [
        make_run(task, method, beta, seed, result(level(beta) + noise * (seed % 2 - 0.4)), **more)
        for beta in betas
        for seed in SEEDS
    ]


def room_sweep(method: str, good: Callable[[float], bool], **more: Any) -> list[RunResult]:
    """Success where good; below that the sub-goal's return, above it nothing but a few goals met."""
    r = more.get("task_options", {}).get("subgoal_reward", 0.1)

    def final(beta: float) -> dict[str, float]:
        low = not good(beta) and beta < 0.5
        return {"success": float(good(beta)), "return": 1.0 if good(beta) else r if low else 0.0}

    return [make_run("Room", method, beta, seed, final(beta), **more) for beta in PAPER_BETAS for seed in SEEDS]


def figure_1(true: bool) -> StudyResult:
    inside = (lambda beta: 0.004 < beta < 0.3) if true else (lambda beta: not 0.004 < beta < 0.3)
    runs = room_sweep("curiosity", inside)
    runs += room_sweep("hyper", lambda beta: true)
    runs += sweep_runs("Room", "exploit", PAPER_BETAS, lambda beta: 0.0 if true else 1.0)
    return make_study("figure-1", runs)


def figure_2(true: bool) -> StudyResult:
    even, one_cell = np.full(900, 7), np.eye(1, 900, dtype=int)[0] * 900
    finals = {0.01: (0.0, 0.1), 0.1: (1.0, 1.0), 1.0: (0.0, 0.0)}
    runs = []
    for beta, (success, total) in finals.items():
        final = {"success": success if true else 1.0 - success, "return": total if true else 1.0 - total}
        for seed in SEEDS:
            runs.append(make_run("Room", "curiosity", beta, seed, final, visits=even if true else one_cell))
            other = {"learner_options": {"gamma": 0.97}}
            runs.append(make_run("Room", "curiosity", beta, seed, result(0.5), visits=even, **other))
    return make_study("figure-2", runs)


def table_1(true: bool) -> StudyResult:
    runs: list[RunResult] = []
    for (R, r), proper in ROWS.items():
        options = {"goal_reward": R, "subgoal_reward": r}
        good = set(proper) if true else {5e-2}
        runs += room_sweep("curiosity", lambda beta, good=good: beta in good, task_options=options)  # type: ignore[misc]
    return make_study("table-1", runs)


def figure_3(true: bool) -> StudyResult:
    def run(method: str, seed: int) -> RunResult:
        promised = 5.0 if (method == "decouple") == true else 1.0
        return make_run("Ant", method, 1.0, seed, result(1.0, critic_estimate=promised, discounted_return=1.0))

    return make_study("figure-3", [run(method, seed) for method in ("decouple", "hyper") for seed in SEEDS])


def lengths_study(name: str, true: bool) -> StudyResult:
    """Bounded runs solve at the third evaluation, plain ones at the eighth, or the other way round."""
    runs = []
    for lengths, p_end in (("bounded", 0.001), ("plain", 0.001), ("bounded", 0.1), ("plain", 0.1)):
        solved = 3 if (lengths == "bounded") == true else 8
        mean_length = 81.0 if true else 190.0
        curve = {"success": (np.arange(1, 11) >= solved).astype(float), "mean_length": np.full(10, mean_length)}
        start = 0.01 if true else 0.0001
        more: dict[str, Any] = {"lengths": lengths, "p_start": max(start, p_end) if true else start, "p_end": p_end}
        options = {"task_options": {"horizon": 200}}
        runs += [make_run("Room", "hyper", 1.0, seed, result(1.0), curve=curve, **more, **options) for seed in SEEDS]
    return make_study(name, runs)


LEVELS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    # (as the paper has it, the opposite)
    "SparseHopper": {"exploit": (0, 500), "curiosity": (500, 0), "decouple": (400, 900), "hyper": (600, 1)},
    "SparseWalker2d": {"exploit": (0, 500), "curiosity": (500, 0), "decouple": (400, 900), "hyper": (600, 1)},
    "Ant": {"exploit": (4000, 4000), "curiosity": (4000, 100), "decouple": (500, 4000), "hyper": (4500, 100)},
    "MediumMaze-Medium": {"exploit": (0, 1), "curiosity": (0.1, 0.9), "decouple": (0.8, 0), "hyper": (1, 0)},
    "LargeMaze-Medium": {"exploit": (0, 1), "curiosity": (0.1, 0.9), "decouple": (0.8, 0), "hyper": (1, 0)},
    "LargeMaze-Hard": {"exploit": (0, 1), "curiosity": (0.1, 0.9), "decouple": (0.1, 0.9), "hyper": (0.9, 0.1)},
}


def comparison(name: str, true: bool) -> StudyResult:
    runs = []
    for task, levels in LEVELS.items():
        for method, (so, opposite) in levels.items():
            for seed in SEEDS:
                met = not true if method == "exploit" else true
                lucky = true and (task, method, seed) == ("LargeMaze-Hard", "exploit", 2)
                final = result(float(so if true else opposite), goals=float(met or lucky))
                runs.append(make_run(task, method, 1.0, seed, final))
    return make_study(name, runs)


def figure_6(true: bool) -> StudyResult:
    peaks = {"MediumMaze-Easy": 0.01, "Walker2d": 0.1} if true else {"MediumMaze-Easy": 100.0, "Walker2d": 100.0}
    runs = []
    for task, peak in peaks.items():
        unit = 4000.0 if task == "Walker2d" else 1.0
        peaked = lambda beta, peak=peak, unit=unit: unit * (0.9 if beta == peak else 0.1)  # noqa: E731
        flat = lambda beta, unit=unit: unit * 0.8  # noqa: E731
        weak = lambda beta, unit=unit: unit * 0.5  # noqa: E731
        sunk = lambda beta, unit=unit: unit * (1.0 if beta < 0.05 else 0.0)  # noqa: E731
        runs += sweep_runs(task, "hyper", DEEP_BETAS, flat if true else sunk, (0.01 if true else 0.4) * unit)
        runs += sweep_runs(task, "curiosity", DEEP_BETAS, peaked, (0.1 if true else 0.01) * unit)
        runs += sweep_runs(task, "decouple", DEEP_BETAS, weak, (0.1 if true else 0.01) * unit)
    return make_study("figure-6", runs)


def figure_9(true: bool) -> StudyResult:
    runs = []
    for task in ("Empty-16x16", "Fetch-8x8", "UnlockPickup", "LavaCrossingS9N1"):
        level = {"hyper": 0.7 if true else 0.2, "lesson": 0.6}
        runs += [
            make_run(task, method, 1.0, seed, result(level[method]), preset="minigrid")
            for method in level
            for seed in SEEDS
        ]
    return make_study("figure-9", runs)


def computed_study(name: str, parts: Mapping[str, Mapping[str, Any]], scale: str = "paper") -> StudyResult:
    return dataclasses.replace(make_study(name, [], scale), parts=parts)


def linear(true: bool) -> StudyResult:
    share = {"LSVI-UCB": 0.5, "Hyper p=1": 0.8, "Hyper p=0.1": 0.99 if true else 0.3}
    betas = (1.0, 10.0, 100.0)
    table = [
        {"mdp": mdp, "policy": policy, "beta": beta, "theory_beta": int(beta == 100.0), "value_share": value,
         "value_share_sd": 0.01}
        for mdp in ("swim", "lock") for policy, value in share.items() for beta in betas
    ]  # fmt: skip
    held = 1.0 if true else 0.5
    bounds = [
        {"mdp": "swim", "p": p, "beta": 500.0, "seeds": 200, "episodes": 100, "upper_holds": held, "lower_holds": held,
         "upper_free_mean": 0.0}
        for p in (1.0, 0.1)
    ]  # fmt: skip
    slopes = [
        {"family": "lock", "axis": axis, "measure": measure, "slope": slope, "low": slope - 0.2, "high": slope + 0.2,
         "intercept": 0.0, "censored": 0 if true else 90, "runs": 140, "fixed_beta": 1.0, "theorem": 3.0}
        for axis, slope in {"H": 2.0 if true else 6.0, "d": 1.5 if true else 5.0, "1/p": 0.3 if true else 2.0}.items()
        for measure in ("settled", "average")
    ]  # fmt: skip
    return computed_study(
        "linear",
        {
            "table": {"table.csv": table, "table.json": {"seeds": 20}},
            "confidence": {"confidence.json": {"delta": 0.1, "swim": {"at_theory_beta": bounds}}},
            "complexity": {"complexity.json": {"slopes": slopes}},
        },
    )


def table_2(true: bool) -> StudyResult:
    steps = [140 + i % 7 for i in range(100)] if true else [60 + i % 7 for i in range(100)]
    tasks = {"MediumMaze-Easy": 500, "MediumMaze-Medium": 200}
    table = [
        {"task": task, "paper_steps": 150, "horizon": horizon, "episodes": 100, "reached": 1.0 if true else 0.2,
         "steps_mean": float(np.mean(steps)), "steps_5%": 140.0, "steps_95%": 146.0, "horizon_per_step": 3.0}
        for task, horizon in tasks.items()
    ]  # fmt: skip
    episodes = [{"task": task, "steps": count} for task in tasks for count in steps]
    return computed_study("table-2", {"controller": {"table-2.csv": table, "episodes.csv": episodes}})


def all_studies(true: bool) -> list[StudyResult]:
    return [
        figure_1(true),
        figure_2(true),
        table_1(true),
        figure_3(true),
        lengths_study("figure-4", true),
        lengths_study("bounded", true),
        comparison("figure-5", true),
        comparison("figure-8", true),
        figure_6(true),
        figure_9(true),
        linear(true),
        table_2(true),
    ]

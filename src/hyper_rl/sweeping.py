"""Several betas and seeds side by side, from Python: what `hyper-rl train` does, as one call.

    from hyper_rl import sweep

    found = sweep("Room", betas=(0.005, 0.1, 10), seeds=5, out="runs/room")
    found.means()                       # {0.005: 1.0, 0.1: 1.0, 10.0: 1.0}
    found.agent(beta=0.1, seed=2)       # an agent object, which predicts and is judged

All runs are one compiled program. The run folder is the command's: `hyper-rl evaluate`, `render` and `train --resume`
take it, and the same call made again goes on with a stopped one, or reads a finished one.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np

from hyper_rl.agent import OffPolicyAgent, load
from hyper_rl.agent_arguments import as_path, require_environments, require_parts, require_settings
from hyper_rl.config import Config, first_difference, require_learning
from hyper_rl.envs.gym_make import import_registering
from hyper_rl.errors import UserError, require, require_count
from hyper_rl.methods.policies import METHODS
from hyper_rl.own_parts import module_for_task
from hyper_rl.report.writers import NAMES as WRITERS
from hyper_rl.room_options import write_out_room
from hyper_rl.settings import Settings, as_number, as_steps, choose_task, make_parts, require_word
from hyper_rl.studies.statistics import Estimate, robustness_score
from hyper_rl.training.progress import show_progress
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.trainer import Saving, resume, train


@dataclasses.dataclass(frozen=True)
class Sweep:
    """The runs of one run folder. `runs` has one row each: beta, seed, success, return, goals, ..."""

    folder: Path
    config: Config
    runs: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, folder: str | Path) -> Sweep:
        """What is in a finished run folder, whoever trained it."""
        opened, config = RunFolder.open(as_path("folder", folder))
        return cls(opened.path, config, tuple(opened.read_result()["runs"]))

    @property
    def betas(self) -> tuple[float, ...]:
        return tuple(sorted({float(run["beta"]) for run in self.runs}))

    def values(self, column: str = "success") -> dict[float, np.ndarray]:
        """One number for each seed, by beta; NaN where a run has none."""
        known = sorted({name for run in self.runs for name in run} - {"run"})
        require(column in known, "column", column, f"one of {', '.join(known)}")
        return {
            beta: np.array([np.nan if run[column] is None else run[column] for run in self.runs if run["beta"] == beta])
            for beta in self.betas
        }

    def means(self, column: str = "success") -> dict[float, float]:
        """Mean over the seeds that have a number, by beta."""
        kept = {beta: values[~np.isnan(values)] for beta, values in self.values(column).items()}
        return {beta: float(values.mean()) if len(values) else float("nan") for beta, values in kept.items()}

    def robustness(self) -> Estimate:
        """Area under success against log beta, divided by the width, with its 95% interval; needs two betas."""
        return robustness_score(self.betas, list(self.values().values()))

    def curve(self) -> dict[str, np.ndarray]:
        """Columns of `curve.csv`: one row for each evaluation of each run."""
        return RunFolder(self.folder).read_curve()

    def agent(self, beta: float | None = None, seed: int | None = None) -> OffPolicyAgent:
        """The judged agent of one run; beta or seed may be left out where there is only one."""
        # Close enough: a beta that came from an array of 32 bits is written with the digits that it has.
        found = [run for run in self.runs if beta is None or math.isclose(run["beta"], beta, rel_tol=1e-6)]
        found = [run for run in found if seed is None or run["seed"] == seed]
        if len(found) != 1:
            have = ", ".join(f"beta {run['beta']:g} seed {run['seed']}" for run in self.runs[:8])
            more = f" and {len(self.runs) - 8} more" if len(self.runs) > 8 else ""
            raise UserError(
                f"agent: beta {beta} and seed {seed} name {len(found)} runs of {self.folder}, must name one of: "
                f"{have}{more}"
            )
        return load(RunFolder(self.folder).agent(found[0]["run"]))


def sweep(
    task: str,
    betas: float | Sequence[float] = 1.0,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    *,
    out: str | Path,
    method: str = "hyper",
    learner: str | eqx.Module | None = None,
    bonus: str | eqx.Module | None = None,
    preset: str = "robust",
    env_kwargs: Mapping[str, Any] | None = None,
    env_module: str | None = None,
    backend: str | None = None,
    horizon: int | None = None,
    success: str | None = None,
    progress_bar: bool = False,
    env_workers: int = 0,
    checkpoint_seconds: float = 60.0,
    log: Sequence[str] = (),
    **settings: Any,
) -> Sweep:
    """Train every beta with every seed (a number of them from 0 on, or the seeds themselves) into the folder `out`.

    `task` is a name of ours or a Gymnasium id, because every run has environments of its own; `learner` and `bonus` are
    names or configured objects. Further settings are those of `hyper-rl train`: warmup, eval_every, p_start, ...
    """
    require(isinstance(task, str), "task", task, "a task's name or a Gymnasium id")
    require_word("method", method, METHODS)
    require_parts(method, learner, bonus)
    require_settings(settings, method, sweep)
    require_environments(task, env_kwargs, None, success)
    require_count("env_workers", env_workers, low=0)
    folder, saving = as_path("out", out), _saving(checkpoint_seconds, log)
    if env_module is not None:  # it may add learners and bonuses, which have to be known by name
        import_registering(env_module)
    choice = choose_task(
        task,
        backend=backend,
        options=write_out_room(task, backend, env_kwargs or {}),
        horizon=horizon,
        env_module=module_for_task(task, env_module),
        success=success,
    )
    if choice.unwritten:  # a run folder must be able to make its environments again
        names = ", ".join(choice.unwritten)
        raise UserError(f"env_kwargs: {names} cannot be written to a file; register an id that gives it by itself")
    made, made_bonus = make_parts(choice, preset, method, learner, bonus)
    config = Settings(
        choice=choice,
        learner=made,
        bonus=made_bonus,
        method=method,
        preset=preset,
        betas=(betas,) if _is_one(betas) else tuple(betas),  # type: ignore[arg-type]
        seeds=tuple(range(as_steps("seeds", seeds))) if _is_one(seeds) else tuple(seeds),  # type: ignore[arg-type]
        steps=None if steps is None else as_steps("steps", steps),
        **settings,
    ).config()
    require_learning(config)
    label = f"{method} on {task} ({len(config.runs)} runs)"
    shown = (lambda first: show_progress(label, config.steps, first, sys.stderr)) if progress_bar else None
    if RunFolder(folder).config.is_file():
        _refuse_others(config, folder)
        resume(folder, saving=saving, open_progress=shown, env_workers=env_workers, env_module=env_module)
    else:
        train(config, folder, saving=saving, open_progress=shown, env_workers=env_workers)
    return Sweep.read(folder)


def _saving(checkpoint_seconds: Any, log: Any) -> Saving:
    every = as_number("checkpoint_seconds", checkpoint_seconds)
    require(every > 0, "checkpoint_seconds", checkpoint_seconds, "a number > 0")
    several = isinstance(log, Iterable) and not isinstance(log, (str, bytes))
    require(several, "log", log, f"several of {', '.join(WRITERS)}, as in log=('{WRITERS[0]}',)")
    writers = tuple(log)
    for name in writers:
        require_word("log", name, WRITERS)
    return Saving(every, writers=writers)


def _is_one(values: Any) -> bool:
    """NumPy's and JAX's scalars are iterable by their type, and are one value all the same."""
    return isinstance(values, (str, bytes)) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0


def _refuse_others(config: Config, folder: Path) -> None:
    """The same call goes on with a folder; another one must not be taken for it."""
    differs = first_difference(config, RunFolder.open(folder)[1])
    if differs is not None:
        name, mine, theirs = differs
        raise UserError(f"{name}: got {mine}, but {folder} was made with {theirs}; give another folder as `out`")

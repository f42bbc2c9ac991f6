"""An agent object on disk: an agent folder (`agent_file`) and, when it was saved whole, the files of a run folder.

A whole one is a run folder that has not finished, so `hyper-rl train --resume` can go on with it too.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyper_rl.config import Config, check_precision, require_named_task
from hyper_rl.envs.host_task import same_spaces
from hyper_rl.errors import UserError
from hyper_rl.settings import TaskChoice, choose_task
from hyper_rl.training.agent_file import Agent, read_agent, write_agent
from hyper_rl.training.checkpoint import Position, head_sha256, read_newest, write_checkpoint
from hyper_rl.training.loop import Loop, Stored
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.session import Clock, Rows


@dataclass(frozen=True)
class SavedAgent:
    """What was found in a folder."""

    folder: Path
    agent: Agent
    config: Config
    whole: bool
    step: int
    evaluations: int
    curve: Rows

    @property
    def horizon(self) -> int | None:
        return None if self.config.host is None else self.config.host["horizon"]

    @property
    def success(self) -> str | None:
        return None if self.config.host is None else self.config.host["success"]

    def fit(self, choice: TaskChoice) -> TaskChoice:
        """The environment must be of the kind the agent was trained on."""
        if not same_spaces(choice.spec, self.agent.task.spec):
            raise UserError(f"env: {choice.name} has other spaces than {self.config.task}, which the agent knows")
        return choice

    def choose_task(self) -> TaskChoice:
        """The task of the configuration, made again by its name."""
        host = self.config.host
        require_named_task(self.config, "give it with load(..., env=...)")
        return choose_task(
            self.config.task,
            backend="jax" if host is None else "gymnasium",
            options=self.config.task_options,
            horizon=None if host is None else host["horizon"],
            env_module=None if host is None else host["module"],
            success=None if host is None else host["success"],
        )

    def restore(self, loop: Loop) -> None:
        check_precision(self.config)
        folder = RunFolder(self.folder)
        loaded = read_newest(folder.checkpoints, loop.template, folder.curve, lambda line: None)
        if loaded is None:
            raise UserError(f"{self.folder}: holds no checkpoint")
        tree, extra, position = loaded
        loop.restore(Stored(tree, extra), position.step)


def write_saved(
    path: Path, config: Config, clock: Clock, curve: Rows, policy: Any, loop: Loop | None, *, overwrite: bool
) -> None:
    """Under a temporary name first: a folder with the final name is complete."""
    if path.exists() and not overwrite:
        raise UserError(f"path: {path} exists already; choose another, or give overwrite=True")
    temporary = path.with_name(f".{path.name}.writing-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"path: {path} cannot be created ({error.strerror})") from None
    write_agent(temporary, config, 0, clock.step, policy)
    if loop is not None:
        folder = RunFolder(temporary)
        folder.config.write_text(config.to_json())
        folder.start_curve()
        folder.append_curve(curve)
        size = folder.curve.stat().st_size
        position = Position(clock.step, clock.evaluations, size, head_sha256(folder.curve, size))
        stored = loop.store(clock.step)
        write_checkpoint(folder.checkpoints, stored.tree, position, 1, stored.extra)
    if path.exists():
        old = path.with_name(f".{path.name}.replaced-{os.getpid()}")
        path.rename(old)
        temporary.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    else:
        temporary.rename(path)


def read_saved(path: Path) -> SavedAgent:
    agent = read_agent(path)
    folder = RunFolder(path)
    meta = agent.meta
    if not folder.config.is_file():
        config = _config_of_policy(meta)
        return SavedAgent(path, agent, config, False, meta["step"], 0, [])
    config = Config.from_json(folder.config.read_text(), str(folder.config))
    columns = folder.read_curve()
    rows = [dict(zip(columns, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True)]
    return SavedAgent(path, agent, config, True, meta["step"], len(rows), rows)


def _config_of_policy(meta: dict[str, Any]) -> Config:
    """Enough of a configuration to know the task: a policy alone does not go on learning."""
    return Config(
        task=meta["task"],
        method=meta["method"],
        learner=meta["learner"],
        bonus="none",
        preset=meta["preset"],
        betas=(meta["beta"],),
        seeds=(meta["seed"],),
        steps=max(meta["step"], 1),
        schedule_steps=max(meta["step"], 1),
        warmup=0,
        eval_every=1,
        eval_episodes=1,
        p_start=1.0,
        p_end=1.0,
        lengths="bounded",
        bonus_scale="none",
        reward_scale="none",
        capacity=1,
        task_options=meta["task_options"],
        learner_options=meta["learner_options"],
        host=meta["host"],
        normalise_observations=meta["normalise_observations"],
        precision=meta["precision"],
    )

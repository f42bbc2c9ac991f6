"""The judged policy of one run, alone: two files that `evaluate` and `predict` can work from.

agent.json           task, spaces, learner and its options
policy.safetensors   the arrays of the policy
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hyper_rl.config import Config, make_learner, make_task
from hyper_rl.envs.base import Task
from hyper_rl.errors import UserError
from hyper_rl.learners.base import Learner
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.methods.policies import Role
from hyper_rl.plain_values import plain
from hyper_rl.training.checkpoint import DamagedCheckpoint, flatten, unflatten
from hyper_rl.training.evaluation import judged_policies
from hyper_rl.training.loop import Loop
from hyper_rl.training.run_folder import RunFolder, naming
from hyper_rl.types import take_run

FORMAT_VERSION = 2
META_FILE, POLICY_FILE = "agent.json", "policy.safetensors"


@dataclass(frozen=True)
class Agent:
    """A learner and the policy it has learned, ready to act."""

    learner: Learner
    policy: Any
    task: Task
    meta: dict[str, Any]


def write_agent(folder: Path, config: Config, run: int, step: int, policy: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    beta, seed = config.runs[run]
    meta = {
        "format_version": FORMAT_VERSION,
        "task": config.task,
        "task_options": dict(config.task_options),
        "host": None if config.host is None else dict(config.host),
        "method": config.method,
        "learner": config.learner,
        "learner_options": dict(config.learner_options),
        "normalise_observations": config.normalise_observations,
        "preset": config.preset,
        "precision": config.precision,
        "beta": beta,
        "seed": seed,
        "step": step,
    }
    save_file(flatten(policy), folder / POLICY_FILE)
    (folder / META_FILE).write_text(json.dumps(meta, indent=2, sort_keys=True, default=plain) + "\n")


def write_agents(folder: RunFolder, config: Config, loop: Loop, step: int, role: Role | None = None) -> None:
    """Those of all runs, as they stand at `step`: the judged policies, or those of `role`."""
    policies = judged_policies(loop.program, loop.state, role)
    for run in range(len(config.runs)):
        with naming(folder.agent(run), "written"):
            write_agent(folder.agent(run), config, run, step, take_run(policies, run))


def read_agent(folder: Path) -> Agent:
    """An agent from its two files; the environment it was trained on need not be installed."""
    policy_path = folder / POLICY_FILE
    _refuse_run_folder(folder)
    meta = read_meta(folder)
    try:
        arrays = load_file(policy_path)
        task, learner = _parts(meta)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(f"{folder}: not an agent folder ({error})") from None

    def template() -> Any:
        start = learner.init(jax.random.key(0), task.spec, jnp.zeros((), float))
        return learner.policy(start)

    try:
        policy = unflatten(jax.eval_shape(template), arrays, str(policy_path))
    except DamagedCheckpoint as problem:
        raise UserError(str(problem)) from None
    return Agent(learner, jax.tree.map(jnp.asarray, policy), task, meta)


def read_meta(folder: Path) -> dict[str, Any]:
    """`agent.json` alone: nothing that it names need be known."""
    path = folder / META_FILE
    try:
        meta: dict[str, Any] = json.loads(path.read_text())
        if meta["format_version"] != FORMAT_VERSION:
            raise UserError(f"{path}: format version {meta['format_version']}, this program reads {FORMAT_VERSION}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not an agent folder ({error})") from None
    return meta


def _refuse_run_folder(path: Path) -> None:
    """The folder above is what people know; the agents lie inside it."""
    folder = RunFolder(path)
    if (path / META_FILE).is_file() or not folder.config.is_file():
        return
    if not folder.agent(0).is_dir():
        raise UserError(f"{path}: a run folder without an agent yet; finish it with: hyper-rl train --resume {path}")
    raise UserError(f"{path}: a run folder, not an agent; its agents lie inside, that of run 0 in {folder.agent(0)}")


def _parts(meta: Mapping[str, Any]) -> tuple[Task, Learner]:
    if meta["learner"] not in LEARNERS:
        raise UserError(
            f"learner: the agent was made with {meta['learner']!r}, which is not known here; import the module that "
            "adds it to hyper_rl.learners.registry.LEARNERS first (a command: --env-module)"
        )
    task = make_task(meta["task"], meta["task_options"], meta["host"])
    return task, make_learner(meta["learner"], meta["learner_options"], meta["normalise_observations"])

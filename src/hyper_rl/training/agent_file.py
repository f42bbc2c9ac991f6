"""The judged policy of one run, alone: two files that `evaluate` and `predict` can work from.

agent.json           task, spaces, learner and its options
policy.safetensors   the arrays of the policy
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hyper_rl.config import Config, build_parts
from hyper_rl.errors import UserError
from hyper_rl.training.checkpoint import DamagedCheckpoint, flatten, unflatten

FORMAT_VERSION = 1
META_FILE, POLICY_FILE = "agent.json", "policy.safetensors"


@dataclass(frozen=True)
class Agent:
    """A learner and the policy it has learned, ready to act."""

    learner: Any
    policy: Any
    task: Any
    meta: dict[str, Any]


def write_agent(folder: Path, config: Config, run: int, step: int, policy: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    beta, seed = config.runs[run]
    meta = {
        "format_version": FORMAT_VERSION,
        "task": config.task,
        "task_options": dict(config.task_options),
        "method": config.method,
        "learner": config.learner,
        "learner_options": dict(config.learner_options),
        "preset": config.preset,
        "beta": beta,
        "seed": seed,
        "step": step,
    }
    save_file(flatten(policy), folder / POLICY_FILE)
    (folder / META_FILE).write_text(json.dumps(meta, indent=2, sort_keys=True) + "\n")


def read_agent(folder: Path, config: Config) -> Agent:
    """An agent of a run folder with this configuration."""
    meta_path, policy_path = folder / META_FILE, folder / POLICY_FILE
    try:
        meta = json.loads(meta_path.read_text())
        if meta["format_version"] != FORMAT_VERSION:
            raise UserError(
                f"{meta_path}: format version {meta['format_version']}, this program reads {FORMAT_VERSION}"
            )
        arrays = load_file(policy_path)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise UserError(f"{folder}: not an agent folder ({error})") from None
    parts = build_parts(config)

    def template() -> Any:
        start = parts.learner.init(jax.random.key(0), parts.task.spec, jnp.zeros((), float))
        return parts.learner.policy(start)

    try:
        policy = unflatten(jax.eval_shape(template), arrays, str(policy_path))
    except DamagedCheckpoint as problem:
        raise UserError(str(problem)) from None
    return Agent(parts.learner, jax.tree.map(jnp.asarray, policy), parts.task, meta)

"""All learners of a run, out of a checkpoint: the agent file holds the judged policy alone.

Only the arrays of these learners are read into memory; the replay, which is most of the file, stays on the disk.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open

from hyper_rl.config import Config, build_parts
from hyper_rl.errors import UserError
from hyper_rl.learners.base import LearnerState
from hyper_rl.methods.policies import ROLES
from hyper_rl.training.checkpoint import (
    META_FILE,
    STATE_FILE,
    DamagedCheckpoint,
    file_sha256,
    list_checkpoints,
    unflatten,
)
from hyper_rl.training.run_folder import RunFolder

PREFIXES = (".learners", ".runs.learners")
"""Of the learners' arrays among all that a checkpoint of the device loop and of the host loop holds."""


def read_learners(folder: RunFolder, config: Config, run: int) -> tuple[LearnerState, int]:
    """(states stacked over the roles of the method, step) from the newest checkpoint that is whole."""
    (learners,), step = read_learners_of(folder, config, [run])
    return learners, step


def read_learners_of(folder: RunFolder, config: Config, runs: Sequence[int]) -> tuple[list[LearnerState], int]:
    """The same for several runs, whose checkpoint is checked once."""
    problems = []
    for checkpoint in list_checkpoints(folder.checkpoints):
        try:
            return _read(checkpoint, config, runs)
        except (DamagedCheckpoint, OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
            problems.append(f"{checkpoint.name}: {problem}")
    if problems:
        raise UserError(f"{folder.checkpoints}: no checkpoint can be used: {'; '.join(problems)}")
    raise UserError(
        f"training: {folder.path} has no checkpoint (any more), and the explorer is stored only there; "
        "render judged episodes (without --training), or train the run again"
    )


def _read(checkpoint: Path, config: Config, runs: Sequence[int]) -> tuple[list[LearnerState], int]:
    body = json.loads((checkpoint / META_FILE).read_text())["body"]
    path = checkpoint / STATE_FILE
    if file_sha256(path) != body["state_sha256"]:
        raise DamagedCheckpoint(f"{STATE_FILE} truncated or altered (check sum differs)")
    arrays: list[dict[str, np.ndarray]] = [{} for _ in runs]
    with safe_open(path, framework="numpy") as file:
        for name in file.keys():  # noqa: SIM118 - not a dictionary
            for prefix in PREFIXES:
                if name.startswith(prefix):
                    for mine, run in zip(arrays, runs, strict=True):
                        mine[name.removeprefix(prefix)] = file.get_slice(name)[run]
    template = jax.eval_shape(lambda: _template(config))
    loaded = [jax.tree.map(jnp.asarray, unflatten(template, mine, STATE_FILE)) for mine in arrays]
    return loaded, int(body["step"])


def _template(config: Config) -> Any:
    parts = build_parts(config)
    roles = ROLES[config.method]  # type: ignore[index]
    per_role = jnp.zeros((len(roles),), float)
    return jax.vmap(lambda value: parts.learner.init(jax.random.key(0), parts.task.spec, value))(per_role)

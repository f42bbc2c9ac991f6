"""How much memory the runs will take, before any of it is taken."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp

from hyper_rl.envs.base import Box
from hyper_rl.envs.host_task import HostTask
from hyper_rl.errors import UserError
from hyper_rl.training.program import Program, RunState, init_run, init_run_from
from hyper_rl.training.replay import human_bytes
from hyper_rl.types import tree_bytes

HEADROOM = 0.9
"""Share of the free memory that may be asked for: the rest is for compiling, evaluating and writing checkpoints."""


def estimate(program: Program) -> tuple[int, int]:
    """(bytes of everything, bytes of the replay) of all runs, from shapes alone."""
    shapes = jax.eval_shape(jax.vmap(_init_anywhere), program)
    return tree_bytes(shapes), tree_bytes(shapes.replay)


def _init_anywhere(program: Program) -> RunState:
    """`init_run`, also for environments that live on the host, whose state is their observation."""
    if not isinstance(program.task, HostTask):
        return init_run(program)
    space = program.spec.observation
    observation = jnp.zeros((space.size,), float) if isinstance(space, Box) else jnp.zeros((), jnp.int32)
    return init_run_from(program, observation, jnp.zeros((), jnp.int32))


def available() -> int | None:
    """Free bytes on the device that computes; None where nobody can say."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else int(limit) - int(stats.get("bytes_in_use", 0))
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def check_fits(program: Program, runs: int) -> str:
    """One line that says what will be taken; raises when it cannot be had."""
    total, replay = estimate(program)
    free = available()
    line = f"memory: {human_bytes(total)} for {runs} run{'s' if runs != 1 else ''} (replay {human_bytes(replay)})"
    if free is not None and total > HEADROOM * free:
        raise UserError(
            f"capacity: {runs} run(s) need {human_bytes(total)} (replay {human_bytes(replay)}) and {human_bytes(free)} "
            "is free; lower --capacity, --seeds or the number of betas"
        )
    return line if free is None else f"{line}, {human_bytes(free)} free"

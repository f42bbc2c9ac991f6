"""How much memory the runs will take, before any of it is taken."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp

from hyper_rl.backend import usable_devices
from hyper_rl.envs.base import Box
from hyper_rl.envs.host_task import HostTask
from hyper_rl.errors import UserError
from hyper_rl.observations import observation_dtype
from hyper_rl.training.program import Program, RunState, init_run, init_run_from
from hyper_rl.training.replay import human_bytes
from hyper_rl.training.sharding import describe, share_evenly
from hyper_rl.types import take_run, tree_bytes

HEADROOM = 0.9
"""Share of the free memory that may be asked for: the rest is for compiling, evaluating and writing checkpoints."""


def estimate(program: Program) -> tuple[int, int]:
    """(bytes of everything, bytes of the replay) of one of the runs, from shapes alone; all take the same."""
    shapes = jax.eval_shape(lambda runs: _init_anywhere(take_run(runs, 0)), program)
    return tree_bytes(shapes), tree_bytes(shapes.replay)


def _init_anywhere(program: Program) -> RunState:
    """`init_run`, also for environments that live on the host, whose state is their observation."""
    if not isinstance(program.task, HostTask):
        return init_run(program)
    space = program.spec.observation
    observation = jnp.zeros((space.size,) if isinstance(space, Box) else (), observation_dtype(space))
    return init_run_from(program, observation, jnp.zeros((), jnp.int32))


def available(devices: int = 1) -> int | None:
    """Free bytes where `devices` devices compute equal shares; None where nobody can say.

    CPU devices share the memory of the machine. Others have their own, and the fullest of them sets the limit.
    """
    first = usable_devices()[:devices]
    if first[0].platform != "cpu":
        free = [_free_on(device) for device in first]
        known = [count for count in free if count is not None]
        return devices * min(known) if len(known) == len(first) else None
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _free_on(device: jax.Device) -> int | None:
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    return None if limit is None else int(limit) - int(stats.get("bytes_in_use", 0))


def at_most(total: int, replay: int) -> int:
    """Bytes at the worst moment: while a checkpoint is written or read, the replay is there twice."""
    return total + replay


def check_fits(program: Program, runs: int, *, remedy: str = "lower --capacity, --seeds or the number of betas") -> str:
    """One line that says what `runs` runs will take; raises, with the `remedy`, when it cannot be had.

    `program` holds them, or as few of them as the first.
    """
    total, replay = (runs * each for each in estimate(program))
    several = not isinstance(program.task, HostTask)
    free = available(share_evenly(runs, len(usable_devices())) if several else 1)
    line = f"memory: {human_bytes(total)} for {runs} run{'s' if runs != 1 else ''} (replay {human_bytes(replay)})"
    if free is not None and at_most(total, replay) > HEADROOM * free:
        raise UserError(
            f"capacity: {runs} run(s) need {human_bytes(total)} (replay {human_bytes(replay)}), the replay twice "
            f"while a checkpoint is written, and {human_bytes(free)} is free; {remedy}"
        )
    parts = (line, f"{human_bytes(free)} free" if free is not None else "", describe(runs) if several else "")
    return ", ".join(part for part in parts if part)

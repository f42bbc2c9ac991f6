"""States that a test has made by hand, or by a command's words and cuts."""

from __future__ import annotations

from typing import Any

import jax

from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import build_program
from hyper_rl.training.device_loop import DeviceLoop, advance_to, init_runs
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.snapshot import measure


def measure_state(program: Program, state: RunState, step: int, index: int, episodes: int) -> dict[str, Any]:
    return measure(DeviceLoop(program, 0, state), step, index, episodes)


def state_after(words: str, cuts: tuple[int, ...] = (), *, x64: bool = False) -> Any:
    """The state of all runs of `hyper-rl train WORDS` after its steps, computed in chunks that end at `cuts`."""
    with jax.enable_x64(x64):
        config = resolve(parse(words.split()))
        program = build_program(config)
        state = init_runs(program)
        for first, last in zip((0, *cuts), (*cuts, config.steps), strict=True):
            state = advance_to(program, state, first, last, config.warmup)
        return jax.device_get(state)

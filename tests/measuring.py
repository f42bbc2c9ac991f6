"""Measuring a state that a test has made by hand."""

from __future__ import annotations

from typing import Any

from hyper_rl.training.device_loop import DeviceLoop
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.snapshot import measure


def measure_state(program: Program, state: RunState, step: int, index: int, episodes: int) -> dict[str, Any]:
    return measure(DeviceLoop(program, 0, state), step, index, episodes)

"""From a configuration to a finished run folder: chunks of steps, evaluations, checkpoints, Ctrl-C.

The device computes in chunks of about a second; between them the host shows progress, evaluates, saves and looks
whether it was asked to stop. None of that has any influence on what is computed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.config import Config, build_program, check_precision
from hyper_rl.errors import UserError
from hyper_rl.training.agent_file import write_agent
from hyper_rl.training.checkpoint import Position, head_sha256, read_newest, write_checkpoint
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.evaluation import judged_policies
from hyper_rl.training.memory import check_fits
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.progress import Progress, Silent
from hyper_rl.training.run_folder import RunFolder, summarise_runs, versions, write_atomically
from hyper_rl.training.snapshot import clear_window, measure, rows
from hyper_rl.types import take_run

CHUNK_SECONDS = 1.0


class Interrupted(Exception):
    """Training was asked to stop and has saved what it had."""

    def __init__(self, folder: Path, step: int) -> None:
        super().__init__(f"stopped at step {step}; continue with: hyper-rl train --resume {folder}")
        self.step = step


@dataclass(frozen=True)
class Saving:
    """How often to save and how many checkpoints to keep."""

    every_seconds: float = 60.0
    keep: int = 2


@dataclass
class _Clock:
    """Where training stands, and what it has cost."""

    step: int
    evaluations: int
    seconds: float = 0.0
    steps_timed: int = 0


def train(
    config: Config, out: Path, *, saving: Saving = Saving(), open_progress: Callable[[int], Any] | None = None
) -> dict[str, Any]:
    """Train all runs of `config` into the new folder `out` and return its result."""
    config.check()
    program = build_program(config)
    memory = check_fits(program, len(config.runs))
    folder = RunFolder.create(out, config)
    return _run(config, program, folder, saving, open_progress, memory)


def resume(
    path: Path,
    *,
    extend_steps: int | None = None,
    saving: Saving = Saving(),
    open_progress: Callable[[int], Any] | None = None,
) -> dict[str, Any]:
    """Continue a stopped run folder as if it had never stopped; a finished one just returns its result."""
    folder, config = RunFolder.open(path)
    check_precision(config)
    if extend_steps is not None:
        if extend_steps <= config.steps:
            raise UserError(f"extend_steps: got {extend_steps}, must be more than the {config.steps} steps of {path}")
        config = replace(config, steps=extend_steps)
    elif folder.result.is_file():
        return folder.read_result()
    config.check()
    program = build_program(config)
    memory = check_fits(program, len(config.runs))
    if extend_steps is not None:
        # From here on the folder is that of the longer run; p stays where its schedule ended.
        # The old result goes first: killed in between, the folder is an unfinished run, never a finished short one.
        folder.result.unlink(missing_ok=True)
        write_atomically(folder.config, config.to_json())
    return _run(config, program, folder, saving, open_progress, memory)


def _run(
    config: Config,
    program: Program,
    folder: RunFolder,
    saving: Saving,
    open_progress: Callable[[int], Any] | None,
    memory: str,
) -> dict[str, Any]:
    warnings: list[str] = []
    loaded = read_newest(folder.checkpoints, partial(_template, program), folder.curve, warnings.append)
    if loaded is None:
        state, clock = init_runs(program), _Clock(0, 0)
        folder.start_curve()
    else:
        stored, position = loaded
        state, clock = _unpack(program, stored), _Clock(position.step, position.evaluations)
        folder.cut_curve(position.curve_bytes)
    with (open_progress or _silent)(clock.step) as progress, _watch_for_stop() as asked_to_stop:
        progress.say(memory)
        for line in warnings:
            progress.say(f"warning: {line}")
        if loaded is not None:
            progress.say(f"resuming {folder.path} at step {clock.step}")
        state = _train_to_end(config, program, state, clock, folder, saving, progress, asked_to_stop)
    return _finish(config, program, state, clock, folder)


def _train_to_end(
    config: Config,
    program: Program,
    state: RunState,
    clock: _Clock,
    folder: RunFolder,
    saving: Saving,
    progress: Progress,
    asked_to_stop: Callable[[], bool],
) -> RunState:
    betas, seeds = [beta for beta, _ in config.runs], [seed for _, seed in config.runs]
    as_int = partial(jnp.asarray, dtype=jnp.int32)
    saved_at, note, chunk = time.monotonic(), "", 16
    while clock.step < config.steps:
        next_evaluation = min((clock.step // config.eval_every + 1) * config.eval_every, config.steps)
        end = min(clock.step + chunk, next_evaluation)
        begun = time.monotonic()
        state = jax.block_until_ready(advance_to(program, state, clock.step, end, config.warmup))
        took, done = time.monotonic() - begun, end - clock.step
        if done == chunk:
            # Grow towards chunks of a second; the first ones also paid for compiling.
            chunk = max(1, min(chunk * 4, int(done / max(took, 1e-6) * CHUNK_SECONDS)))
        clock.step, clock.seconds, clock.steps_timed = end, clock.seconds + took, clock.steps_timed + done
        if clock.step == next_evaluation:
            measured = measure(
                program, state, as_int(clock.step), as_int(clock.evaluations), episodes=config.eval_episodes
            )
            table = rows(measured, clock.step, betas, seeds)
            folder.append_curve(table)
            state = clear_window(program, state)
            clock.evaluations += 1
            note = f", success {np.mean([row['success'] for row in table]):.2f}"
        progress.update(clock.step, note)
        if asked_to_stop():
            _save(folder, program, state, clock, saving)
            raise Interrupted(folder.path, clock.step)
        if clock.step < config.steps and time.monotonic() - saved_at > saving.every_seconds:
            _save(folder, program, state, clock, saving)
            saved_at = time.monotonic()
    return state


def _finish(config: Config, program: Program, state: RunState, clock: _Clock, folder: RunFolder) -> dict[str, Any]:
    policies = judged_policies(program, state)
    for run in range(len(config.runs)):
        write_agent(folder.agent(run), config, run, clock.step, take_run(policies, run))
    folder.write_visits(np.asarray(state.totals.visits))
    _save(folder, program, state, clock, Saving(keep=1))
    if clock.steps_timed:
        per_second = clock.steps_timed / max(clock.seconds, 1e-9)
        timing = {
            "steps_timed": clock.steps_timed,
            "seconds": clock.seconds,
            "steps_per_second": per_second,
            "run_steps_per_second": per_second * len(config.runs),
            "versions": versions(),
        }
        folder.write_timing(timing)
    result = summarise_runs(config, folder.read_curve())
    folder.write_result(result)
    return result


def _save(folder: RunFolder, program: Program, state: RunState, clock: _Clock, saving: Saving) -> None:
    size = folder.curve.stat().st_size
    position = Position(clock.step, clock.evaluations, size, head_sha256(folder.curve, size))
    write_checkpoint(folder.checkpoints, _pack(program, state, clock.step), position, saving.keep)


def _pack(program: Program, state: RunState, step: int) -> RunState:
    """The state as it is stored: the replay without its unused end."""
    if state.replay is None:
        return state
    return state._replace(replay=state.replay[:, : min(step, program.capacity)])


def _unpack(program: Program, stored: RunState) -> RunState:
    state = jax.tree.map(jnp.asarray, stored)
    if state.replay is None:
        return state
    missing = program.capacity - state.replay.shape[1]
    return state._replace(replay=jnp.pad(state.replay, ((0, 0), (0, missing), (0, 0))))


def _template(program: Program, step: int) -> RunState:
    shapes = jax.eval_shape(init_runs, program)
    return jax.eval_shape(lambda s: _pack(program, s, step), shapes)


@contextmanager
def _silent(first: int) -> Iterator[Progress]:
    yield Silent()


@contextmanager
def _watch_for_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C (or a polite kill) asks to stop after the current chunk; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: nobody can interrupt it from the keyboard
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

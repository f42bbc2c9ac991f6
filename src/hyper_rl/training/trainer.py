"""From a configuration to a finished run folder: training, evaluations, checkpoints, Ctrl-C.

Between chunks of about a second the host shows progress, saves and looks whether it was asked to stop. None of that
has any influence on what is computed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.backend import usable_devices
from hyper_rl.config import Config, build_program, check_precision
from hyper_rl.errors import UserError, require
from hyper_rl.report.writers import check_writers, open_writers
from hyper_rl.training.agent_file import write_agent
from hyper_rl.training.checkpoint import Position, head_sha256, read_newest, write_checkpoint
from hyper_rl.training.evaluation import judged_policies
from hyper_rl.training.loop import Loop, Stored
from hyper_rl.training.loops import open_loop
from hyper_rl.training.memory import check_fits
from hyper_rl.training.progress import Progress, Silent
from hyper_rl.training.run_folder import RunFolder, summarise_runs, versions, write_atomically
from hyper_rl.training.session import Clock, Rows, train_steps
from hyper_rl.training.sharding import devices_for
from hyper_rl.training.stopping import watch_for_stop
from hyper_rl.types import take_run


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
    writers: Sequence[str] = ()
    """Where else the curve goes: tensorboard, wandb."""


def train(
    config: Config,
    out: Path,
    *,
    saving: Saving = Saving(),
    open_progress: Callable[[int], Any] | None = None,
    env_workers: int = 0,
) -> dict[str, Any]:
    """Train all runs of `config` into the new folder `out` and return its result."""
    config.check()
    _check_helpers(config, saving, env_workers)
    program = build_program(config)
    memory = check_fits(program, len(config.runs))
    folder = RunFolder.create(out, config)
    return _run(config, open_loop(config, program, workers=env_workers), folder, saving, open_progress, memory)


def resume(
    path: Path,
    *,
    extend_steps: int | None = None,
    saving: Saving = Saving(),
    open_progress: Callable[[int], Any] | None = None,
    env_workers: int = 0,
    env_module: str | None = None,
) -> dict[str, Any]:
    """Continue a stopped run folder as if it had never stopped; a finished one just returns its result.

    `env_module` registers the environment, where the folder does not say which module does.
    """
    folder, config = RunFolder.open(path)
    check_precision(config)
    if extend_steps is not None:
        if extend_steps <= config.steps:
            raise UserError(f"extend_steps: got {extend_steps}, must be more than the {config.steps} steps of {path}")
        config = replace(config, steps=extend_steps)
    elif folder.result.is_file():
        return folder.read_result()
    config.check()
    _check_helpers(config, saving, env_workers)
    program = build_program(config)
    memory = check_fits(program, len(config.runs))
    if extend_steps is not None:
        # From here on the folder is that of the longer run; p stays where its schedule ended.
        # The old result goes first: killed in between, the folder is an unfinished run, never a finished short one.
        folder.result.unlink(missing_ok=True)
        write_atomically(folder.config, config.to_json())
    return _run(
        config,
        open_loop(config, program, workers=env_workers, module=env_module),
        folder,
        saving,
        open_progress,
        memory,
    )


def _check_helpers(config: Config, saving: Saving, env_workers: int) -> None:
    """What would only fail once the folder is there."""
    check_writers(saving.writers)
    most = 0 if config.host is None else len(config.runs)
    why = "0: a JAX task needs none" if config.host is None else f"between 0 and {most}, one for each run at most"
    require(0 <= env_workers <= most, "env_workers", env_workers, why)


def _run(
    config: Config,
    loop: Loop,
    folder: RunFolder,
    saving: Saving,
    open_progress: Callable[[int], Any] | None,
    memory: str,
) -> dict[str, Any]:
    with ExitStack() as stack:
        stack.callback(loop.close)
        warnings: list[str] = []
        loaded = read_newest(folder.checkpoints, loop.template, folder.curve, warnings.append)
        progress: Progress = stack.enter_context((open_progress or _silent)(loaded[2].step if loaded else 0))
        asked_to_stop = stack.enter_context(watch_for_stop())
        progress.say(memory)
        for line in warnings:
            progress.say(f"warning: {line}")
        if loaded is None:
            clock = Clock(0, 0)
            folder.start_curve()
        else:
            tree, extra, position = loaded
            loop.restore(Stored(tree, extra), position.step)
            clock = Clock(position.step, position.evaluations)
            folder.cut_curve(position.curve_bytes)
            progress.say(f"resuming {folder.path} at step {clock.step}")
        write_rows = stack.enter_context(_open_writers(saving.writers, folder, config, new=loaded is None))
        _train_to_end(config, loop, clock, folder, saving, progress, write_rows, asked_to_stop)
        return _finish(config, loop, clock, folder)


def _train_to_end(
    config: Config,
    loop: Loop,
    clock: Clock,
    folder: RunFolder,
    saving: Saving,
    progress: Progress,
    write_rows: Callable[[Rows], None],
    asked_to_stop: Callable[[], bool],
) -> None:
    saved_at = time.monotonic()

    def on_evaluation(table: Rows) -> bool:
        folder.append_curve(table)
        write_rows(table)
        return True

    def after_chunk(note: str) -> bool:
        nonlocal saved_at
        progress.update(clock.step, note)
        if asked_to_stop():
            _save(folder, loop, clock, saving)
            _write_agents(config, loop, clock, folder)
            raise Interrupted(folder.path, clock.step)
        if clock.step < config.steps and time.monotonic() - saved_at > saving.every_seconds:
            _save(folder, loop, clock, saving)
            saved_at = time.monotonic()
        return True

    train_steps(config, loop, clock, on_evaluation=on_evaluation, after_chunk=after_chunk)


def _finish(config: Config, loop: Loop, clock: Clock, folder: RunFolder) -> dict[str, Any]:
    _write_agents(config, loop, clock, folder)
    folder.write_visits(np.asarray(loop.state.totals.visits))
    _save(folder, loop, clock, Saving(keep=1))
    if clock.steps_timed:
        per_second = clock.steps_timed / max(clock.seconds, 1e-9)
        timing = {
            "steps_timed": clock.steps_timed,
            "seconds": clock.seconds,
            "steps_per_second": per_second,
            "run_steps_per_second": per_second * len(config.runs),
            "versions": versions(),
            "devices": _devices(config),
        }
        folder.write_timing(timing)
    result = summarise_runs(config, folder.read_curve())
    folder.write_result(result)
    return result


def _devices(config: Config) -> dict[str, Any]:
    devices = devices_for(len(config.runs)) if config.host is None else usable_devices()[:1]
    return {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)}


def _write_agents(config: Config, loop: Loop, clock: Clock, folder: RunFolder) -> None:
    policies = judged_policies(loop.program, loop.state)
    for run in range(len(config.runs)):
        write_agent(folder.agent(run), config, run, clock.step, take_run(policies, run))


def _save(folder: RunFolder, loop: Loop, clock: Clock, saving: Saving) -> None:
    size = folder.curve.stat().st_size
    position = Position(clock.step, clock.evaluations, size, head_sha256(folder.curve, size))
    stored = loop.store(clock.step)
    write_checkpoint(folder.checkpoints, stored.tree, position, saving.keep, stored.extra)


@contextmanager
def _open_writers(
    names: Sequence[str], folder: RunFolder, config: Config, *, new: bool
) -> Iterator[Callable[[Rows], None]]:
    try:
        writers = open_writers(names, folder.path, config)
    except Exception:
        if new:  # nothing has been trained: the corrected command should not find the name taken
            shutil.rmtree(folder.path, ignore_errors=True)
        raise

    def write(table: Rows) -> None:
        for writer in writers:
            writer.write(table)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


@contextmanager
def _silent(first: int) -> Iterator[Progress]:
    yield Silent()

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.backend import usable_devices
from hyper_rl.config import Config, build_program, check_precision, first_run
from hyper_rl.envs.host_env import TaskFailure
from hyper_rl.errors import UserError, require
from hyper_rl.own_parts import import_stored
from hyper_rl.report.writers import Writer, check_writers, open_writers
from hyper_rl.training.agent_file import write_agents
from hyper_rl.training.checkpoint import Position, read_newest, write_checkpoint
from hyper_rl.training.contained import Contained, refuse_contained
from hyper_rl.training.loop import Loop, Stored
from hyper_rl.training.loops import open_loop
from hyper_rl.training.memory import check_fits
from hyper_rl.training.progress import Progress, Silent
from hyper_rl.training.run_folder import RunFolder, naming, summarise_runs, versions, write_atomically
from hyper_rl.training.session import Clock, Rows, owes_evaluation, train_steps
from hyper_rl.training.sharding import devices_for
from hyper_rl.training.stopping import watch_for_stop


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
    contained: Config | None = None,
) -> dict[str, Any]:
    """Train all runs of `config` into the new folder `out` and return its result.

    `contained`: runs of Curiosity that these runs of Decouple contain, to be judged with them (`contained`).
    """
    import_stored(config)
    config.check()
    _check_helpers(config, saving, env_workers)
    memory = _check_memory(config)
    program = build_program(config)
    with RunFolder.begin(out) as (folder, notes):
        as_found = FolderAsFound(folder)
        folder.write_config(config)
        open_mine = partial(open_loop, config, program, workers=env_workers)
        return _run(config, open_mine, folder, as_found, saving, open_progress, memory, notes, contained)


def resume(
    path: Path,
    *,
    extend_steps: int | None = None,
    saving: Saving = Saving(),
    open_progress: Callable[[int], Any] | None = None,
    env_workers: int = 0,
    env_module: str | None = None,
    contained: Config | None = None,
) -> dict[str, Any]:
    """Continue a stopped run folder as if it had never stopped; a finished one just returns its result.

    `env_module` registers the environment, or a learner or bonus, where the folder does not say which module does.
    `contained`: as `train` was given it; heard only where nothing was trained yet, otherwise the folder knows.
    """
    folder, config = RunFolder.open(path)
    refuse_contained(folder)
    if extend_steps is None and folder.result.is_file():
        check_precision(config)
        folder.remove_left_lock()
        return folder.read_result()
    with folder.lock() as notes:
        _, config = RunFolder.open(path)  # once more: whoever trained here until just now may have changed it
        import_stored(config, env_module)
        check_precision(config)
        if extend_steps is not None:
            if extend_steps <= config.steps:
                raise UserError(
                    f"extend_steps: got {extend_steps}, must be more than the {config.steps} steps of {path}"
                )
            config = replace(config, steps=extend_steps)
        elif folder.result.is_file():
            return folder.read_result()
        config.check()
        _check_helpers(config, saving, env_workers)
        memory = _check_memory(config)
        program = build_program(config)
        open_mine = partial(open_loop, config, program, workers=env_workers, module=env_module)
        as_found = FolderAsFound(folder)
        extended = extend_steps is not None
        return _run(
            config, open_mine, folder, as_found, saving, open_progress, memory, notes, contained, extended=extended
        )


def _check_helpers(config: Config, saving: Saving, env_workers: int) -> None:
    """What would only fail once the folder is there."""
    check_writers(saving.writers)
    most = 0 if config.host is None else len(config.runs)
    why = "0: a JAX task needs none" if config.host is None else f"between 0 and {most}, one for each run at most"
    require(0 <= env_workers <= most, "env_workers", env_workers, why)


def _check_memory(config: Config) -> str:
    """From one run: to build all of them takes minutes where there are far too many."""
    return check_fits(build_program(first_run(config)), len(config.runs))


class FolderAsFound:
    """What a training is about to change in a run folder, to put it back should it fail before its first step."""

    def __init__(self, folder: RunFolder) -> None:
        self._files: dict[Path, bytes | None] = {}
        for path in (folder.config, folder.curve, folder.result):
            with naming(path, "read"):
                self._files[path] = path.read_bytes() if path.is_file() else None
        self._absent = [path for path in (*folder.copies, folder.contained) if not path.exists()]

    def put_back(self) -> None:
        for path, content in self._files.items():
            with naming(path, "put back to what it was"):
                if content is None:
                    path.unlink(missing_ok=True)
                elif not path.is_file() or path.read_bytes() != content:
                    write_atomically(path, content)
        for path in self._absent:
            shutil.rmtree(path, ignore_errors=True)


def _run(
    config: Config,
    open_mine: Callable[[], Loop],
    folder: RunFolder,
    as_found: FolderAsFound,
    saving: Saving,
    open_progress: Callable[[int], Any] | None,
    memory: str,
    notes: list[str],
    contained: Config | None,
    *,
    extended: bool = False,
) -> dict[str, Any]:
    """`notes`: what to warn of. `extended`: `config` asks for more steps than the folder's own does."""
    clock, begun_at = Clock(0, 0), 0
    try:
        with ExitStack() as stack:
            loop = open_mine()
            stack.callback(loop.close)
            with naming(folder.checkpoints, "read"):
                loaded = read_newest(folder.checkpoints, loop.template, folder.curve, notes.append)
            inside = Contained.go_on(folder, config, loaded[2] if loaded else None, notes.append)
            if loaded is None and folder.result.is_file():
                raise UserError(
                    f"run: {folder.path} is finished and has no checkpoint to go on from (none in "
                    f"{folder.checkpoints}); its result stays as it is, train the longer run into another folder"
                )
            progress: Progress = stack.enter_context((open_progress or _silent)(loaded[2].step if loaded else 0))
            asked_to_stop = stack.enter_context(watch_for_stop())
            for line in (memory, *(f"warning: {note}" for note in notes)):
                progress.say(line)
            if loaded is not None:
                tree, extra, position = loaded
                loop.restore(Stored(tree, extra), position.step)
                folder.check_curve(position.curve_bytes)
                begun_at = clock.step = position.step
                clock.evaluations = position.evaluations
                clock.owes_evaluation = owes_evaluation(config, folder, position)
            # Only now, when all that it needs was found whole, does the folder change.
            if extended:  # p stays where its schedule ended
                folder.write_config(config)
            if loaded is None:
                folder.start_curve()
                if contained is not None and not RunFolder(folder.contained).config.is_file():
                    inside = Contained.begin(folder, config, contained)
                if inside is not None:
                    inside.folder.start_curve()
            else:
                folder.cut_curve(position.curve_bytes)
                if inside is not None:
                    inside.folder.cut_curve(position.contained_bytes or 0)
                progress.say(f"resuming {folder.path} at step {clock.step}")
            write_rows = stack.enter_context(_open_writers(saving.writers, folder, config))
            try:
                _train_to_end(config, loop, clock, folder, inside, saving, progress, write_rows, asked_to_stop)
            except TaskFailure as failure:
                if clock.step <= begun_at:
                    raise
                raise _saved_after(failure, config, loop, clock, folder, inside, saving) from failure
            result = _finish(config, loop, clock, folder, inside)
        # Last of all, right before the lock goes: a kill in between leaves a lock in a folder that nobody opens again.
        folder.write_result(result)
        return result
    except BaseException:
        # With a result there is nothing to put back: the old one never went, or a run that had done all its steps
        # got its own.
        if clock.step <= begun_at and not folder.result.is_file():
            as_found.put_back()
        raise


def _train_to_end(
    config: Config,
    loop: Loop,
    clock: Clock,
    folder: RunFolder,
    inside: Contained | None,
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
            _save(folder, inside, loop, clock, saving)
            write_agents(folder, config, loop, clock.step)
            raise Interrupted(folder.path, clock.step)
        if clock.step < config.steps and time.monotonic() - saved_at > saving.every_seconds:
            _save(folder, inside, loop, clock, saving)
            saved_at = time.monotonic()
        return True

    note = None if inside is None else partial(inside.note, loop, clock)
    train_steps(config, loop, clock, on_evaluation=on_evaluation, after_chunk=after_chunk, beside=note)


def _saved_after(
    failure: TaskFailure,
    config: Config,
    loop: Loop,
    clock: Clock,
    folder: RunFolder,
    inside: Contained | None,
    saving: Saving,
) -> TaskFailure:
    """Save what there was before an environment failed; the failure, with where that is and how to go on."""
    try:
        _save(folder, inside, loop, clock, saving)
        write_agents(folder, config, loop, clock.step)
        what = (
            f"saved as of step {clock.step} of the run: judge it with: hyper-rl evaluate {folder.path}; "
            f"once the environment is mended go on with: hyper-rl train --resume {folder.path}"
        )
    except (UserError, OSError) as error:  # the failure that came first is the one to be told
        what = f"what was trained could not be saved ({error})"
    told = TaskFailure(failure.env_id, f"{failure.what}; {what}", failure.seed, failure.step, failure.index)
    for note in getattr(failure, "__notes__", ()):
        told.add_note(note)
    return told


def _finish(config: Config, loop: Loop, clock: Clock, folder: RunFolder, inside: Contained | None) -> dict[str, Any]:
    """All files but the result, which is returned."""
    write_agents(folder, config, loop, clock.step)
    folder.write_visits(np.asarray(loop.state.totals.visits))
    _save(folder, inside, loop, clock, Saving(keep=1))
    made_by = {"versions": versions(), "devices": _devices(config)}
    if clock.steps_timed:
        per_second = clock.steps_timed / max(clock.seconds, 1e-9)
        timing = {
            "steps_timed": clock.steps_timed,
            "seconds": clock.seconds,
            "steps_per_second": per_second,
            "run_steps_per_second": per_second * len(config.runs),
        }
        folder.write_timing(timing | made_by)
    if inside is not None:
        inside.finish(loop, clock, made_by)
    return summarise_runs(config, folder.read_curve())


def _devices(config: Config) -> dict[str, Any]:
    devices = devices_for(len(config.runs)) if config.host is None else usable_devices()[:1]
    return {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)}


def _save(folder: RunFolder, inside: Contained | None, loop: Loop, clock: Clock, saving: Saving) -> None:
    heads = (*folder.curve_head, *(inside.folder.curve_head if inside is not None else ()))
    position = Position(clock.step, clock.evaluations, *heads)
    stored = loop.store(clock.step)
    with naming(folder.checkpoints, "written"):
        write_checkpoint(folder.checkpoints, stored.tree, position, saving.keep, stored.extra)


@contextmanager
def _open_writers(names: Sequence[str], folder: RunFolder, config: Config) -> Iterator[Callable[[Rows], None]]:
    with ExitStack() as stack:
        writers: list[Writer] = []
        for name in dict.fromkeys(names):  # one by one, so that those before one that fails are closed
            for writer in open_writers([name], folder.path, config):
                stack.callback(writer.close)
                writers.append(writer)

        def write(table: Rows) -> None:
            for writer in writers:
                writer.write(table)

        yield write


@contextmanager
def _silent(first: int) -> Iterator[Progress]:
    yield Silent()

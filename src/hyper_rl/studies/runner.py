"""Runs the groups of a study one after another, each as an ordinary run folder.

Whatever stops it (Ctrl-C, a kill, a power cut), the same call goes on: finished groups are left alone, the one in
flight is resumed from its checkpoint, and the results are the same bytes as without a stop.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from hyper_rl.studies.plan import Group
from hyper_rl.studies.study_file import StudyFile
from hyper_rl.studies.study_folder import StudyFolder, check_group, open_study, write_results
from hyper_rl.training.progress import Progress, show_progress
from hyper_rl.training.trainer import Interrupted, Saving, resume, train


class StudyInterrupted(Exception):
    """The study was asked to stop and has saved what it had."""

    def __init__(self, study: str, scale: str, out: Path, done: int, total: int) -> None:
        again = shlex.join(["hyper-rl", "study", study, "--scale", scale, "--out", str(out)])
        super().__init__(f"stopped with {done} of {total} groups done; continue with: {again}")


@dataclass(frozen=True)
class Outcome:
    """What a call has done."""

    folder: StudyFolder
    groups: tuple[Group, ...]
    computed: tuple[str, ...]
    """Groups that were run or resumed now; the others were finished before."""


def run_study(
    study: StudyFile,
    scale: str,
    out: Path,
    *,
    saving: Saving = Saving(),
    env_workers: int = 0,
    stream: TextIO | None = None,
) -> Outcome:
    """Begin the study in `out`, or go on with it. `env_workers`: for groups on Gymnasium environments."""
    folder, groups, begun = open_study(study, scale, out)
    waiting = [group for group in groups if not _is_done(folder, group)]
    computed: list[str] = []
    with ExitStack() as stack:
        progress = _StudyProgress(study.name, groups, waiting, stack, stream or sys.stderr)
        if begun and waiting:
            progress.say(f"{out}: {len(groups) - len(waiting)} of {len(groups)} groups are done already")
        try:
            for group in waiting:
                run_group(folder, group, progress, saving=saving, env_workers=env_workers)
                progress.finish(group)
                computed.append(group.name)
        except (Interrupted, KeyboardInterrupt):
            source = study.name if study.builtin else study.source
            done = len(groups) - len(waiting) + len(computed)
            raise StudyInterrupted(source, scale, out, done, len(groups)) from None
    if computed or not folder.results.is_file():
        write_results(folder, groups)
    return Outcome(folder, groups, tuple(computed))


def run_group(
    folder: StudyFolder, group: Group, progress: _StudyProgress, *, saving: Saving = Saving(), env_workers: int = 0
) -> None:
    """Train the group, or resume it where it was begun."""
    run_folder = folder.group(group.name)
    workers = 0 if group.config.host is None else min(env_workers, len(group.config.runs))

    @contextmanager
    def open_progress(first: int) -> Iterator[Progress]:
        yield progress.begin(group, first)

    if check_group(run_folder, group):
        resume(run_folder.path, saving=saving, open_progress=open_progress, env_workers=workers)
    else:
        train(group.config, run_folder.path, saving=saving, open_progress=open_progress, env_workers=workers)


def _is_done(folder: StudyFolder, group: Group) -> bool:
    run_folder = folder.group(group.name)
    return check_group(run_folder, group) and run_folder.result.is_file()


@dataclass
class _StudyProgress:
    """One bar over all run-steps of the study."""

    name: str
    groups: Sequence[Group]
    waiting: Sequence[Group]
    stack: ExitStack
    stream: TextIO
    _shown: Progress | None = field(default=None, init=False)
    _done: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._done = sum(group.run_steps for group in self.groups) - sum(group.run_steps for group in self.waiting)

    def begin(self, group: Group, first: int) -> Progress:
        """`first`: the step the group goes on from, which the speed must not count."""
        if self._shown is None:
            total = sum(one.run_steps for one in self.groups)
            at = self._done + first * len(group.config.runs)
            self._shown = self.stack.enter_context(show_progress(f"study {self.name}", total, at, self.stream))
        return _GroupProgress(self._shown, group, self._done, f"{self.groups.index(group) + 1}/{len(self.groups)}")

    def finish(self, group: Group) -> None:
        self._done += group.run_steps

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)


@dataclass(frozen=True)
class _GroupProgress:
    """The part of the bar that one group moves."""

    shown: Progress
    group: Group
    before: int
    number: str

    def update(self, step: int, note: str) -> None:
        words = f", group {self.number} {self.group.name}{note}"
        self.shown.update(self.before + step * len(self.group.config.runs), words)

    def say(self, line: str) -> None:
        self.shown.say(f"group {self.number} {self.group.name}: {line}")

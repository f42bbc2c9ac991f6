"""One bar over all run-steps that a study has to compute, whoever computes them.

What this process computes it knows to the step. How far other processes are is read from the folder: the last
evaluation in a group's `curve.csv`. Groups that come with others are not in it: they would make the speed look twice
what the others have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TextIO

from hyper_rl.studies.plan import Group
from hyper_rl.studies.study_folder import StudyFolder
from hyper_rl.training.progress import Progress
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.snapshot import COLUMNS

LOOK_EVERY_SECONDS = 5.0
"""How often a process that is at work itself looks how far the others are."""
TAIL_BYTES = 4096
"""More than a row of `curve.csv` has."""

Show = Callable[[str, int, int, TextIO], AbstractContextManager[Progress]]


@dataclass
class StudyProgress:
    """`show` opens the bar (label, total, where it starts, stream), at the first news and until `stack` is closed."""

    name: str
    folder: StudyFolder
    groups: Sequence[Group]
    show: Show
    stack: ExitStack
    stream: TextIO
    _counted: list[Group] = field(default_factory=list, init=False)
    _steps: dict[str, int] = field(default_factory=dict, init=False)
    _shown: Progress | None = field(default=None, init=False)
    _looked: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._counted = [group for group in self.groups if not comes_with_another(self.folder, group)]
        self._look()

    def begin(self, group: Group, first: int) -> Progress:
        """`first`: the step the group goes on from, which the speed must not count."""
        self._steps[group.name] = first
        self._bar()
        return _GroupProgress(self, group, f"group {self._number(group)} {group.name}")

    def update(self, group: Group, step: int, note: str) -> None:
        if time.monotonic() - self._looked > LOOK_EVERY_SECONDS:
            self._look(but=group.name)
        self._steps[group.name] = step
        self._bar().update(self._run_steps(), note)

    def look(self, note: str) -> None:
        """For a process that only waits for others."""
        self._look()
        self._bar().update(self._run_steps(), note)

    def say(self, line: str, group: Group | None = None) -> None:
        words = line if group is None else f"group {self._number(group)} {group.name}: {line}"
        if self._shown is None:
            print(words, file=self.stream, flush=True)
        else:
            self._shown.say(words)

    def _number(self, group: Group) -> str:
        return f"{self.groups.index(group) + 1}/{len(self.groups)}"

    def _bar(self) -> Progress:
        if self._shown is None:
            total = sum(group.run_steps for group in self._counted)
            shown = self.show(f"study {self.name}", total, self._run_steps(), self.stream)
            self._shown = self.stack.enter_context(shown)
        return self._shown

    def _run_steps(self) -> int:
        return sum(self._steps[group.name] * len(group.config.runs) for group in self._counted)

    def _look(self, but: str = "") -> None:
        self._looked = time.monotonic()
        for group in self._counted:
            if group.name != but and self._steps.get(group.name) != group.config.steps:
                self._steps[group.name] = last_step(self.folder.group(group.name), group.config.steps)


@dataclass(frozen=True)
class _GroupProgress:
    """The part of the bar that one group moves."""

    study: StudyProgress
    group: Group
    words: str

    def update(self, step: int, note: str) -> None:
        self.study.update(self.group, step, f", {self.words}{note}")

    def say(self, line: str) -> None:
        self.study.say(line, self.group)


def comes_with_another(folder: StudyFolder, group: Group) -> bool:
    """Whether it need not be trained, as far as can be seen from here."""
    if group.within is None:
        return False
    own, outer = folder.group(group.name), folder.group(group.within)
    if own.config.is_file():
        return own.result.is_file()  # one without was begun by itself
    return not outer.result.is_file() or RunFolder(outer.contained).result.is_file()


def last_step(folder: RunFolder, steps: int) -> int:
    """How far a group is as its folder has it: all `steps` of it once there is a result."""
    if folder.result.is_file():
        return steps
    try:
        with folder.curve.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            whole_lines = file.read().split(b"\n")[:-1]
        # Below `steps`: a group whose last evaluation is written is not done before its result is.
        return min(int(whole_lines[-1].split(b",")[COLUMNS.index("step")]), steps - 1)
    except (OSError, ValueError, IndexError):  # not there, or its heading alone
        return 0

"""What a worker of a Ray cluster does: begin a study, or compute one of its groups."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jax

from hyper_rl.allocator import keep_freed_memory
from hyper_rl.errors import UserError
from hyper_rl.file_lock import holder
from hyper_rl.studies.group_lock import try_lock
from hyper_rl.studies.plan import Group
from hyper_rl.studies.runner import run_group
from hyper_rl.studies.study_file import StudyFile
from hyper_rl.studies.study_folder import StudyFolder, is_done, open_study
from hyper_rl.training.trainer import Interrupted, Saving


@dataclass(frozen=True)
class Job:
    """All that a worker has to know."""

    out: Path
    group: Group
    saving: Saving
    env_workers: int
    x64: bool
    """Whether numbers are float64 where the study was started."""
    inner: Group | None = None
    """The group that is computed with it."""


@dataclass(frozen=True)
class Answer:
    """What became of a group on a worker."""

    state: Literal["computed", "done", "held", "stopped", "refused"]
    said: tuple[str, ...] = ()
    """What the training had to say; why, where it is refused or held."""


def begin_study(study: StudyFile, scale: str, out: Path, beside: int, x64: bool) -> str | None:
    """Why not, where it cannot be."""
    jax.config.update("jax_enable_x64", x64)
    try:
        open_study(study, scale, out, beside=beside)
    except UserError as error:
        return str(error)
    return None


def compute_group(job: Job) -> Answer:
    """The group, or why this is not the moment for it."""
    keep_freed_memory()
    jax.config.update("jax_enable_x64", job.x64)
    folder, group, said = StudyFolder(job.out), job.group, list[str]()
    try:
        with try_lock(folder.group_lock(group.name)) as mine:
            if not mine:
                return Answer("held", (holder(folder.group_lock(group.name)),))
            if is_done(folder, group):
                return Answer("done")
            begin, workers = lambda *_: _Notes(said), job.env_workers
            run_group(folder, group, begin, job.inner, saving=job.saving, env_workers=workers)
            return Answer("computed", tuple(said))
    except Interrupted:
        return Answer("stopped", tuple(said))
    except UserError as error:
        return Answer("refused", (*said, str(error)))


@dataclass(frozen=True)
class _Notes:
    """What is said goes home with the answer; how far the group is can be read from its folder."""

    lines: list[str]

    def update(self, step: int, note: str) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)

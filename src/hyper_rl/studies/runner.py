"""Runs the groups of a study, each as an ordinary run folder, alone or beside other processes on the same folder.

Whatever stops it (Ctrl-C, a kill, a power cut), the same call goes on: finished groups are left alone, the one in
flight is resumed from its checkpoint, and the results are the same bytes as without a stop. The same call made several
times at once shares the work: each takes a group that nobody else has, and all of them end when the study is done.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TextIO

from hyper_rl.errors import UserError
from hyper_rl.file_lock import holder
from hyper_rl.studies.group_lock import try_lock
from hyper_rl.studies.plan import Group, plan_study
from hyper_rl.studies.study_file import StudyFile
from hyper_rl.studies.study_folder import (
    StudyFolder,
    check_group,
    contained_in,
    finish_study,
    is_done,
    open_study,
    waits_for,
)
from hyper_rl.studies.study_progress import StudyProgress
from hyper_rl.training.contained import take_out
from hyper_rl.training.progress import Progress, show_progress
from hyper_rl.training.trainer import Interrupted, Saving, resume, train

LOOK_AGAIN_SECONDS = 1.0
"""How often a process that has nothing to compute looks whether a group was given up or finished."""

Begin = Callable[[Group, int], Progress]
"""From a group and the step it goes on from to what shows its progress."""


class StudyInterrupted(Exception):
    """The study was asked to stop and has saved what it had."""

    def __init__(self, study: str, scale: str, out: Path, done: int, total: int, options: Sequence[str] = ()) -> None:
        again = shlex.join(["hyper-rl", "study", study, "--scale", scale, "--out", str(out), *options])
        super().__init__(f"stopped with {done} of {total} groups done; continue with: {again}")


@dataclass(frozen=True)
class Outcome:
    """What a call has done."""

    folder: StudyFolder
    groups: tuple[Group, ...]
    computed: tuple[str, ...]
    """Groups that were run or resumed by it; the others were finished before, or by others."""


def run_study(
    study: StudyFile,
    scale: str,
    out: Path,
    *,
    saving: Saving = Saving(),
    env_workers: int = 0,
    stream: TextIO | None = None,
    only: Sequence[str] = (),
) -> Outcome:
    """Begin the study in `out`, or go on with it.

    `env_workers`: for groups on Gymnasium environments. `only`: patterns of names, of the groups to compute now.
    """
    if only and not StudyFolder(out).json.is_file():
        choose(plan_study(study, scale), only)  # refused before the folder is there; nothing is divided before it is
    folder, groups, begun = open_study(study, scale, out)
    chosen = with_outer(folder, choose(groups, only), groups)
    waiting = [group for group in chosen if not is_done(folder, group)]
    computed: list[str] = []
    with ExitStack() as stack:
        progress = StudyProgress(study.name, folder, chosen, show_progress, stack, stream or sys.stderr)
        if begun and waiting:
            progress.say(f"{out}: {len(chosen) - len(waiting)} of {len(chosen)} groups are done already")
        try:
            with closing(_take_turns(folder, waiting, groups, progress)) as turns:
                for group in turns:
                    inner = contained_in(group, groups)
                    run_group(folder, group, progress.begin, inner, saving=saving, env_workers=env_workers)
                    computed.append(group.name)
        except (Interrupted, KeyboardInterrupt):
            raise interrupted(study, scale, folder, out, chosen, only_words(only)) from None
    settle(folder, groups, computed)
    return Outcome(folder, groups, tuple(computed))


def choose(groups: Sequence[Group], only: Sequence[str]) -> tuple[Group, ...]:
    """Those whose name fits one of the patterns (as file names do: `*`, `?`), all of them where there is none.

    A group that was divided is named with or without its `-part-K`.
    """
    for pattern in only:
        if not any(_fits(group.name, pattern) for group in groups):
            raise UserError(
                f"only: got {pattern!r}, must fit the name of a group, as {groups[0].name!r} is one; see --plan for all"
            )
    return tuple(group for group in groups if not only or any(_fits(group.name, pattern) for pattern in only))


def with_outer(folder: StudyFolder, chosen: Sequence[Group], groups: Sequence[Group]) -> tuple[Group, ...]:
    """The chosen ones, and those that they are computed with."""
    outer = [waits_for(folder, group, groups) for group in chosen]
    names = {group.name for group in (*chosen, *outer) if group is not None}
    return tuple(group for group in groups if group.name in names)


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}-part-*")


def only_words(only: Sequence[str]) -> list[str]:
    """What to type to have the same choice again."""
    return ["--only", *only] if only else []


def interrupted(
    study: StudyFile, scale: str, folder: StudyFolder, out: Path, groups: Sequence[Group], options: Sequence[str] = ()
) -> StudyInterrupted:
    """`options`: what to type besides to go on."""
    done = sum(is_done(folder, group) for group in groups)
    source = study.name if study.builtin else study.source
    return StudyInterrupted(source, scale, out, done, len(groups), options)


def settle(folder: StudyFolder, groups: Sequence[Group], computed: Sequence[str]) -> None:
    """What is left to do once all groups are done; nothing where that was done before, or some are left."""
    if not all(is_done(folder, group) for group in groups):
        return
    if computed or not folder.results.is_file() or folder.locks.exists():
        finish_study(folder, groups)


def _take_turns(
    folder: StudyFolder, waiting: Sequence[Group], groups: Sequence[Group], progress: StudyProgress
) -> Generator[Group, None, None]:
    """Groups to compute, each locked until the next is asked for; ends when all are done, whoever did them."""
    left, told = list(waiting), set[str]()
    while left:
        held = []
        for group in left:
            with try_lock(folder.group_lock(group.name)) as mine:
                if not mine or waits_for(folder, group, groups) is not None:
                    held.append(group)
                elif not is_done(folder, group):  # not even since this process last looked
                    yield group
        if len(held) == len(left):
            for group in held:
                if group.name not in told:
                    told.add(group.name)
                    computed = waits_for(folder, group, groups) or group
                    progress.say(f"waiting for it: {holder(folder.group_lock(computed.name))} computes it", group)
            time.sleep(LOOK_AGAIN_SECONDS)
            progress.look(f", waiting for {len(held)} group{'s' if len(held) != 1 else ''} of other processes")
        left = [group for group in held if not is_done(folder, group)]


def run_group(
    folder: StudyFolder,
    group: Group,
    begin: Begin,
    inner: Group | None = None,
    *,
    saving: Saving = Saving(),
    env_workers: int = 0,
) -> None:
    """Train the group, or resume it where it was begun. Its lock is the caller's to hold.

    `inner`: the group that is computed with it. One that was computed with another is only taken out of its folder;
    that has none of it where the other was trained before the two belonged together, and then it is trained itself.
    """
    run_folder = folder.group(group.name)
    begun = check_group(run_folder, group)
    if group.within is not None and not begun:
        outer = folder.group(group.within)
        if take_out(outer, group.config, run_folder.path):
            return
    contained = None if inner is None or folder.group(inner.name).config.is_file() else inner.config
    workers = 0 if group.config.host is None else min(env_workers, len(group.config.runs))

    @contextmanager
    def open_progress(first: int) -> Iterator[Progress]:
        yield begin(group, first)

    go = partial(resume, run_folder.path) if begun else partial(train, group.config, run_folder.path)
    go(saving=saving, open_progress=open_progress, env_workers=workers, contained=contained)

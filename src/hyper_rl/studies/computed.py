"""Studies that are no grid of trainings: what is computed at once and kept as tables, in the same kind of folder.

study.json         as of every study; `groups` is empty and `parts` says what there is, with which settings
parts/<name>/      CSV, JSON and pictures of one part; there as soon as the part is finished, never half of it

The same call again computes the parts that are missing and leaves the others alone.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from hyper_rl.errors import UserError
from hyper_rl.file_lock import holder
from hyper_rl.studies.group_lock import try_lock
from hyper_rl.studies.study_file import SCALES
from hyper_rl.studies.study_folder import StudyFolder, begin_once, command, refuse_foreign, write_study_json

Settings = Mapping[str, Any]
"""Numbers of one part, as `study.json` keeps them."""


@dataclass(frozen=True)
class Part:
    """One piece that is computed in one go."""

    name: str
    compute: Callable[[Path, Settings], None]
    """Writes its files into the folder."""
    settings: Mapping[str, Settings]
    """By scale."""


@dataclass(frozen=True)
class ComputedStudy:
    name: str
    title: str
    description: str
    parts: tuple[Part, ...]
    check: Callable[[], None] = lambda: None
    """Refuses where something is not installed, before anything is computed."""

    def settings(self, scale: str) -> dict[str, dict[str, Any]]:
        if scale not in SCALES:
            raise UserError(f"scale: got {scale!r}, must be one of {', '.join(SCALES)}")
        return {part.name: dict(part.settings[scale]) for part in self.parts}


def computed_studies() -> dict[str, ComputedStudy]:
    """By name."""
    from hyper_rl.studies.computed_figure_7 import FIGURE_7
    from hyper_rl.studies.computed_linear import LINEAR
    from hyper_rl.studies.computed_table_2 import TABLE_2

    return {study.name: study for study in (LINEAR, FIGURE_7, TABLE_2)}


def run_computed(study: ComputedStudy, scale: str, out: Path, *, stream: TextIO | None = None) -> tuple[str, ...]:
    """Begin the study in `out`, or go on with it; the parts that were computed now."""
    folder = _open(study, scale, out)
    if not _waiting(study, folder):
        return ()
    study.check()
    lock = folder.group_lock("parts")
    with try_lock(lock) as mine:
        if not mine:
            raise UserError(f"out: {out} is being computed by {holder(lock)}; wait for it, or choose another folder")
        computed = []
        for part in _waiting(study, folder):
            _compute(study, part, scale, folder, stream or sys.stderr)
            computed.append(part.name)
        shutil.rmtree(folder.locks, ignore_errors=True)
    return tuple(computed)


def _compute(study: ComputedStudy, part: Part, scale: str, folder: ComputedFolder, stream: TextIO) -> None:
    """Into a folder of another name, which becomes the part's once all is there."""
    total = len(study.parts)
    number = study.parts.index(part) + 1
    print(f"study {study.name}: part {part.name} ({number} of {total})", file=stream, flush=True)
    unfinished = folder.part(f".{part.name}.writing")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        # What a part prints is progress; the answer of the command is not mixed with it.
        with contextlib.redirect_stdout(stream):
            part.compute(unfinished, part.settings[scale])
    except KeyboardInterrupt:
        from hyper_rl.studies.runner import StudyInterrupted

        shutil.rmtree(unfinished, ignore_errors=True)
        done = total - len(_waiting(study, folder))
        raise StudyInterrupted(study.name, scale, folder.path, done, total) from None
    unfinished.rename(folder.part(part.name))


def _waiting(study: ComputedStudy, folder: ComputedFolder) -> list[Part]:
    return [part for part in study.parts if not folder.part(part.name).is_dir()]


@dataclass(frozen=True)
class ComputedFolder(StudyFolder):
    """Paths of the folder of such a study."""

    def part(self, name: str) -> Path:
        return self.path / "parts" / name


def _open(study: ComputedStudy, scale: str, out: Path) -> ComputedFolder:
    folder, settings = ComputedFolder(out), study.settings(scale)
    refuse_foreign(folder)
    if not folder.json.is_file():
        about = {
            "name": study.name,
            "title": study.title,
            "scale": scale,
            "groups": [],
            "parts": [{"name": name, "settings": numbers} for name, numbers in settings.items()],
            "command": command(study.name, scale, out),
        }
        with begin_once(folder) as mine:
            if mine:
                write_study_json(folder, about)
    _require_same(study, scale, settings, folder)
    return folder


def _require_same(study: ComputedStudy, scale: str, settings: Mapping[str, Settings], folder: ComputedFolder) -> None:
    stored = folder.read()
    if stored["name"] != study.name or "parts" not in stored:
        raise UserError(f"out: {folder.path} holds another study, {stored['name']!r}; choose another folder")
    if stored["scale"] != scale:
        begun = stored["scale"]
        raise UserError(f"scale: got {scale!r}, but {folder.path} was begun with {begun!r}; choose another folder")
    theirs = {part["name"]: part["settings"] for part in stored["parts"]}
    if theirs != json.loads(json.dumps(settings)):
        differs = next(name for name in {**theirs, **settings} if theirs.get(name) != settings.get(name))
        raise UserError(
            f"out: {folder.path} was begun with other settings of part {differs!r}: {theirs.get(differs)}, "
            f"now {settings.get(differs)}; choose another folder"
        )

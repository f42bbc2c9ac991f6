"""A study on disk: what was asked for, how it was divided, and one run folder per group.

study.toml         the study file, byte for byte
study.json         name, title, scale, groups (labels, betas, seeds, what contains them), command, versions
groups/<name>/     an ordinary run folder
results.csv        one row per run, once all groups are done
locks/             who works on what, until all groups are done

`study.json` is there before the first group begins, and its groups never change: a study that goes on after any
interruption has the division it began with. Several processes may work in one folder: what they all write
(`study.json`, `results.csv`) is written under the study's lock, a group under its own.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyper_rl.config import Config
from hyper_rl.errors import UserError
from hyper_rl.studies.group_lock import wait_for_lock
from hyper_rl.studies.layout import divide, restore_division
from hyper_rl.studies.plan import Group, plan_study
from hyper_rl.studies.study_file import StudyFile
from hyper_rl.training.run_folder import RunFolder, versions, write_atomically

STUDY_VERSION = 1
HALF_BEGUN = frozenset({"study.toml", ".study.toml.writing", ".study.json.writing", "locks"})
"""All there can be when a study was killed before its first group."""


@dataclass(frozen=True)
class StudyFolder:
    """Paths of one study folder."""

    path: Path

    @property
    def toml(self) -> Path:
        return self.path / "study.toml"

    @property
    def json(self) -> Path:
        return self.path / "study.json"

    @property
    def results(self) -> Path:
        return self.path / "results.csv"

    @property
    def locks(self) -> Path:
        return self.path / "locks"

    @property
    def lock(self) -> Path:
        """Of the files that all processes write."""
        return self.locks / ".study"

    def group(self, name: str) -> RunFolder:
        return RunFolder(self.path / "groups" / name)

    def group_lock(self, name: str) -> Path:
        return self.locks / f"{name}.lock"

    def read(self) -> dict[str, Any]:
        """`study.json`, checked for what readers of it rely on."""
        if not self.json.is_file():
            raise UserError(f"study: {self.path} is not a study folder (no study.json in it)")
        try:
            data = json.loads(self.json.read_text())
            if data["version"] != STUDY_VERSION:
                raise ValueError(f"format version {data['version']}, this program reads {STUDY_VERSION}")
            for group in data["groups"]:
                for key in ("name", "labels", "betas", "seeds"):
                    group[key]
            for key in ("name", "title", "scale", "command", "versions"):
                data[key]
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{self.json}: not a study this version can read: {error!r}") from None
        return dict(data)


def recorded_scale(study: StudyFile, scale: str) -> str:
    """'paper' is for the studies of the package alone: one's own file is nobody's paper."""
    return scale if study.builtin or scale != "paper" else "custom"


def open_study(
    study: StudyFile, scale: str, out: Path, *, beside: int = 1
) -> tuple[StudyFolder, tuple[Group, ...], bool]:
    """The folder and its groups, and whether it was begun before; refused where it belongs to something else.

    `beside`: groups that will share the memory of one machine.
    """
    folder = StudyFolder(out)
    groups = plan_study(study, scale)
    refuse_foreign(folder)
    if not folder.json.is_file():
        divided = divide(groups, beside=beside)
        with begin_once(folder) as mine:
            if mine:
                write_atomically(folder.toml, study.text)
                write_study_json(folder, _about(study, scale, folder, divided))
                return folder, divided, False
    _require_same(study, scale, folder)
    return folder, restore_division(groups, folder.read()["groups"], str(folder.json)), True


def refuse_foreign(folder: StudyFolder) -> None:
    """Where there is something that is no study."""
    out = folder.path
    foreign = out.exists() and (not out.is_dir() or any(path.name not in HALF_BEGUN for path in out.iterdir()))
    # Looked for last: another process may have begun the study while its files were listed.
    if foreign and not folder.json.is_file():
        raise UserError(f"out: {out} exists already and is no study folder; choose another")


@contextmanager
def begin_once(folder: StudyFolder) -> Iterator[bool]:
    """Whether it is for this process to write `study.json`; nobody else does for as long as this lasts."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"out: {folder.path} cannot be created ({error.strerror})") from None
    with shared_files(folder):
        yield not folder.json.is_file()


def write_study_json(folder: StudyFolder, about: Mapping[str, Any]) -> None:
    """Of any kind of study: what it is, and what made it."""
    body = {"version": STUDY_VERSION, **about, "versions": versions()}
    write_atomically(folder.json, json.dumps(body, indent=2) + "\n")


def _about(study: StudyFile, scale: str, folder: StudyFolder, divided: Sequence[Group]) -> dict[str, Any]:
    name = study.name if study.builtin else Path(study.source).name
    return {
        "name": study.name,
        "title": study.title,
        "scale": recorded_scale(study, scale),
        "groups": [
            {
                "name": group.name,
                "labels": dict(group.labels),
                "betas": list(group.config.betas),
                "seeds": list(group.config.seeds),
                **({"within": group.within} if group.within is not None else {}),
            }
            for group in divided
        ],
        "command": command(name, scale, folder.path),
    }


def command(name: str, scale: str, out: Path) -> str:
    """What to type to make it again; folders of this machine are left out."""
    return f"hyper-rl study {name} --scale {scale} --out {out.name or out}"


def _require_same(study: StudyFile, scale: str, folder: StudyFolder) -> None:
    stored, wanted = folder.read()["scale"], recorded_scale(study, scale)
    theirs = folder.toml.read_bytes().decode("utf-8") if folder.toml.is_file() else ""
    if theirs != study.text:
        lines = itertools.zip_longest(theirs.splitlines(), study.text.splitlines())
        number, (there, here) = next(
            ((i, pair) for i, pair in enumerate(lines, start=1) if pair[0] != pair[1]), (1, ("", ""))
        )
        raise UserError(
            f"out: {folder.path} holds another study: line {number} of its study.toml is {there!r}, "
            f"of {study.source} {here!r}; choose another folder"
        )
    if stored != wanted:
        raise UserError(f"scale: got {wanted!r}, but {folder.path} was begun with {stored!r}; choose another folder")


def check_group(folder: RunFolder, group: Group) -> bool:
    """Whether the group has begun; refused where its folder was made with other settings."""
    if not folder.config.is_file():
        return False
    _, config = RunFolder.open(folder.path)
    for f in dataclasses.fields(Config):
        mine, theirs = (_as_data(getattr(one, f.name)) for one in (group.config, config))
        if mine != theirs:
            raise UserError(
                f"{f.name}: {folder.path} was made with {theirs!r}, and the study now says {mine!r}; "
                "start a new folder, or go on with the version that began it"
            )
    return True


def _as_data(value: Any) -> Any:
    return json.loads(json.dumps(value if not hasattr(value, "items") else dict(value)))


def is_done(folder: StudyFolder, group: Group) -> bool:
    run_folder = folder.group(group.name)
    return check_group(run_folder, group) and run_folder.result.is_file()


def waits_for(folder: StudyFolder, group: Group, groups: Sequence[Group]) -> Group | None:
    """The group that this one is computed with, as long as that is not done."""
    if group.within is None or folder.group(group.name).config.is_file():
        return None
    outer = next(other for other in groups if other.name == group.within)
    return None if is_done(folder, outer) else outer


def contained_in(group: Group, groups: Sequence[Group]) -> Group | None:
    """The group that is computed with this one."""
    return next((other for other in groups if other.within == group.name), None)


@contextmanager
def shared_files(folder: StudyFolder) -> Iterator[None]:
    """For as long as files are written that are not a group's own."""
    with wait_for_lock(folder.lock):
        yield
        folder.lock.unlink(missing_ok=True)
    with suppress(OSError):  # not empty: some group has a lock
        folder.locks.rmdir()


def finish_study(folder: StudyFolder, groups: Sequence[Group]) -> None:
    """The table of a study whose groups are all done, and away with their locks."""
    with shared_files(folder):
        text = results_table(folder, groups)
        if not folder.results.is_file() or folder.results.read_text() != text:
            write_atomically(folder.results, text)
        for path in folder.locks.glob("*.lock"):  # whoever waits for one of them finds its group done
            path.unlink(missing_ok=True)
        for group in groups:
            folder.group(group.name).remove_left_lock()


def results_table(folder: StudyFolder, groups: Sequence[Group]) -> str:
    """`results.csv`: one row per run, nothing in it that depends on how often the study was interrupted."""
    rows: list[dict[str, Any]] = []
    for group in groups:
        for entry in folder.group(group.name).read_result()["runs"]:
            rows.append({"group": group.name, **group.labels, **entry})
    labels = dict.fromkeys(key for group in groups for key in group.labels)
    values = dict.fromkeys(key for row in rows for key in row if key != "group" and key not in labels)
    text = io.StringIO()
    writer = csv.DictWriter(text, ["group", *labels, *values], lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return json.dumps(value) if isinstance(value, list | tuple | Mapping) else str(value)

"""A study file: which runs there are, in TOML, checked before anything runs.

    title = "Performance against beta in the room"
    task = "Room"                       # keys up here hold for every group
    betas = [0.01, 1.0]
    seeds = 5

    [[group]]
    methods = ["hyper", "curiosity"]    # several values: several groups

    [[group]]
    method = "hyper"
    lengths = "plain"
    env = { horizon = [100, 200] }

    [scale.quick]                       # instead, with --scale quick
    seeds = 2

An error names the file, the line, the key, the value and what is allowed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hyper_rl.envs.gym_make import import_registering
from hyper_rl.errors import UserError, require, unknown_name
from hyper_rl.studies.study_keys import (
    ENV,
    KEYS,
    PLURALS,
    Check,
    check_env,
    check_seeds,
    part_checks,
    parts,
    takes_a_list,
)
from hyper_rl.studies.toml_lines import Path as KeyPath
from hyper_rl.studies.toml_lines import find_lines

SCALES = ("paper", "quick")


@dataclass(frozen=True)
class Entry:
    """One key as the file gives it."""

    values: Sequence[Any]
    """What it is set to, one after the other."""
    several: bool
    """Written as a list, so that the groups are told apart by it."""
    line: int


Entries = Mapping[str, Entry]
"""By key; options of a table are `td3.lr`, `env.horizon`."""


@dataclass(frozen=True)
class Scale:
    """What `[scale.NAME]` changes."""

    changes: Entries
    groups: tuple[Entries, ...] | None
    """In place of the study's own groups, where given."""


@dataclass(frozen=True)
class StudyFile:
    name: str
    """What the study is called."""
    source: str
    """What the file is called in messages."""
    text: str
    title: str
    description: str
    defaults: Entries
    groups: tuple[Entries, ...]
    scales: Mapping[str, Scale]
    builtin: bool

    def at(self, scale: str) -> tuple[Entries, ...]:
        """The groups at this scale, each with every key that holds for it."""
        if scale == "paper":
            return tuple({**self.defaults, **group} for group in self.groups)
        if scale not in self.scales:
            raise UserError(f"scale: got {scale!r}, but {self.source} has no [scale.{scale}]")
        chosen = self.scales[scale]
        if chosen.groups is not None:
            return tuple({**self.defaults, **chosen.changes, **group} for group in chosen.groups)
        return tuple({**self.defaults, **group, **chosen.changes} for group in self.groups)

    def shared(self, scale: str) -> Entries:
        """The keys that hold for every group at this scale."""
        return self.defaults if scale == "paper" else {**self.defaults, **self.scales[scale].changes}

    def error(self, line: int, message: object) -> UserError:
        return UserError(f"{self.source}, line {line}: {message}")


def builtin_studies() -> dict[str, str]:
    """The studies that come with the package: name and text."""
    folder = resources.files("hyper_rl.studies") / "builtin"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files}


def find_study(name: str) -> StudyFile:
    """A study by name, or the file at this path."""
    known = builtin_studies()
    if name in known:
        return parse_study(known[name], name, f"{name}.toml", builtin=True)
    path = Path(name)
    if not path.is_file():
        if path.suffix == ".toml":
            raise UserError(f"study: no file {name}")
        from hyper_rl.studies.computed import computed_studies

        names = [*known, *computed_studies()]
        raise UserError(f"{unknown_name('study', name, names)}; or the path of a .toml file")
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{name}: cannot be read ({error})") from None
    # A copy of a study of the package is that study; a changed one is not.
    return parse_study(text, path.stem, name, builtin=known.get(path.stem) == text)


def parse_study(text: str, name: str, source: str, *, builtin: bool = False) -> StudyFile:
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source}: not TOML: {error}") from None
    reader = _Reader(source, find_lines(text))
    reader.import_modules(raw, ())
    title = reader.text(raw, "title", name)
    description = reader.text(raw, "description", "")
    groups = reader.groups(raw, (), "group")
    scales = reader.scales(raw)
    if groups is None:
        raise UserError(f"{source}: no [[group]]; a study has at least one")
    own = {key: value for key, value in raw.items() if key not in ("title", "description", "group", "scale")}
    return StudyFile(name, source, text, title, description, reader.entries(own, ()), groups, scales, builtin)


class _Reader:
    """Takes the parsed file apart; every complaint has a line."""

    def __init__(self, source: str, lines: Mapping[KeyPath, int]) -> None:
        self._source, self._lines = source, lines

    def text(self, raw: Mapping[str, Any], key: str, default: str) -> str:
        value = raw.get(key, default)
        if not isinstance(value, str):
            raise self._error((key,), f"{key}: got {value!r}, must be a text")
        return value

    def import_modules(self, table: Mapping[str, Any], path: KeyPath) -> None:
        """All that the file names, before any key is looked at: they may add learners and bonuses."""
        for key, value in table.items():
            here = (*path, key)
            if key == "env_module":
                for module in value if isinstance(value, list) else [value]:
                    self._import(module, here)
            elif key in ("group", "scale", *SCALES):
                inside = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
                for number, one in enumerate(inside):
                    if isinstance(one, dict):
                        self.import_modules(one, here if isinstance(value, dict) else (*here, number))

    def _import(self, module: Any, path: KeyPath) -> None:
        if isinstance(module, str):  # anything else is refused with the other keys
            try:
                import_registering(module)
            except UserError as error:
                raise self._error(path, error) from None

    def groups(self, raw: Mapping[str, Any], path: KeyPath, key: str) -> tuple[Entries, ...] | None:
        if key not in raw:
            return None
        found = raw[key]
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self._error(
                (*path, key), f"{key}: got {found!r}, must be tables: write [[{'.'.join(map(str, (*path, key)))}]]"
            )
        if not found:
            raise self._error((*path, key), f"{key}: got [], must be at least one table")
        return tuple(self.entries(one, (*path, key, i)) for i, one in enumerate(found))

    def scales(self, raw: Mapping[str, Any]) -> dict[str, Scale]:
        found = raw.get("scale", {})
        if not isinstance(found, dict):
            raise self._error(("scale",), f"scale: got {found!r}, must be a table: write [scale.quick]")
        scales = {}
        for name, table in found.items():
            path = ("scale", name)
            if name not in SCALES[1:]:
                raise self._error(path, unknown_name("scale", name, SCALES[1:]))
            if not isinstance(table, dict):
                raise self._error(path, f"scale.{name}: got {table!r}, must be a table")
            own = {key: value for key, value in table.items() if key != "group"}
            scales[name] = Scale(self.entries(own, path), self.groups(table, path, "group"))
        return scales

    def entries(self, table: Mapping[str, Any], path: KeyPath) -> Entries:
        found: dict[str, Entry] = {}
        for given, value in table.items():
            here = (*path, given)
            key = PLURALS.get(given, given)
            if given == ENV or given in parts():
                found |= self._options(given, value, here)
                continue
            if key != "seeds" and key not in KEYS:
                known = [*KEYS, "seeds", *PLURALS, ENV, *parts()]
                known += ["title", "description", "group", "scale"] if not path else []
                raise self._error(here, unknown_name("key", given, known))
            if key in found:
                raise self._error(here, f"{given}: given twice, also as {key} in line {found[key].line}")
            found[key] = (
                self._seeds(given, value, here) if key == "seeds" else self._entry(given, value, here, KEYS[key])
            )
        return found

    def _options(self, part: str, table: Any, path: KeyPath) -> dict[str, Entry]:
        if not isinstance(table, dict):
            raise self._error(path, f"{part}: got {table!r}, must be a table of options")
        checks = {name: check_env for name in table} if part == ENV else part_checks(part)
        found = {}
        for name, value in table.items():
            here, key = (*path, name), f"{part}.{name}"
            if name not in checks:
                raise self._error(here, unknown_name(key, name, checks))
            found[key] = self._entry(key, value, here, checks[name], is_list=takes_a_list(part, name))
        return found

    def _entry(self, key: str, value: Any, path: KeyPath, check: Check, *, is_list: bool = False) -> Entry:
        several = isinstance(value, list) and (not is_list or any(isinstance(one, list) for one in value))
        values = value if several else [value]
        try:
            require(bool(values), key, value, "at least one value")
            checked = tuple(check(key, one) for one in values)
            require(len(set(map(repr, checked))) == len(checked), key, value, "a list without repetitions")
        except UserError as error:
            raise self._error(path, error) from None
        return Entry(checked, several, self._line(path))

    def _seeds(self, key: str, value: Any, path: KeyPath) -> Entry:
        try:
            return Entry(check_seeds(key, value), True, self._line(path))
        except UserError as error:
            raise self._error(path, error) from None

    def _line(self, path: KeyPath) -> int:
        """Of the key, or of the table nearest around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _error(self, path: KeyPath, message: object) -> UserError:
        return UserError(f"{self._source}, line {self._line(path)}: {message}")

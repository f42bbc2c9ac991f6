"""What a study has found, read back from its folder: a `RunResult` per finished run, or what was computed."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.config import Config
from hyper_rl.errors import UserError
from hyper_rl.studies.study_folder import StudyFolder
from hyper_rl.training.run_folder import RunFolder

NAMES_THE_RUN = ("run", "beta", "seed")


@dataclass(frozen=True)
class RunResult:
    """One run of one group."""

    group: str
    labels: Mapping[str, Any]
    config: Config
    index: int
    """Its number in the group's run folder."""
    beta: float
    seed: int
    final: Mapping[str, float]
    """Its entry of result.json; NaN where nothing could be measured."""
    curve: Mapping[str, np.ndarray]
    """Its rows of curve.csv by column; NaN where a cell is empty."""
    visits: np.ndarray | None
    """Visits of each cell, for tasks that have cells."""


@dataclass(frozen=True)
class StudyResult:
    """All finished runs of a study."""

    folder: Path
    name: str
    title: str
    scale: str
    runs: tuple[RunResult, ...]
    missing: tuple[str, ...]
    """Groups, or parts, that are not finished."""
    versions: Mapping[str, str]
    command: str
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Of a study that is computed and not trained: its tables, by part and name of the file."""

    def select(self, **labels: Any) -> tuple[RunResult, ...]:
        """Runs with these labels (task, method, preset, ...), and with this beta or seed where given."""
        return tuple(run for run in self.runs if all(_value(run, key) == value for key, value in labels.items()))


def _value(run: RunResult, key: str) -> Any:
    return getattr(run, key) if key in ("beta", "seed", "group") else run.labels.get(key)


def read_study(folder: Path) -> StudyResult:
    """Everything that is finished; UserError naming file and reason where it is not a study folder."""
    stored = StudyFolder(folder)
    about = stored.read()
    runs: list[RunResult] = []
    missing: list[str] = []
    for group in about["groups"]:
        run_folder = stored.group(group["name"])
        if run_folder.result.is_file():
            runs += _read_group(group, run_folder)
        else:
            missing.append(group["name"])
    names = [part["name"] for part in about.get("parts", [])]
    finished = {name: where for name in names if (where := folder / "parts" / name).is_dir()}
    missing += [name for name in names if name not in finished]
    return StudyResult(
        folder=folder,
        name=about["name"],
        title=about["title"],
        scale=about["scale"],
        runs=tuple(runs),
        missing=tuple(missing),
        versions=about["versions"],
        command=about["command"],
        parts={name: read_tables(where) for name, where in finished.items()},
    )


def read_tables(folder: Path) -> dict[str, Any]:
    """The JSON and CSV files of a part, by name; a CSV is a list of rows, with numbers as numbers."""
    tables: dict[str, Any] = {}
    for path in sorted(folder.iterdir()):
        try:
            if path.suffix == ".json":
                tables[path.name] = json.loads(path.read_text(encoding="utf-8"))
            elif path.suffix == ".csv":
                with path.open(newline="", encoding="utf-8") as file:
                    tables[path.name] = [{k: _cell(v) for k, v in row.items()} for row in csv.DictReader(file)]
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not readable ({error})") from None
    return tables


def _cell(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _read_group(group: Mapping[str, Any], folder: RunFolder) -> Iterator[RunResult]:
    _, config = RunFolder.open(folder.path)
    labels = {key: tuple(value) if isinstance(value, list) else value for key, value in group["labels"].items()}
    entries = folder.read_result()["runs"]
    if [(entry["beta"], entry["seed"]) for entry in entries] != config.runs:
        raise UserError(f"{folder.result}: its runs are not those of config.json beside it")
    try:
        curve = folder.read_curve()
        visits = _visits(folder, len(entries))
    except (OSError, ValueError, IndexError) as error:
        raise UserError(f"{folder.path}: not readable ({error})") from None
    if absent := [name for name in ("run", "step", "success") if name not in curve]:
        raise UserError(f"{folder.curve}: not a curve, it has no column {', '.join(absent)}")
    for index, entry in enumerate(entries):
        mine = curve["run"] == index
        yield RunResult(
            group=group["name"],
            labels=labels,
            config=config,
            index=index,
            beta=float(entry["beta"]),
            seed=int(entry["seed"]),
            final={key: _number(value) for key, value in entry.items() if key not in NAMES_THE_RUN},
            curve={key: values[mine] for key, values in curve.items()},
            visits=None if visits is None else visits[index],
        )


def _visits(folder: RunFolder, runs: int) -> np.ndarray | None:
    """[run, cell]; None where the task has no cells to count."""
    if not folder.visits.is_file():
        return None
    with folder.visits.open() as file:
        if sum(1 for _ in zip(file, range(2), strict=False)) < 2:
            return None
    visits = folder.read_visits()
    if visits.shape[0] != runs:
        raise ValueError(f"{folder.visits.name} has {visits.shape[0]} runs, result.json {runs}")
    return visits if visits.shape[1] > 1 else None  # tasks without a map count everything in one cell


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)

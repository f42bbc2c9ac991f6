"""A run folder on disk: every file readable without this package, nothing overwritten, nothing half written.

config.json        what was asked for, every number written out
curve.csv          one row per evaluation and run
result.json        what came out; no timings, so that equal runs give equal bytes
timing.json        speeds, versions and devices
visits.csv         how often each cell of the task was visited, per run
checkpoint/        see `checkpoint`
runs/<i>/agent/    the judged policy of run i alone, see `agent_file`
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hyper_rl import __version__
from hyper_rl.config import Config
from hyper_rl.errors import UserError
from hyper_rl.training.checkpoint import flush
from hyper_rl.training.snapshot import COLUMNS

LAST_EVALUATIONS = 5
"""A run's final performance is the mean of this many last evaluations."""
LAST_SHARE = 0.1
"""Its final behaviour is that of the last tenth of its steps."""


class RunFolder:
    """Paths and writers of one run folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.curve = path / "curve.csv"
        self.result = path / "result.json"
        self.timing = path / "timing.json"
        self.visits = path / "visits.csv"
        self.checkpoints = path / "checkpoint"

    def agent(self, run: int) -> Path:
        return self.path / "runs" / str(run) / "agent"

    @staticmethod
    def create(path: Path, config: Config) -> RunFolder:
        """A new folder; one that exists and holds anything is never touched."""
        # A process killed while it wrote the very first file leaves that file's temporary name and nothing else.
        if path.exists() and (not path.is_dir() or any(p.name != ".config.json.writing" for p in path.iterdir())):
            raise UserError(
                f"out: {path} exists already; choose another folder, "
                f"or continue it with: hyper-rl train --resume {path}"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"out: {path} cannot be created ({error.strerror})") from None
        folder = RunFolder(path)
        write_atomically(folder.config, config.to_json())
        return folder

    @staticmethod
    def open(path: Path) -> tuple[RunFolder, Config]:
        folder = RunFolder(path)
        if not folder.config.is_file():
            raise UserError(f"run: {path} is not a run folder (no config.json in it)")
        return folder, Config.from_json(folder.config.read_text(), str(folder.config))

    def start_curve(self) -> None:
        self.curve.write_text(",".join(COLUMNS) + "\n")

    def cut_curve(self, count: int) -> None:
        """Back to what it was at the checkpoint: later rows will be computed again."""
        with self.curve.open("r+b") as file:
            file.truncate(count)

    def append_curve(self, rows: list[dict[str, float]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            writer.writerow([_cell(row[name]) for name in COLUMNS])
        with self.curve.open("a") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())

    def read_curve(self) -> dict[str, np.ndarray]:
        """Columns by name; empty cells are NaN."""
        with self.curve.open() as file:
            lines = list(csv.reader(file))
        columns = list(zip(*lines[1:], strict=True)) if len(lines) > 1 else [() for _ in lines[0]]
        return {
            name: np.array([float(cell) if cell else math.nan for cell in column])
            for name, column in zip(lines[0], columns, strict=True)
        }

    def write_result(self, result: dict[str, Any]) -> None:
        write_atomically(self.result, json.dumps(result, indent=2) + "\n")

    def read_result(self) -> dict[str, Any]:
        if not self.result.is_file():
            raise UserError(f"run: {self.path} has no result yet; finish it with: hyper-rl train --resume {self.path}")
        try:
            loaded: dict[str, Any] = json.loads(self.result.read_text())
        except ValueError as error:
            raise UserError(f"{self.result}: not readable ({error}); remove it and resume the run") from None
        return loaded

    def write_timing(self, timing: dict[str, Any]) -> None:
        write_atomically(self.timing, json.dumps(timing, indent=2) + "\n")

    def write_visits(self, visits: np.ndarray) -> None:
        lines = ["run,cell,visits"]
        lines += [f"{run},{cell},{count}" for run, row in enumerate(visits) for cell, count in enumerate(row)]
        write_atomically(self.visits, "\n".join(lines) + "\n")

    def read_visits(self) -> np.ndarray:
        """Visits as [run, cell]."""
        table = np.loadtxt(self.visits, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
        counts = np.zeros((table[:, 0].max() + 1, table[:, 1].max() + 1), np.int64)
        counts[table[:, 0], table[:, 1]] = table[:, 2]
        return counts


def summarise_runs(config: Config, curve: dict[str, np.ndarray]) -> dict[str, Any]:
    """`result.json`: final performance of every run, from the curve alone."""
    runs = []
    for run, (beta, seed) in enumerate(config.runs):
        mine = curve["run"] == run
        series = {name: values[mine] for name, values in curve.items()}
        late = series["step"] > (1 - LAST_SHARE) * config.steps
        episodes = series["episodes"][late]
        entry: dict[str, Any] = {"run": run, "beta": beta, "seed": seed}
        for name in ("success", "return", "steps_to_goal", "discounted_return", "critic_estimate"):
            entry[name] = _number(_mean(series[name][-LAST_EVALUATIONS:]))
        for name in ("behaviour_success", "behaviour_return"):
            counted = episodes > 0
            weighted = (series[name][late] * episodes)[counted].sum()
            entry[name] = _number(weighted / episodes.sum() if counted.any() else math.nan)
        entry["goals"] = int(series["goals"][-1])
        entry["cells_visited"] = _number(series["cells_visited"][-1])
        entry["finite"] = bool((series["finite"] == 1).all())
        runs.append(entry)
    return {
        "task": config.task,
        "method": config.method,
        "learner": config.learner,
        "bonus": config.bonus,
        "preset": config.preset,
        "steps": config.steps,
        "success_is": f"mean of the last {LAST_EVALUATIONS} evaluations of {config.eval_episodes} episodes",
        "behaviour_is": f"episodes ended in the last {LAST_SHARE:.0%} of the steps",
        "versions": versions(),
        "runs": runs,
    }


def versions() -> dict[str, str]:
    packages = ("jax", "jaxlib", "equinox", "numpy")
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["hyper-rl"] = __version__
    return {**found, "python": platform.python_version(), "device": jax.devices()[0].platform}


def write_atomically(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(text)
    flush(temporary)
    temporary.replace(path)
    flush(path.parent)


def _mean(values: np.ndarray) -> float:
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else math.nan


def _number(value: float) -> float | None:
    """JSON has no NaN: what could not be measured is null."""
    return float(value) if math.isfinite(value) else None


def _cell(value: float) -> str:
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 1e15):
        return str(int(value))
    return "" if math.isnan(value) else repr(float(value))

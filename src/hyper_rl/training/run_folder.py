"""A run folder on disk: every file readable without this package, nothing overwritten, nothing half written.

config.json        what was asked for, every number written out
curve.csv          one row per evaluation and run
result.json        what came out; no timings, so that equal runs give equal bytes
timing.json        speeds, versions and devices
visits.csv         how often each cell of the task was visited, per run
checkpoint/        see `checkpoint`
contained-curiosity/  a run folder inside: the runs of Curiosity that those of Decouple contain, see `contained`
runs/<i>/agent/    the judged policy of run i alone, see `agent_file`
.lock              while a process trains in it; one that was killed leaves it, and it is the lock of nobody
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hyper_rl import __version__, file_lock
from hyper_rl.config import Config
from hyper_rl.envs.registry import has_success
from hyper_rl.errors import UserError
from hyper_rl.training.checkpoint import flush, head_sha256
from hyper_rl.training.snapshot import COLUMNS

LAST_EVALUATIONS = 5
"""A run's final performance is the mean of this many last evaluations."""
LAST_SHARE = 0.1
"""Its final behaviour is that of the last tenth of its steps."""
LOCK = ".lock"
NOT_YET_A_RUN = (LOCK, ".config.json.writing")
"""What a process killed before the very first file was whole leaves behind."""


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
        self.copies = (path / "tensorboard", path / "wandb")
        """Of the curve, by `report.writers`."""
        self.contained = path / "contained-curiosity"
        """A run folder inside this one, see `contained`."""

    def agent(self, run: int) -> Path:
        return self.path / "runs" / str(run) / "agent"

    @staticmethod
    def create(path: Path, config: Config) -> RunFolder:
        """A new folder; one that exists and holds anything is never touched."""
        with RunFolder.begin(path) as (folder, _):
            folder.write_config(config)
        return folder

    @staticmethod
    @contextmanager
    def begin(path: Path) -> Iterator[tuple[RunFolder, list[str]]]:
        """A new folder without a configuration, locked as by `lock` for as long as the block lasts.

        If the block fails and leaves nothing in it, it goes again, unless it was there before.
        """
        _refuse_taken(path)
        made = True
        with naming(path, "created", field="out"):
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                if not path.is_dir():
                    raise
                made = False
        folder = RunFolder(path)
        try:
            with folder.lock() as notes:
                _refuse_taken(path)  # by whoever was quicker
                yield folder, notes
        except BaseException:
            if made:
                with suppress(OSError):  # not empty: something in it is not ours to remove
                    path.rmdir()
            raise

    @staticmethod
    def open(path: Path) -> tuple[RunFolder, Config]:
        folder = RunFolder(path)
        with naming(folder.config, "read"):
            if not folder.config.is_file():
                raise UserError(f"run: {path} is not a run folder (no config.json in it)")
            text = folder.config.read_bytes().decode("utf-8", errors="replace")  # what is not text is not JSON either
        return folder, Config.from_json(text, str(folder.config))

    @contextmanager
    def lock(self) -> Iterator[list[str]]:
        """No other process trains in the folder for as long as the block lasts; one that does is an error.

        An open file holds it (`flock`), so it is gone with its process, however that ends. Yields warnings.
        """
        path, notes = self.path / LOCK, list[str]()
        descriptor = _take_lock(path, notes)
        try:
            yield notes
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)  # while it is held: later it might be another process's
            os.close(descriptor)

    def remove_left_lock(self) -> None:
        """Of a process that was killed when all was done but this."""
        if (self.path / LOCK).exists():
            with suppress(UserError), self.lock():
                pass

    def write_config(self, config: Config) -> None:
        """From here on the folder is that of `config`.

        An old result goes first: killed in between, the folder is an unfinished run, never a finished other one. But
        not before the new configuration is on the disk, where there may be no room for it.
        """
        with naming(self.config, "written"):
            temporary = _write_beside(self.config, config.to_json())
            self.result.unlink(missing_ok=True)
            temporary.replace(self.config)
            flush(self.path)

    def start_curve(self) -> None:
        with naming(self.curve, "written"):
            self.curve.write_text(",".join(COLUMNS) + "\n")

    def check_curve(self, count: int) -> None:
        """Refuse a curve that rows of this program do not continue, as far as it is kept."""
        try:
            names = tuple(self.read_curve(count))
        except (OSError, ValueError, IndexError) as error:
            raise UserError(f"{self.curve}: not readable ({error})") from None
        if names != tuple(COLUMNS):
            odd = ", ".join(sorted(set(names) ^ set(COLUMNS))) or "their order"
            raise UserError(
                f"{self.curve}: has other columns than this version writes ({odd}); "
                "go on with the version that began it"
            )

    def cut_curve(self, count: int) -> None:
        """Back to what it was at the checkpoint: later rows will be computed again."""
        with naming(self.curve, "written"), self.curve.open("r+b") as file:
            file.truncate(count)

    @property
    def curve_head(self) -> tuple[int, str]:
        """Length and check sum of the curve as it stands, for a checkpoint."""
        size = self.curve.stat().st_size
        return size, head_sha256(self.curve, size)

    def append_curve(self, rows: list[dict[str, float]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for row in rows:
            writer.writerow([_cell(row[name]) for name in COLUMNS])
        with naming(self.curve, "written"), self.curve.open("a") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())

    def read_curve(self, count: int = -1) -> dict[str, np.ndarray]:
        """Columns by name, of its first `count` bytes or of all; empty cells are NaN."""
        with self.curve.open("rb") as file:
            lines = list(csv.reader(io.StringIO(file.read(count).decode(), newline="")))
        columns = list(zip(*lines[1:], strict=True)) if len(lines) > 1 else [() for _ in lines[0]]
        return {
            name: np.array([float(cell) if cell else math.nan for cell in column])
            for name, column in zip(lines[0], columns, strict=True)
        }

    def write_result(self, result: dict[str, Any]) -> None:
        self._write(self.result, json.dumps(result, indent=2) + "\n")

    def read_result(self) -> dict[str, Any]:
        if not self.result.is_file():
            raise UserError(f"run: {self.path} has no result yet; finish it with: hyper-rl train --resume {self.path}")
        try:
            with naming(self.result, "read"):
                loaded: dict[str, Any] = json.loads(self.result.read_text())
        except ValueError as error:
            raise UserError(f"{self.result}: not readable ({error}); remove it and resume the run") from None
        return loaded

    def write_timing(self, timing: dict[str, Any]) -> None:
        self._write(self.timing, json.dumps(timing, indent=2) + "\n")

    def write_visits(self, visits: np.ndarray) -> None:
        lines = ["run,cell,visits"]
        lines += [f"{run},{cell},{count}" for run, row in enumerate(visits) for cell, count in enumerate(row)]
        self._write(self.visits, "\n".join(lines) + "\n")

    def read_visits(self) -> np.ndarray:
        """Visits as [run, cell]."""
        table = np.loadtxt(self.visits, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
        counts = np.zeros((table[:, 0].max() + 1, table[:, 1].max() + 1), np.int64)
        counts[table[:, 0], table[:, 1]] = table[:, 2]
        return counts

    def _write(self, path: Path, text: str) -> None:
        with naming(path, "written"):
            write_atomically(path, text)


def summarise_runs(config: Config, curve: dict[str, np.ndarray]) -> dict[str, Any]:
    """`result.json`: final performance of every run, from the curve."""
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
    # Failing to do what nobody looks for is no failure: then there is no rate, where the curve can only count to 0.
    met = (curve["success"] > 0).any() or (curve["goals"] > 0).any()
    if not met and not has_success(config.task, config.host):
        for entry in runs:
            entry |= {name: None for name in ("success", "behaviour_success", "goals")}
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


def write_atomically(path: Path, content: str | bytes) -> None:
    _write_beside(path, content).replace(path)
    flush(path.parent)


def _write_beside(path: Path, content: str | bytes) -> Path:
    temporary = path.with_name(f".{path.name}.writing")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        flush(temporary)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return temporary


@contextmanager
def naming(path: Path, done: str, field: str = "") -> Iterator[None]:
    """What the file system refuses, as one line: which file cannot be `done`, and why."""
    try:
        yield
    except OSError as error:
        prefix = f"{field}: {path} cannot" if field else f"{path}: cannot"
        raise UserError(f"{prefix} be {done} ({error.strerror or error})") from None


def _refuse_taken(path: Path) -> None:
    with naming(path, "looked into", field="out"):
        if not path.exists():
            return
        if not path.is_dir():
            raise UserError(f"out: {path} exists already and is a file, not a folder; choose another name")
        if any(inside.name not in NOT_YET_A_RUN for inside in path.iterdir()):
            raise UserError(
                f"out: {path} exists already; choose another folder, "
                f"or continue it with: hyper-rl train --resume {path}"
            )


def _take_lock(path: Path, notes: list[str]) -> int:
    """The open file that holds the lock."""
    while True:
        with naming(path.parent, "written to"):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                taken = file_lock.take(descriptor, wait=False)
            except OSError as error:  # on file systems without locks one process at a time is for the user to see to
                notes.append(f"{path} cannot be locked ({error.strerror}): let no other process train in this folder")
                taken = True
            if not taken:
                by = file_lock.holder(path)
                raise UserError(f"run: {path.parent} is being trained by {by}; wait for it, or stop it and resume")
            if file_lock.still_there(descriptor, path):
                with suppress(OSError):  # who holds it is told for people only
                    file_lock.sign(descriptor)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


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

"""What an evaluation measured, also for TensorBoard and Weights & Biases; `curve.csv` is written with or without them.

Every training run of a program becomes one run over there, named like `beta-1-seed-0`. A writer is handed the rows of
each evaluation in the order of their steps. A resumed training computes again, to the same numbers, what came after
its checkpoint, so a writer may meet a step twice. A training that is resumed with a writer it did not have before
gets its whole curve.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hyper_rl.errors import UserError, missing_extra, require_choice

if TYPE_CHECKING:
    from hyper_rl.config import Config

Row = Mapping[str, float]
WandbMode = Literal["online", "offline", "disabled"]

TAGS: Mapping[str, str] = MappingProxyType(
    {
        **{name: f"judged/{name}" for name in (
            "success", "return", "steps_to_goal", "discounted_return", "critic_estimate",
        )},
        "behaviour_success": "behaviour/success",
        "behaviour_return": "behaviour/return",
        **{name: f"behaviour/{name}" for name in (
            "reposition_success", "reposition_return", "explore_success", "explore_return",
            "episodes", "goals", "cells_visited", "mean_length", "p",
        )},
        "task_loss": "losses/task",
        "explorer_loss": "losses/explorer",
        "task_actor_loss": "losses/task_actor",
        "explorer_actor_loss": "losses/explorer_actor",
        "bonus_loss": "losses/bonus",
        "finite": "losses/finite",
        "bonus_mean": "bonus/mean",
        "bonus_scale": "bonus/scale",
        "task_share": "bonus/task_share",
    }
)  # fmt: skip
"""Where each column of the curve is shown."""
IDENTITY = ("step", "run", "beta", "seed")
"""Columns that say which row this is."""


class Writer(Protocol):
    def write(self, rows: Sequence[Row]) -> None:
        """The rows of one evaluation, as `hyper_rl.training.snapshot.rows` gives them."""
        ...

    def close(self) -> None: ...


def measured(row: Row) -> dict[str, float]:
    """Tags and values of what was measured: no NaN, and not the columns that name the row."""
    values = {name: float(value) for name, value in row.items() if name not in IDENTITY}
    return {TAGS.get(name, f"other/{name}"): value for name, value in values.items() if not math.isnan(value)}


def run_name(beta: float, seed: float) -> str:
    return f"beta-{repr(float(beta)).removesuffix('.0')}-seed-{int(seed)}"


class TensorBoardWriter:
    """One folder of event files per run. TensorBoard itself, which shows them, need not be installed."""

    def __init__(self, folder: Path) -> None:
        check_writers(["tensorboard"])
        self._folder = folder
        self._files: dict[str, Any] = {}

    def write(self, rows: Sequence[Row]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        for row in rows:
            step = int(row["step"])
            name = run_name(row["beta"], row["seed"])
            if name not in self._files:
                self._files[name] = self._open(self._folder / name, step)
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in measured(row).items()]
            self._files[name].write(
                Event(wall_time=time.time(), step=step, summary=Summary(value=values)).SerializeToString()
            )
            # Before the checkpoint that counts on it: a killed training then resumes without a gap.
            self._files[name].flush()

    def _open(self, folder: Path, step: int) -> Any:
        """A new event file. Where there are older ones, it takes back what they hold of `step` and later."""
        # The plain record file, not the package's SummaryWriter: that one keeps a thread and a pipe for every run, and
        # its flush does not wait for what is still in the pipe.
        from tensorboardX import RecordWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        older = len(list(folder.glob("events.out.tfevents.*")))
        # Readers take the files of a folder by name; the last number keeps two of one second in order and apart.
        file = RecordWriter(
            str(folder / f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{older:04d}")
        )
        file.write(Event(wall_time=time.time(), step=step, file_version="brain.Event:2").SerializeToString())
        if older:
            restart = SessionLog(status=SessionLog.START)
            file.write(Event(wall_time=time.time(), step=step, session_log=restart).SerializeToString())
        return file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


class WandbWriter:
    """One Weights & Biases run per training run, in one group.

    `mode` None leaves the choice to W&B's own settings (WANDB_MODE). What W&B keeps on disk goes to `folder`/wandb,
    with a small file beside it that tells a resumed training which runs to continue and up to which step they are
    complete. That is known only of a training that closed its writers: W&B's own process writes late, and what it had
    in hand when everything was killed is lost. So those steps are handed over once more; W&B's server leaves out what
    it has, and files written offline may hold a step twice, with the same numbers.
    """

    def __init__(self, project: str, config: Config, mode: WandbMode | None, *, folder: Path) -> None:
        check_writers(["wandb"])
        import wandb

        self._memory = folder / "wandb" / "hyper-rl.json"
        known = _read_memory(self._memory)
        self._ids: dict[str, str] = known["ids"]
        self._complete_to: int = known["complete_to"]
        self._last_step = self._complete_to
        self._runs: dict[str, Any] = {}
        settings = dataclasses.asdict(config)
        for name in ("betas", "seeds"):  # of the whole program; a run has one of each
            settings.pop(name)
        self._memory.parent.mkdir(parents=True, exist_ok=True)
        for number, (beta, seed) in enumerate(config.runs):
            name = run_name(beta, seed)
            try:
                self._runs[name] = wandb.init(
                    project=project,
                    dir=folder,
                    id=self._ids.setdefault(name, secrets.token_hex(4)),
                    name=name,
                    group=os.environ.get("WANDB_RUN_GROUP") or folder.resolve().name,
                    config={**settings, "beta": beta, "seed": seed},
                    mode=mode,
                    reinit="create_new",
                    resume="allow",
                    # The runs share a terminal, which is ours, and a machine, which need be watched only once.
                    settings=wandb.Settings(silent=True, console="off", x_disable_stats=number > 0),
                )
            except wandb.errors.Error as error:
                self.close()
                raise UserError(
                    f"wandb: cannot start ({' '.join(str(error).split())}); log in with `wandb login`, "
                    "or set WANDB_MODE=offline"
                ) from None
        self._remember()

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            step = int(row["step"])
            if step > self._complete_to:
                self._runs[run_name(row["beta"], row["seed"])].log(measured(row), step=step, commit=True)
                self._last_step = max(self._last_step, step)

    def close(self) -> None:
        for run in self._runs.values():
            run.finish()
        if self._runs:
            self._complete_to = self._last_step
            self._remember()
        self._runs.clear()

    def _remember(self) -> None:
        temporary = self._memory.with_name(f".{self._memory.name}.writing")
        temporary.write_text(json.dumps({"ids": self._ids, "complete_to": self._complete_to}, indent=2) + "\n")
        temporary.replace(self._memory)


def _read_memory(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {"ids": {}, "complete_to": -1}
    try:
        known = json.loads(path.read_text())
        return {"ids": dict(known["ids"]), "complete_to": int(known["complete_to"])}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not readable ({error}); remove it to start new W&B runs") from None


NAMES = ("tensorboard", "wandb")
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb"}


def check_writers(names: Sequence[str]) -> None:
    """Refuse an unknown writer and one whose package is missing, before anything is started."""
    for name in names:
        require_choice("log", name, NAMES)
        if importlib.util.find_spec(_PACKAGES[name]) is None:
            raise missing_extra(f"writing for {name}", name)


def open_writers(names: Sequence[str], folder: Path, config: Config) -> list[Writer]:
    """The writers called `names` for the run folder `folder`; all of them or, with an error, none."""
    check_writers(names)
    writers: list[Writer] = []
    before = _rows_of_curve(folder)
    if "tensorboard" in names:
        events = TensorBoardWriter(folder / "tensorboard")
        if not any((folder / "tensorboard").glob("*/events.out.tfevents.*")):
            events.write(before)
        writers.append(events)
    if "wandb" in names:
        project = os.environ.get("WANDB_PROJECT") or "hyper-rl"
        runs = WandbWriter(project, config, None, folder=folder)
        runs.write(before)
        writers.append(runs)
    return writers


def _rows_of_curve(folder: Path) -> list[Row]:
    """What a resumed training had measured up to its checkpoint."""
    from hyper_rl.training.run_folder import RunFolder

    run_folder = RunFolder(folder)
    if not run_folder.curve.is_file():
        return []
    columns = run_folder.read_curve()
    return [
        {name: float(value) for name, value in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]

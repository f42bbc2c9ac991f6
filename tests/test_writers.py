"""What TensorBoard and Weights & Biases would read, read back from the files."""

from __future__ import annotations

import importlib
import importlib.util
import math
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hyper_rl.config import Config
from hyper_rl.errors import UserError
from hyper_rl.report.writers import (
    IDENTITY,
    NAMES,
    TAGS,
    TensorBoardWriter,
    check_writers,
    measured,
    open_writers,
    run_name,
)
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.snapshot import COLUMNS

RUNS = ((0.005, 3), (10.0, 3))


def rows(step: int, shift: float = 0.0) -> list[dict[str, float]]:
    """One row per run, with a number of its own for every column, but for two that could not be measured."""
    table = []
    for run, (beta, seed) in enumerate(RUNS):
        row = {name: step / 1000 + run + shift + i / 100 for i, name in enumerate(COLUMNS)}
        row.update(step=step, run=run, beta=beta, seed=seed, steps_to_goal=math.nan, bonus_loss=math.nan)
        table.append(row)
    return table


def config() -> Config:
    return Config(
        task="Room", method="hyper", learner="tabular_q", bonus="counts", preset="paper",
        betas=tuple(beta for beta, _ in RUNS), seeds=(3,), steps=3000, schedule_steps=3000, warmup=0,
        eval_every=1000, eval_episodes=1, p_start=0.01, p_end=0.01, lengths="bounded",
        bonus_scale="none", reward_scale="none", capacity=1, learner_options={"step_size": 0.5},
    )  # fmt: skip


def test_every_column_of_the_curve_has_its_place_and_none_shares_it() -> None:
    assert set(TAGS) | set(IDENTITY) == set(COLUMNS)
    assert len(set(TAGS.values())) == len(TAGS)
    assert {tag.split("/")[0] for tag in TAGS.values()} == {"judged", "behaviour", "losses", "bonus"}


def test_what_was_not_measured_is_left_out_and_what_is_new_is_not() -> None:
    row = {"step": 5, "run": 0, "beta": 1.0, "seed": 2, "success": 0.5, "return": math.nan, "brand_new": 7.0}
    assert measured(row) == {"judged/success": 0.5, "other/brand_new": 7.0}


@pytest.mark.parametrize(
    ("beta", "name"),
    [(1.0, "beta-1-seed-3"), (0.005, "beta-0.005-seed-3"), (1e-6, "beta-1e-06-seed-3"), (0.0, "beta-0-seed-3")],
)
def test_a_run_is_named_by_beta_and_seed(beta: float, name: str) -> None:
    assert run_name(beta, 3) == name
    assert run_name(0.1234567, 0) != run_name(0.1234568, 0)


# TensorBoard


def events(path: Path) -> Iterator[Any]:
    """The records of an event file: length, its check sum, an `Event` message, its check sum."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8) == (masked_crc32c(data[at : at + 8]),)
        body = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length) == (masked_crc32c(body),)
        yield Event.FromString(body)
        at += 16 + length


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a folder: a session that starts at step n takes back n and everything after it."""
    from tensorboardX.proto.event_pb2 import SessionLog

    shown: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for number, event in enumerate(events(path)):
            if number == 0:
                assert event.file_version == "brain.Event:2"
            if event.session_log.status == SessionLog.START:
                shown = {tag: [point for point in line if point[0] < event.step] for tag, line in shown.items()}
            for value in event.summary.value:
                shown.setdefault(value.tag, []).append((event.step, value.simple_value))
    return shown


def scalars_by_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    reader = accumulator.EventAccumulator(str(folder))
    reader.Reload()
    return {tag: [(p.step, p.value) for p in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


NO_TENSORBOARD = pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs tensorboard itself")
READERS = pytest.mark.parametrize("read", [scalars, pytest.param(scalars_by_tensorboard, marks=NO_TENSORBOARD)])


@READERS
def test_tensorboard_reads_what_was_written(read: Any, tmp_path: Path) -> None:
    writer = TensorBoardWriter(tmp_path)
    tables = [rows(1000), rows(2000)]
    for table in tables:
        writer.write(table)
    # Before `close`: what was written is on the disk, whatever becomes of the process.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beta-0.005-seed-3", "beta-10-seed-3"]
    for run, (beta, seed) in enumerate(RUNS):
        shown = read(tmp_path / run_name(beta, seed))
        assert set(shown) == set(TAGS.values()) - {"judged/steps_to_goal", "losses/bonus"}
        for name, tag in TAGS.items():
            if tag in shown:
                assert shown[tag] == [(t[run]["step"], pytest.approx(t[run][name], rel=1e-6)) for t in tables]
    writer.close()


@READERS
def test_a_resumed_training_shows_no_step_twice_and_loses_none(read: Any, tmp_path: Path) -> None:
    killed = TensorBoardWriter(tmp_path)
    for step in (1000, 2000, 3000):
        killed.write(rows(step))
    resumed = TensorBoardWriter(tmp_path)  # from a checkpoint before step 2000, within the same second, nothing closed
    for step in (2000, 3000, 4000):
        resumed.write(rows(step, shift=0.5))
    again = TensorBoardWriter(tmp_path)
    again.write(rows(5000))
    for writer in (killed, resumed, again):
        writer.close()
    for beta, seed in RUNS:
        folder = tmp_path / run_name(beta, seed)
        assert len(list(folder.iterdir())) == 3
        line = read(folder)["judged/success"]
        assert [step for step, _ in line] == [1000, 2000, 3000, 4000, 5000]
        first = line[0][1]
        assert [value - first for _, value in line] == pytest.approx([0, 1.5, 2.5, 3.5, 4])


def test_a_writer_that_wrote_nothing_leaves_nothing(tmp_path: Path) -> None:
    TensorBoardWriter(tmp_path / "tensorboard").close()
    assert list(tmp_path.iterdir()) == []


# By name


def test_writers_are_opened_by_name(tmp_path: Path) -> None:
    assert open_writers([], tmp_path, config()) == []
    [writer] = open_writers(["tensorboard", "tensorboard"], tmp_path, config())
    writer.write(rows(1000))
    writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_a_writer_added_on_resume_gets_the_whole_curve(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.start_curve()
    for step in (1000, 2000):
        folder.append_curve(rows(step))
    [writer] = open_writers(["tensorboard"], tmp_path, config())
    writer.write(rows(3000))
    writer.close()
    for beta, seed in RUNS:
        shown = scalars(tmp_path / "tensorboard" / run_name(beta, seed))
        assert [step for step, _ in shown["judged/success"]] == [1000, 2000, 3000]
        assert "judged/steps_to_goal" not in shown


def test_an_unknown_writer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="log: unknown 'tensorbord'; did you mean tensorboard"):
        open_writers(["tensorboard", "tensorbord"], tmp_path, config())


@pytest.mark.parametrize(("package", "name"), [("tensorboardX", "tensorboard"), ("wandb", "wandb")])
def test_a_missing_package_is_named(package: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"writing for {name} needs .*pip install 'hyper-rl\[{name}\]'"):
        open_writers([name], tmp_path, config())
    check_writers([other for other in NAMES if other != name])
    assert list(tmp_path.iterdir()) == []

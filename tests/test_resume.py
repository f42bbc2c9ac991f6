"""A run that was stopped, killed or extended ends in the same bytes as one that never was."""

from __future__ import annotations

import dataclasses
import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.training.checkpoint import STATE_FILE, list_checkpoints
from hyper_rl.training.progress import Silent, show_progress
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.trainer import train
from kill_and_resume import differing, run_undisturbed, run_with_kills

pytestmark = pytest.mark.xdist_group("resume")  # one process, so that each program compiles once

SETTING = "Room --beta 0.005 1 --seeds 2 --steps 3000 --eval-every 1000 --p-start 0.5 --p-end 0.01"
ROOM = SETTING.split()
EVERY_CHUNK = ["--checkpoint-seconds", "1e-9"]


class StopsAt(Silent):
    """Sends this process a signal once training has come to step `at`, as Ctrl-C would."""

    def __init__(self, at: int, number: signal.Signals, times: int = 1) -> None:
        self.at, self.number, self.times = at, number, times

    def update(self, step: int, note: str) -> None:
        if step >= self.at:
            for _ in range(self.times):
                signal.raise_signal(self.number)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """From now on the command is stopped at a step; None: not any more."""

    def arrange(at: int | None, number: signal.Signals = signal.SIGINT, times: int = 1) -> None:
        @contextmanager
        def stopping(*args: object) -> Iterator[Silent]:
            assert at is not None
            yield StopsAt(at, number, times)

        monkeypatch.setattr("hyper_rl.cli.train.show_progress", show_progress if at is None else stopping)

    return arrange


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("room") / "undisturbed"
    assert main(["train", *ROOM, "--out", str(out)]) == 0
    return out


# Ctrl-C


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_says_how_to_go_on(
    number: signal.Signals,
    undisturbed: Path,
    tmp_path: Path,
    stop_at: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    stop_at(1200, number)
    assert main(["train", *ROOM, "--out", str(out)]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert f"hyper-rl train --resume {out}" in said.err and said.err.count("\n") == 1
    assert len(list_checkpoints(out / "checkpoint")) == 1
    assert not (out / "result.json").exists()
    stop_at(None)
    assert main(["train", "--resume", str(out)]) == 0
    assert "resuming" in capsys.readouterr().err
    assert differing(undisturbed, out) == []


def test_stopped_after_every_chunk_it_still_ends_in_the_same_bytes(
    undisturbed: Path, tmp_path: Path, stop_at: Callable[..., None]
) -> None:
    out = tmp_path / "run"
    stop_at(0)
    code = main(["train", *ROOM, "--out", str(out)])
    stops = 0
    while code == 130:
        stops += 1
        assert stops < 1000
        # A start begins with chunks of 16 steps, so stop only every hundred.
        stop_at(min(100 * stops, 3000))
        code = main(["train", "--resume", str(out)])
    assert code == 0 and stops >= 3
    assert differing(undisturbed, out) == []


def test_a_second_ctrl_c_stops_at_once(undisturbed: Path, tmp_path: Path) -> None:
    _, config = RunFolder.open(undisturbed)

    @contextmanager
    def impatient(first: int) -> Iterator[Silent]:
        yield StopsAt(0, signal.SIGINT, times=2)

    before = signal.getsignal(signal.SIGINT)  # ignored, where the tests themselves run in the background
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", open_progress=impatient)
    assert signal.getsignal(signal.SIGINT) is before, "the handler is put back"


# Damage in a real run folder


def test_a_damaged_checkpoint_costs_time_but_no_bit(
    undisturbed: Path, tmp_path: Path, stop_at: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stop_at(1200)
    assert main(["train", *ROOM, "--out", str(out), *EVERY_CHUNK]) == 130
    newest, before = list_checkpoints(out / "checkpoint")
    state = newest / STATE_FILE
    state.write_bytes(state.read_bytes()[:-1])
    stop_at(None)
    capsys.readouterr()
    assert main(["train", "--resume", str(out)]) == 0
    warning = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: refused"))
    assert str(state) in warning
    assert int(before.name.removeprefix("step-")) < int(newest.name.removeprefix("step-"))
    aside = f"checkpoint/damaged-{newest.name}"
    assert differing(undisturbed, out) == [f"{aside}/checkpoint.json", f"{aside}/{STATE_FILE}"]


def test_only_damaged_checkpoints_are_one_line_and_nothing_changes(
    tmp_path: Path, stop_at: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    stop_at(1200)
    assert main(["train", *ROOM, "--out", str(out)]) == 130
    state = list_checkpoints(out / "checkpoint")[0] / STATE_FILE
    state.write_bytes(b"")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    stop_at(None)
    capsys.readouterr()
    assert main(["train", "--resume", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(state) in said
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_killed_before_the_first_checkpoint_it_begins_anew(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "config.json").write_bytes((undisturbed / "config.json").read_bytes())
    (out / "curve.csv").write_text("step,ru")
    assert main(["train", "--resume", str(out)]) == 0
    assert differing(undisturbed, out) == []


def test_killed_between_the_last_checkpoint_and_the_result(
    undisturbed: Path, tmp_path: Path, stop_at: Callable[..., None]
) -> None:
    out = tmp_path / "run"
    stop_at(3000)
    assert main(["train", *ROOM, "--out", str(out)]) == 130
    stop_at(None)
    assert main(["train", "--resume", str(out)]) == 0
    assert differing(undisturbed, out) == []


# Finished and extended runs


def test_a_finished_run_is_left_alone(undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in undisturbed.rglob("*") if path.is_file()}
    assert main(["train", "--resume", str(undisturbed), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {**json.loads((undisturbed / "result.json").read_text()), "folder": str(undisturbed)}
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in undisturbed.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize("stopped", [False, True])
def test_an_extended_run_is_the_longer_run_on_the_first_schedule(
    stopped: bool, undisturbed: Path, tmp_path: Path, stop_at: Callable[..., None]
) -> None:
    """p has reached its end at the first budget and stays there."""
    out, reference = tmp_path / "run", tmp_path / "reference"
    _, config = RunFolder.open(undisturbed)
    train(dataclasses.replace(config, steps=5000), reference)
    stop_at(1200 if stopped else None)
    assert main(["train", *ROOM, "--out", str(out)]) == (130 if stopped else 0)
    stop_at(4200)
    assert main(["train", "--resume", str(out), "--extend-steps", "5000"]) == 130
    stop_at(None)
    assert main(["train", "--resume", str(out)]) == 0
    assert differing(reference, out) == []
    _, extended = RunFolder.open(out)
    assert (extended.steps, extended.schedule_steps) == (5000, 3000)
    curve = RunFolder(out).read_curve()
    late = curve["p"][curve["step"] >= 3000]
    np.testing.assert_allclose(late, 0.01, rtol=1e-6)
    assert curve["p"][curve["step"] == 1000][0] > 0.3
    assert curve["step"].max() == 5000 and json.loads((out / "result.json").read_text())["steps"] == 5000


# kill -9, in processes of its own


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Starts share compiled programs, which only saves time: `kill_and_resume.py` compiles anew at every start."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("Room --beta 0.005 1 --seeds 2 --steps 100000", id="tabular"),
        pytest.param(
            "MediumMaze-Easy --beta 0.1 1 --steps 3000 --warmup 200 --eval-every 500 --td3.widths 16 16 "
            "--td3.batch-size 16 --disagreement.widths 16 16",
            id="deep",
        ),
    ],
)
def test_killed_twice_at_random_moments_it_ends_in_the_same_bytes(
    words: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    reference = tmp_path / "undisturbed"
    run_undisturbed(words.split(), reference, environment)
    seed = random.randrange(2**32)
    draw = random.Random(seed)
    hits = 0
    for attempt, window in enumerate((2.0, 1.0, 0.5, 0.25)):  # seconds; shorter ones for faster machines
        out = tmp_path / f"killed-{attempt}"
        moments = run_with_kills(words.split(), out, window, 2 - hits, draw, environment)
        assert differing(reference, out) == [], f"kills at {moments}, seed of the moments {seed}"
        hits += len(moments)
        if hits == 2:
            return
    pytest.fail(f"training was over before {2 - hits} of two kills came")

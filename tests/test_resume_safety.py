"""A training that cannot begin changes nothing: no result lost, no folder left behind, nobody else's run touched."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import toy_envs
from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.errors import UserError
from hyper_rl.training import run_folder
from hyper_rl.training.checkpoint import STATE_FILE, list_checkpoints
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.snapshot import COLUMNS
from hyper_rl.training.trainer import resume, train
from kill_and_resume import differing
from test_wandb_writer import pretend_wandb

pytestmark = pytest.mark.xdist_group("resume-safety")  # one process, so that each program compiles once

STAIRS = "toy/Steps-v0 --env-module toy_envs --method exploit --horizon 12 --eval-every 40 --eval-episodes 2 --steps 80"
NOBODY = 65534


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Files with what is in them and when that was written; folders too."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) if path.is_file() else (b"", 0)
        for path in folder.rglob("*")
    }


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: content for name, (content, _) in contents(folder).items()}


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("safety") / "run"
    assert main(["train", *STAIRS.split(), "--out", str(out)]) == 0
    return out


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """A finished run of one's own."""
    return Path(shutil.copytree(finished_once, tmp_path / "run"))


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """The last line of a command that must fail."""

    def run(words: str) -> str:
        capsys.readouterr()
        assert main(words.split()) == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


def crash(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("the simulator is not there")


def other_start(self: Any, **kwargs: Any) -> Any:
    self._floor = 8
    return 8, {"cell": 3}


# A resume that fails leaves the folder as it was


def damage_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (list_checkpoints(folder / "checkpoint")[0] / STATE_FILE).write_bytes(b"")


def damage_curve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "curve.csv").write_text("step,run\n")


def remove_curve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "curve.csv").unlink()


def remove_checkpoints(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(folder / "checkpoint")


def rename_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a later version measured something more."""
    monkeypatch.setattr(run_folder, "COLUMNS", (*COLUMNS, "colour"))


def rename_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "config.json"
    file.write_text(file.read_text().replace('"toy_envs"', '"gone_envs"'))


def change_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_envs.Steps, "reset", other_start)


def crash_at_reset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_envs.Steps, "reset", crash)


def crash_at_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails between the first change of the folder and the first step that was trained."""
    monkeypatch.setattr("hyper_rl.training.host_loop.HostLoop.advance", crash)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damage_checkpoint, "no checkpoint can be used"),
        (damage_curve, "curve.csv"),
        (remove_curve, "curve.csv"),
        (rename_columns, "has other columns than this version writes (colour)"),
        (remove_checkpoints, "no checkpoint to go on from"),
        (rename_module, "cannot import 'gone_envs'"),
        (change_environment, "before the stop"),
        (crash_at_reset, "the simulator is not there"),
        (crash_at_step, "the simulator is not there"),
    ],
)
def test_an_extension_that_fails_changes_nothing(
    damage: Callable[[Path, pytest.MonkeyPatch], None], says: str, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(finished, monkeypatch)
    before = bytes_of(finished)
    with pytest.raises(Exception, match=re.escape(says)):
        resume(finished, extend_steps=120)
    assert bytes_of(finished) == before


def test_after_a_failed_extension_the_next_one_is_as_good_as_the_first(
    finished: Path, finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(finished)
    with monkeypatch.context() as changed:
        crash_at_reset(finished, changed)
        with pytest.raises(Exception, match="not there"):
            resume(finished, extend_steps=120)
    assert contents(finished) == before, "not even written again"
    other = Path(shutil.copytree(finished_once, tmp_path / "other"))
    resume(finished, extend_steps=120)
    resume(other, extend_steps=120)
    assert differing(finished, other) == [] and bytes_of(finished) != {name: b for name, (b, _) in before.items()}


def refuse_login(**options: Any) -> None:
    raise LookupError("No API key configured.")


@pytest.mark.parametrize("curve", [None, "step,ru"])
def test_a_writer_that_fails_on_a_resume_without_checkpoints_takes_nothing_with_it(
    curve: str | None, finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its first checkpoint, the folder holds little, but it was not made by this call."""
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(finished_once / "config.json", out)
    (out / "notes.txt").write_text("mine")
    if curve is not None:
        (out / "curve.csv").write_text(curve)
    before = contents(out)
    pretend_wandb(monkeypatch, refuse_login)
    assert main(["train", "--resume", str(out), "--log", "wandb"]) == 2
    assert contents(out).keys() == before.keys() and bytes_of(out) == {name: b for name, (b, _) in before.items()}


@pytest.mark.parametrize("steps", [None, 120])
def test_a_writer_that_fails_leaves_result_and_curve(
    steps: int | None, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if steps is None:  # stopped after its last checkpoint, in the middle of a row
        (finished / "result.json").unlink()
        with (finished / "curve.csv").open("a") as file:
            file.write("90,0,0.")
    before = bytes_of(finished)
    pretend_wandb(monkeypatch, refuse_login)
    words = ["--extend-steps", str(steps)] if steps else []
    assert main(["train", "--resume", str(finished), "--log", "tensorboard", "wandb", *words]) == 2
    assert bytes_of(finished) == before


def test_a_finished_run_without_checkpoints_still_has_its_result_and_cannot_be_extended(
    finished: Path, refused: Callable[[str], str]
) -> None:
    shutil.rmtree(finished / "checkpoint")
    before = contents(finished)
    line = refused(f"train --resume {finished} --extend-steps 120")
    assert str(finished / "checkpoint") in line and "into another folder" in line
    assert main(["train", "--resume", str(finished)]) == 0
    assert contents(finished) == before


# What a failed start leaves


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("log", ["", "--log wandb"])
def test_a_start_that_fails_leaves_the_name_free(
    there: bool, log: str, finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of this call goes again, an empty one that was there stays, as empty."""
    out = tmp_path / "new"
    if there:
        out.mkdir()
    words = ["train", *STAIRS.split(), "--out", str(out)]
    with monkeypatch.context() as changed:
        if log:
            pretend_wandb(changed, refuse_login)
        else:
            _, config = RunFolder.open(finished_once)
            changed.setattr(toy_envs.Steps, "reset", crash)
            with pytest.raises(Exception, match="not there"):
                train(config, out)
            assert out.exists() == there
        assert main([*words, *log.split()]) != 0
    assert out.exists() == there and (not there or list(out.iterdir()) == [])
    assert main(words) == 0
    assert differing(finished_once, out) == []


def test_what_others_put_into_the_folder_meanwhile_stays(
    finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new"

    def leave_a_log(*args: Any, **kwargs: Any) -> Any:
        (out / "simulator.log").write_text("no licence")
        crash()

    monkeypatch.setattr(toy_envs.Steps, "reset", leave_a_log)
    _, config = RunFolder.open(finished_once)
    with pytest.raises(Exception, match="not there"):
        train(config, out)
    assert bytes_of(out) == {"simulator.log": b"no licence"}


def test_a_file_where_the_folder_should_be_is_called_a_file(tmp_path: Path, refused: Callable[[str], str]) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    line = refused(f"train {STAIRS} --out {file}")
    assert f"out: {file} " in line and "is a file, not a folder" in line and "--resume" not in line
    assert file.read_text() == "mine"


# One process at a time


def test_a_second_process_is_refused(finished: Path, refused: Callable[[str], str]) -> None:
    (finished / "result.json").unlink()
    before = bytes_of(finished)
    with RunFolder(finished).lock():
        for more in ("", " --extend-steps 120"):
            line = refused(f"train --resume {finished}{more}")
            assert f"run: {finished} is being trained by process {os.getpid()} on " in line
        assert {name: b for name, b in bytes_of(finished).items() if name != ".lock"} == before
    assert bytes_of(finished) == before, "nothing stays of the lock"
    assert main(["train", "--resume", str(finished)]) == 0


def test_training_holds_the_lock_to_its_end(finished_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    _, config = RunFolder.open(finished_once)

    class Second:
        """Tries to train in the same folder, in the middle of the first training."""

        times = 0

        def say(self, line: str) -> None: ...

        def update(self, step: int, note: str) -> None:
            with pytest.raises(UserError, match="is being trained by"):
                resume(out)
            with pytest.raises(UserError, match="exists already"):
                train(config, out)
            self.times += 1

    second = Second()
    train(config, out, open_progress=lambda first: nullcontext(second))
    assert second.times >= 2
    assert differing(finished_once, out) == []


HOLDER = """
import sys, time
from pathlib import Path
from hyper_rl.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_process_holds_nothing(finished: Path, refused: Callable[[str], str]) -> None:
    (finished / "result.json").unlink()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(finished)], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
            assert f"being trained by process {holder.pid} on" in refused(f"train --resume {finished}")
        finally:
            holder.send_signal(signal.SIGKILL)
    assert (finished / ".lock").exists()
    assert main(["train", "--resume", str(finished)]) == 0
    assert not (finished / ".lock").exists()


def test_a_lock_that_is_left_hinders_neither_a_new_run_nor_a_finished_one(finished: Path, tmp_path: Path) -> None:
    _, config = RunFolder.open(finished)
    out = tmp_path / "killed at once"
    out.mkdir()
    for folder in (out, finished):
        (folder / ".lock").write_text("process 1 on mars\n")
    RunFolder.create(out, config)
    resume(finished)
    assert [path.name for path in out.iterdir()] == ["config.json"] and not (finished / ".lock").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="has no such lock")
def test_without_locks_there_is_a_warning(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    with RunFolder(finished).lock() as notes:
        assert notes == [
            f"{finished / '.lock'} cannot be locked (Function not implemented): "
            "let no other process train in this folder"
        ]


# What the file system refuses


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that everybody may look into: pytest's own are closed to the user that stands in for root."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    for folder in (path, *path.iterdir()):
        folder.chmod(0o755)
    shutil.rmtree(path)


@contextmanager
def without_privileges() -> Iterator[None]:
    """Root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_may_not_be_written_is_one_line(finished: Path, open_to_all: Path) -> None:
    empty, run = open_to_all / "empty", open_to_all / "run"
    empty.mkdir()
    shutil.copytree(finished, run)
    _, config = RunFolder.open(run)
    for folder in (empty, run, open_to_all):
        folder.chmod(0o555)
    before = contents(run)
    with without_privileges():
        with pytest.raises(UserError) as existing:
            RunFolder.create(empty, config)
        with pytest.raises(UserError) as new:
            RunFolder.create(open_to_all / "new", config)
        with pytest.raises(UserError) as extended:
            resume(run, extend_steps=120)
        assert resume(run)["steps"] == 80, "reading needs no permission to write"
    assert str(existing.value) == f"{empty}: cannot be written to (Permission denied)"
    assert str(new.value) == f"out: {open_to_all / 'new'} cannot be created (Permission denied)"
    assert str(extended.value) == f"{run}: cannot be written to (Permission denied)"
    assert contents(run) == before and list(empty.iterdir()) == []


def test_what_may_not_be_read_is_one_line(finished: Path, open_to_all: Path) -> None:
    _, config = RunFolder.open(finished)
    closed = open_to_all / "closed"
    closed.mkdir()
    closed.chmod(0o000)
    with without_privileges():
        with pytest.raises(UserError, match=rf"^out: {closed}/run cannot be looked into \(Permission denied\)$"):
            RunFolder.create(closed / "run", config)
        with pytest.raises(UserError, match=rf"^{closed}/run/config.json: cannot be read \(Permission denied\)$"):
            RunFolder.open(closed / "run")


def test_a_full_disk_costs_no_result(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        if path.name == ".config.json.writing":
            raise OSError(28, "No space left on device")

    before = bytes_of(finished)
    monkeypatch.setattr(run_folder, "flush", full)
    with pytest.raises(UserError, match=r"config\.json: cannot be written \(No space left on device\)"):
        resume(finished, extend_steps=120)
    assert bytes_of(finished) == before


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (lambda folder: folder.start_curve(), "curve.csv"),
        (lambda folder: folder.append_curve([]), "curve.csv"),
        (lambda folder: folder.write_result({}), "result.json"),
    ],
)
def test_a_file_that_cannot_be_written_is_named(write: Callable[[RunFolder], None], name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"{name}: cannot be written \(No such file or directory\)"):
        write(RunFolder(tmp_path / "gone"))


def test_a_new_folder_below_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be created \(Not a directory\)"):
        RunFolder.create(tmp_path / "file" / "run", resolve(parse(["Room"])))

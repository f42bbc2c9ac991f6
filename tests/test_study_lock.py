"""Several processes on one study folder: no group twice, nothing lost with a process that dies, the same bytes."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hyper_rl.errors import UserError
from hyper_rl.file_lock import holder
from hyper_rl.studies.group_lock import try_lock, wait_for_lock
from hyper_rl.studies.runner import StudyInterrupted, run_study
from hyper_rl.studies.study_folder import StudyFolder, finish_study, open_study, shared_files
from hyper_rl.studies.study_progress import last_step
from kill_and_resume import SHARED_PROGRAMS, differing
from test_study_runner import NAMES, STUDY, TEXT

pytestmark = pytest.mark.xdist_group("study")  # one process, so that each program compiles once

PATIENCE_SECONDS = 120.0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lock") / "out"
    run_study(STUDY, "paper", out, stream=io.StringIO())
    return out


def wait_until(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    begun = time.monotonic()
    while not what():
        assert process.poll() is None and time.monotonic() - begun < PATIENCE_SECONDS
        time.sleep(0.005)


def start(scratch: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "hyper_rl.cli.main", "study", str(scratch / "small.toml")]
    command += ["--out", str(scratch / "out"), "--checkpoint-seconds", "1e-9", "--no-figures", "--json"]
    environment = {**os.environ, **SHARED_PROGRAMS, "JAX_COMPILATION_CACHE_DIR": str(scratch / "cache")}
    with (scratch / f"{name}.out").open("wb") as said, (scratch / f"{name}.err").open("wb") as shown:
        return subprocess.Popen(command, stdout=said, stderr=shown, env=environment)


def in_progress(out: Path) -> str | None:
    """A group that some process holds and has a checkpoint of."""
    folder = StudyFolder(out)
    for name in NAMES:
        if any(folder.group(name).checkpoints.glob("step-*")) and not folder.group(name).result.exists():
            with try_lock(folder.group_lock(name)) as free:
                if not free:
                    return name
    return None


def test_processes_share_a_study_and_take_over_from_one_that_was_killed(undisturbed: Path, tmp_path: Path) -> None:
    """The first is frozen while it holds a group: two others do the rest, wait for it, and one goes on with it."""
    (tmp_path / "small.toml").write_text(TEXT)
    groups = tmp_path / "out" / "groups"
    frozen = start(tmp_path, "frozen")
    others: list[subprocess.Popen[bytes]] = []
    try:
        held = None
        while held is None:
            wait_until(lambda: in_progress(tmp_path / "out") is not None, frozen)
            os.kill(frozen.pid, signal.SIGSTOP)
            held = in_progress(tmp_path / "out")
            if held is None:  # it was just done with it
                os.kill(frozen.pid, signal.SIGCONT)
        done = {path.parent.name for path in groups.glob("*/result.json")}
        others = [start(tmp_path, "one"), start(tmp_path, "two")]
        for name, process in zip(("one", "two"), others, strict=True):
            log, line = tmp_path / f"{name}.err", f"{held}: waiting for it: process {frozen.pid} on "
            wait_until(lambda log=log, line=line: line in log.read_text(), process)  # type: ignore[misc]
        assert {path.parent.name for path in groups.glob("*/result.json")} == set(NAMES) - {held}
        os.kill(frozen.pid, signal.SIGKILL)
        assert [process.wait(PATIENCE_SECONDS) for process in others] == [0, 0]
    finally:
        for process in (frozen, *others):
            process.kill()
            process.wait()
    computed = [
        name for who in ("one", "two") for name in json.loads((tmp_path / f"{who}.out").read_text())["groups_computed"]
    ]
    assert sorted(computed) == sorted(set(NAMES) - done), "every group once"
    assert any(f"resuming {groups / held}" in (tmp_path / f"{who}.err").read_text() for who in ("one", "two"))
    assert differing(undisturbed, tmp_path / "out") == []
    assert not (tmp_path / "out" / "locks").exists()


def test_a_lock_is_one_process_s_and_goes_with_it(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one.lock"
    with try_lock(path) as mine, try_lock(path) as theirs:
        assert mine and not theirs
        assert holder(path).startswith(f"process {os.getpid()} on ")
        path.unlink()  # by whoever finished the study: what is made anew is another lock
        with try_lock(path) as new:
            assert new
    with try_lock(path) as again:
        assert again
    with ThreadPoolExecutor(8) as pool:
        counted: list[int] = []

        def count(number: int) -> None:
            with wait_for_lock(path):
                seen = len(counted)
                time.sleep(0.001)
                assert len(counted) == seen, "two were in here"
                counted.append(number)
                path.unlink()

        list(pool.map(count, range(24)))
    assert len(counted) == 24
    assert holder(path) == "another process"


def test_a_folder_without_locks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("hyper_rl.file_lock.fcntl.flock", refuse)
    with pytest.raises(UserError, match=r"one.lock cannot be locked \(Operation not supported\); put the study on"):
        try_lock(tmp_path / "one.lock").__enter__()


def test_a_study_begun_by_many_at_once_is_begun_once(tmp_path: Path) -> None:
    for turn in range(3):
        out = tmp_path / str(turn)
        with ThreadPoolExecutor(6) as pool:
            opened = list(pool.map(lambda _, out=out: open_study(STUDY, "paper", out), range(6)))
        assert sorted(begun for _, _, begun in opened) == [False] + 5 * [True]
        assert all(groups == opened[0][1] for _, groups, _ in opened)
        assert sorted(path.name for path in out.iterdir()) == ["study.json", "study.toml"]


def test_a_study_finished_by_many_at_once_has_one_table(undisturbed: Path) -> None:
    folder, groups, _ = open_study(STUDY, "paper", undisturbed)
    before = (undisturbed / "results.csv").read_bytes()
    (undisturbed / "results.csv").unlink()
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: finish_study(folder, groups), range(6)))
    assert (undisturbed / "results.csv").read_bytes() == before and not folder.locks.exists()


def test_locks_that_a_kill_left_are_cleared_away(undisturbed: Path) -> None:
    """Killed after its last group and before its end."""
    folder = StudyFolder(undisturbed)
    folder.locks.mkdir()
    folder.group_lock(NAMES[0]).write_text("process 1 on a machine long gone\n")
    assert run_study(STUDY, "paper", undisturbed, stream=io.StringIO()).computed == ()
    assert not folder.locks.exists()


def test_ctrl_c_while_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, said = tmp_path / "out", io.StringIO()
    folder, _, _ = open_study(STUDY, "paper", out)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hyper_rl.studies.runner.time.sleep", interrupt)
    with (
        try_lock(folder.group_lock(NAMES[0])),
        try_lock(folder.group_lock(NAMES[1])),
        try_lock(folder.group_lock(NAMES[2])),
        pytest.raises(StudyInterrupted, match=r"0 of 3 groups done; continue with: hyper-rl study small\.toml"),
    ):
        run_study(STUDY, "paper", out, stream=said)
    assert f"group 2/3 {NAMES[1]}: waiting for it: process {os.getpid()} on " in said.getvalue()


def test_how_far_others_are_and_on_what_stands_in_the_folder(undisturbed: Path, tmp_path: Path) -> None:
    folder = StudyFolder(undisturbed).group(NAMES[0])
    assert last_step(folder, 2000) == 2000
    assert json.loads(folder.timing.read_text())["devices"] == {"platform": "cpu", "kind": "cpu", "count": 1}
    half = StudyFolder(tmp_path).group(NAMES[0])
    assert last_step(half, 2000) == 0
    half.path.mkdir(parents=True)
    lines = folder.curve.read_bytes().splitlines(keepends=True)
    for rows, step in ((1, 0), (5, 500), (9, 1000), (17, 1999)):  # four runs to an evaluation
        half.curve.write_bytes(b"".join(lines[:rows]))
        assert last_step(half, 2000) == step
    half.curve.write_bytes(b"".join(lines[:5]) + b"1000,0,0.00")  # being written
    assert last_step(half, 2000) == 500


def test_a_file_where_the_locks_belong_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("mine")
    with pytest.raises(UserError, match="locks is in the way"), try_lock(tmp_path / "locks" / "group"):
        pass
    assert (tmp_path / "locks").read_text() == "mine"


def test_a_link_to_nothing_where_the_locks_belong_is_named(tmp_path: Path) -> None:
    (tmp_path / "locks").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="locks is in the way"), try_lock(tmp_path / "locks" / "group"):
        pass


def test_a_folder_of_locks_that_vanishes_at_any_moment_is_made_again(tmp_path: Path) -> None:
    """Whoever lets go last removes it, while others are between any two looks at it."""
    folder = StudyFolder(tmp_path)

    def take_and_clear(_: int) -> None:
        with shared_files(folder):
            pass

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(take_and_clear, range(2000)))) == 2000
    assert not folder.locks.exists()

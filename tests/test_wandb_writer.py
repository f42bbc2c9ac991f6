"""What Weights & Biases is told, read back from its offline files."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import hyper_rl
from hyper_rl.errors import UserError
from hyper_rl.report.writers import WandbWriter, measured, open_writers, run_name
from hyper_rl.training.run_folder import RunFolder
from test_writers import RUNS, config, rows

OFFLINE = """
import json, sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
import test_wandb_writer as t
from hyper_rl.report.writers import open_writers
folder = Path(sys.argv[1])
for steps in ((1000, 2000), (2000, 3000)):  # the second training resumes from before step 2000
    [writer] = open_writers(["wandb"], folder, t.config())
    for step in steps:
        writer.write(t.rows(step))
    writer.close()
files = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
Path(sys.argv[2]).write_text(json.dumps([t.wandb_told(path) for path in files]))
"""


def wandb_told(path: Path) -> dict[str, Any]:
    """What an offline file holds: a short head, then a log of messages cut at blocks of 32 KiB.

    Called in a process of its own, as W&B is: importing it changes the standard output for good.
    """
    messages: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    data, at, joined = path.read_bytes(), 7, b""
    told: dict[str, Any] = {"history": []}
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        joined += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind not in (1, 4):  # neither a whole message nor the last part of one
            continue
        record, joined = messages.Record.FromString(joined), b""
        if record.HasField("run"):
            run = record.run
            told["run"] = [run.run_id, run.display_name, run.run_group, run.project]
            told["config"] = {item.key: json.loads(item.value_json) for item in run.config.update}
        if record.HasField("history"):
            told["history"].append({i.nested_key[0]: json.loads(i.value_json) for i in record.history.item})
    return told


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb")
def test_wandb_offline_writes_each_run_once_and_only_where_it_was_told(tmp_path: Path) -> None:
    home, temporary, folder, read = (tmp_path / name for name in ("home", "tmp", "Room-hyper", "read.json"))
    for path in (home, temporary, folder):
        path.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    told = {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "HOME": str(home), "TMPDIR": str(temporary)}
    sources = [str(Path(__file__).parent), str(Path(hyper_rl.__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OFFLINE, str(folder), str(read), *sources],
        env={**kept, **told}, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", ""), "the terminal is the training's own"
    assert {path.name for path in tmp_path.iterdir()} == {"home", "tmp", "Room-hyper", "read.json"}

    ids = json.loads((folder / "wandb" / "hyper-rl.json").read_text())["ids"]
    files = json.loads(read.read_text())
    assert len(files) == 2 * len(RUNS)  # both trainings of each
    for run, (beta, seed) in enumerate(RUNS):
        name = run_name(beta, seed)
        mine = [file for file in files if file["run"] == [ids[name], name, "Room-hyper", "hyper-rl"]]
        assert {(file["config"]["beta"], file["config"]["seed"], file["config"]["task"]) for file in mine} == {
            (beta, seed, "Room")
        }
        lines = sorted((line for file in mine for line in file["history"]), key=lambda line: int(line["_step"]))
        assert [line["_step"] for line in lines] == [1000, 2000, 3000]
        for line in lines:
            expected = measured(rows(line["_step"])[run])
            assert {key: line[key] for key in line if not key.startswith("_")} == pytest.approx(expected)


def pretend_wandb(monkeypatch: pytest.MonkeyPatch, init: Callable[..., Any]) -> None:
    """A module `wandb` that only starts runs."""
    module: Any = ModuleType("wandb")
    module.__spec__ = ModuleSpec("wandb", None)
    module.init, module.Settings = init, lambda **settings: settings
    module.errors = SimpleNamespace(Error=LookupError)
    monkeypatch.setitem(sys.modules, "wandb", module)


def test_wandb_without_a_login_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> None:
        raise LookupError("No API key configured.\nUse `wandb login` to log in.")

    pretend_wandb(monkeypatch, refuse)
    with pytest.raises(UserError, match=r"^wandb: cannot start \(No API key configured\. Use .*WANDB_MODE=offline$"):
        WandbWriter("project", config(), "online", folder=tmp_path)


class Recorded:
    """Stands in for a W&B run: what was logged to it, and whether it was finished."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.finished = False

    def log(self, values: dict[str, float], step: int, commit: bool) -> None:
        assert values and commit
        self.steps.append(step)

    def finish(self) -> None:
        self.finished = True


def test_a_killed_training_hands_over_again_what_wandb_may_have_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, Recorded]] = []

    def start(**options: Any) -> Recorded:
        started.append((options["id"], Recorded()))
        return started[-1][1]

    pretend_wandb(monkeypatch, start)
    folder = RunFolder(tmp_path)
    folder.start_curve()

    def session(steps: tuple[int, ...], close: bool) -> list[int]:
        """The steps that reached the first run."""
        [writer] = open_writers(["wandb"], tmp_path, config())
        for step in steps:
            folder.append_curve(rows(step))
            writer.write(rows(step))
        if close:
            writer.close()
        assert started[-1][1].finished == close
        assert started[-1][1].steps == started[-2][1].steps
        return started[-2][1].steps

    assert session((1000, 2000), close=True) == [1000, 2000]
    assert session((3000, 4000), close=False) == [3000, 4000]
    assert session((5000,), close=True) == [3000, 4000, 5000]
    assert session((6000,), close=True) == [6000]
    assert len({name for name, _ in started}) == len(RUNS)  # the same two W&B runs all along


def test_a_broken_note_about_earlier_wandb_runs_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_wandb(monkeypatch, Recorded)
    note = tmp_path / "wandb" / "hyper-rl.json"
    note.parent.mkdir()
    note.write_text('{"ids": {}')
    with pytest.raises(UserError, match=r"hyper-rl\.json: not readable"):
        WandbWriter("project", config(), "offline", folder=tmp_path)

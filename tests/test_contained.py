"""Decouple contains Curiosity: what a training of the one writes for the other is what the other would have written."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import Config
from hyper_rl.envs.host_env import TaskFailure
from hyper_rl.errors import UserError
from hyper_rl.methods.policies import Role
from hyper_rl.training.checkpoint import _body_sha256
from hyper_rl.training.contained import is_contained
from hyper_rl.training.evaluation import Judgement
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.progress import Silent
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.snapshot import COLUMNS
from hyper_rl.training.trainer import Interrupted, Saving, resume, train
from kill_and_resume import differing, results_of

pytestmark = pytest.mark.xdist_group("contained")  # one process, so that each program compiles once

ROOM = "Room --preset paper --beta 0.005 1 --seeds 2 --steps 3000 --eval-every 500 --eval-episodes 3"
SMALL = "--td3.widths 32 32 --td3.batch-size 32 --disagreement.widths 32 32"
DEEP = f"MediumMaze-Easy --preset robust --beta 0.1 10 --seeds 2 --steps 350 --warmup 50 --eval-every 100 {SMALL}"
ON_HOST = f"Pendulum-v1 --preset robust --beta 1 --steps 350 --warmup 50 --eval-every 100 --eval-episodes 2 {SMALL}"


def config_of(words: str, method: str) -> Config:
    return resolve(parse([*words.split(), "--method", method]))


def train_both(words: str, out: Path, **how: Any) -> RunFolder:
    """Decouple with Curiosity inside."""
    train(config_of(words, "decouple"), out, contained=config_of(words, "curiosity"), **how)
    return RunFolder(out)


def stop_at(step: int) -> Callable[[int], Any]:
    class Stops(Silent):
        def update(self, at: int, note: str) -> None:
            if at >= step:
                signal.raise_signal(signal.SIGINT)

    @contextmanager
    def stopping(first: int) -> Iterator[Silent]:
        yield Stops()

    return stopping


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Curiosity and Decouple in the room, each trained by itself."""
    out = tmp_path_factory.mktemp("alone")
    for method in ("curiosity", "decouple"):
        train(config_of(ROOM, method), out / method)
    return out


def test_with_tables_every_byte_is_the_same(alone: Path, tmp_path: Path) -> None:
    both = train_both(ROOM, tmp_path / "both")
    assert differing(alone / "curiosity", both.contained) == []
    (meta,) = both.checkpoints.glob("*/checkpoint.json")
    differs = [name for name in differing(alone / "decouple", both.path) if not name.startswith("contained-curiosity/")]
    assert differs == [str(meta.relative_to(both.path))], "which knows of the other curve; all else is as without"
    assert RunFolder(both.contained).read_result()["runs"][0]["success"] is not None
    timing = json.loads((both.contained / "timing.json").read_text())
    assert timing["computed_with"] == "decouple" and "seconds" not in timing and timing["devices"]["platform"] == "cpu"


@pytest.mark.parametrize(
    "words", [pytest.param(DEEP, id="compiled"), pytest.param(ON_HOST, id="gymnasium", marks=pytest.mark.long)]
)
def test_with_networks_it_is_the_same_to_rounding(words: str, tmp_path: Path) -> None:
    with jax.enable_x64(True):
        both = train_both(words, tmp_path / "both")
        train(config_of(words, "curiosity"), tmp_path / "alone")
    mine, theirs = RunFolder(both.contained).read_curve(), RunFolder(tmp_path / "alone").read_curve()
    assert list(mine) == list(COLUMNS)
    for name in COLUMNS:
        np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-12, err_msg=name)
    assert np.isfinite(mine["explorer_loss"][-1]) and np.isnan(mine["task_loss"]).all()
    outer = both.read_curve()
    assert not np.allclose(outer["critic_estimate"], mine["critic_estimate"]), "two policies, not one twice"


def test_a_stop_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = train_both(ROOM, tmp_path / "undisturbed")
    for step in (700, 2999):
        out = tmp_path / str(step)
        with pytest.raises(Interrupted):
            train_both(ROOM, out, open_progress=stop_at(step))
        inner = RunFolder(RunFolder(out).contained)
        assert not inner.result.exists()
        monkeypatch.chdir(inner.path)
        for path in (inner.path, Path(".")):
            with pytest.raises(UserError, match=rf"computed with the run around it; .*--resume {out}$"):
                resume(path)
        inner.append_curve([dict.fromkeys(COLUMNS, 0.0)])  # as if killed after a later evaluation
        resume(out)
        assert differing(undisturbed.path, out) == []


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    undisturbed = train_both(ROOM, tmp_path / "undisturbed")
    out = tmp_path / "out"
    contained = config_of(ROOM, "curiosity")
    RunFolder.create(out, config_of(ROOM, "decouple"))
    resume(out, contained=contained)
    assert differing(undisturbed.path, out) == []


class Hears(Silent):
    def __init__(self) -> None:
        self.said = list[str]()

    def say(self, line: str) -> None:
        self.said.append(line)


def hear_resume(out: Path, **how: Any) -> list[str]:
    hears = Hears()
    resume(out, open_progress=lambda first: nullcontext(hears), **how)
    return hears.said


def test_what_happens_to_its_curve_does_not_hold_up_the_other(alone: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        train_both(ROOM, out, open_progress=stop_at(1600), saving=Saving(every_seconds=1e-9))
    inner = RunFolder(RunFolder(out).contained)
    inner.curve.write_text(inner.curve.read_text().replace("0.005", "0.006"))
    altered = inner.curve.read_bytes()
    said = hear_resume(out)
    assert any("altered before step 2000; the run goes on without it" in line for line in said), said
    assert inner.curve.read_bytes() == altered and not inner.result.exists()
    differs = [name for name in differing(alone / "decouple", out) if not name.startswith("contained-curiosity/")]
    assert differs == []
    resume(inner.path)  # there is nothing around it to wait for any more
    assert differing(alone / "curiosity", inner.path) == []


def test_a_longer_training_says_that_it_leaves_it_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        train_both(ROOM, out, open_progress=stop_at(1600))
    inner = RunFolder(RunFolder(out).contained)
    before = results_of(inner.path)
    said = hear_resume(out, extend_steps=4000)
    assert any("contained in a training of other settings; the run goes on without it" in line for line in said), said
    assert results_of(inner.path) == before


def test_only_what_is_contained_is_begun(tmp_path: Path) -> None:
    other = config_of(ROOM.replace("3000", "2000"), "curiosity")
    with pytest.raises(UserError, match=r"contained: got 'curiosity', must be what training the other trains too"):
        train(config_of(ROOM, "decouple"), tmp_path / "out", contained=other)
    assert not (tmp_path / "out").exists()


def test_each_goes_on_for_more_steps_by_itself(alone: Path, tmp_path: Path) -> None:
    both = train_both(ROOM, tmp_path / "both")
    for method, path in (("decouple", both.path), ("curiosity", both.contained)):
        (tmp_path / "alone").mkdir(exist_ok=True)
        shutil.copytree(alone / method, tmp_path / "alone" / method)
        resume(tmp_path / "alone" / method, extend_steps=4000)
        before = results_of(both.contained)
        resume(path, extend_steps=4000)
        differs = [name for name in differing(tmp_path / "alone" / method, path) if "contained-curiosity/" not in name]
        assert differs == []
        assert (results_of(both.contained) == before) == (method == "decouple")


def moments_of(folder: Path) -> dict[Path, int]:
    """When each file was written: the same runs again would have the same bytes."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_folder_of_the_users_own_inside_is_left_alone(tmp_path: Path) -> None:
    other, same = ROOM.replace("3000", "1000"), ROOM
    for number, (method, words) in enumerate(
        (("hyper", same), ("decouple", other), ("exploit", same), ("decouple", same))
    ):
        out = tmp_path / str(number)
        RunFolder.create(out, config_of(words, method))  # as if killed before its first checkpoint
        train(config_of(same, "curiosity"), RunFolder(out).contained)
        before = moments_of(RunFolder(out).contained)
        contained = config_of(words, "curiosity") if method == "decouple" else None
        resume(out, contained=contained)
        assert moments_of(RunFolder(out).contained) == before


def test_a_checkpoint_that_knows_nothing_of_it_goes_on_without(tmp_path: Path) -> None:
    """As an earlier version writes them, which takes no notice of the folder inside."""
    out = tmp_path / "out"
    with pytest.raises(Interrupted):
        train_both(ROOM, out, open_progress=stop_at(1600))
    (path,) = out.glob("checkpoint/*/checkpoint.json")
    body = json.loads(path.read_text())["body"]
    known = {name: value for name, value in body.items() if not name.startswith("contained_")}
    path.write_text(json.dumps({"body": known, "sha256": _body_sha256(known)}))

    said = hear_resume(out)
    assert any("contained-curiosity stays as it is, for the run went on without it since" in line for line in said)
    assert RunFolder(out).result.is_file() and not RunFolder(RunFolder(out).contained).result.exists()


@pytest.mark.long
def test_an_explorer_that_cannot_be_judged_is_judged_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = train_both(ON_HOST, tmp_path / "undisturbed")
    judge, out = HostLoop.judge, tmp_path / "out"

    def fails(self: HostLoop, index: int, episodes: int, role: Role | None = None) -> Judgement:
        if role == "explorer" and index == 1:
            raise TaskFailure("Pendulum-v1", "broken")
        return judge(self, index, episodes, role)

    with monkeypatch.context() as patched:
        patched.setattr(HostLoop, "judge", fails)
        with pytest.raises(TaskFailure, match="saved as of step 200"):
            train_both(ON_HOST, out)
    resume(out)
    assert differing(undisturbed.path, out) == []


def test_a_training_that_cannot_begin_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise TaskFailure("Room", "broken")

    monkeypatch.setattr("hyper_rl.training.device_loop.DeviceLoop.advance", fails)
    with pytest.raises(TaskFailure):
        train_both(ROOM, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_contains_what() -> None:
    outer, inner = config_of(ROOM, "decouple"), config_of(ROOM, "curiosity")
    assert is_contained(inner, outer) and not is_contained(outer, inner) and not is_contained(outer, outer)
    assert not is_contained(inner, config_of(ROOM, "hyper"))
    assert is_contained(dataclasses.replace(inner, p_start=0.5, lengths="plain"), outer), "it repositions nobody"
    for change in ({"seeds": (0,)}, {"steps": 10}, {"betas": (1.0,)}, {"capacity": 7}, {"preset": "robust"}):
        assert not is_contained(dataclasses.replace(inner, **change), outer), change

"""Decouple contains Curiosity: what a training of the one writes for the other is what the other would have written."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import Config, build_program, first_run
from hyper_rl.envs.host_env import TaskFailure
from hyper_rl.errors import UserError
from hyper_rl.methods.policies import Role
from hyper_rl.studies.layout import divide
from hyper_rl.studies.plan import plan_study
from hyper_rl.studies.ray_runner import Tasks
from hyper_rl.studies.ray_worker import Answer, Job, compute_group
from hyper_rl.studies.runner import StudyInterrupted, run_study, with_outer
from hyper_rl.studies.study_file import StudyFile, parse_study
from hyper_rl.studies.study_folder import StudyFolder, contained_in, open_study, waits_for
from hyper_rl.studies.study_progress import StudyProgress
from hyper_rl.training.checkpoint import _body_sha256
from hyper_rl.training.contained import is_contained
from hyper_rl.training.evaluation import Judgement
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.memory import HEADROOM, estimate
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


def test_a_folder_of_the_users_own_inside_is_left_alone(tmp_path: Path) -> None:
    other, same = ROOM.replace("3000", "1000"), ROOM
    for method, words in (("hyper", same), ("decouple", other), ("exploit", same)):
        out = tmp_path / method
        RunFolder.create(out, config_of(words, method))  # as if killed before its first checkpoint
        train(config_of(same, "curiosity"), RunFolder(out).contained)
        before = results_of(RunFolder(out).contained)
        contained = config_of(words, "curiosity") if method == "decouple" else None
        resume(out, contained=contained)
        assert results_of(RunFolder(out).contained) == before


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


# In studies

TEXT = """
title = "a small room"
task = "Room"
preset = "paper"
betas = [0.005, 1.0]
seeds = 2
steps = 2000
eval_every = 500
eval_episodes = 3
env = { size = 8, subgoal = [5, 5] }

[[group]]
methods = ["curiosity", "decouple", "exploit"]

[[group]]
method = "curiosity"
warmup = 100
"""
INNER, OUTER = "Room-curiosity-warmup-0", "Room-decouple-warmup-0"
STUDY = parse_study(TEXT, "small", "small.toml")


def run(out: Path, study: StudyFile = STUDY, **how: Any) -> tuple[str, ...]:
    return run_study(study, "paper", out, stream=io.StringIO(), **how).computed


def separately(out: Path) -> Path:
    """The study as it was begun before groups were computed together."""
    open_study(STUDY, "paper", out)
    folder = StudyFolder(out)
    about = folder.read()
    for group in about["groups"]:
        group.pop("within", None)
    folder.json.write_text(json.dumps(about, indent=2) + "\n")
    return out


@pytest.fixture(scope="module")
def in_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    assert run(out) == (OUTER, "Room-exploit-warmup-0", "Room-curiosity-warmup-100", INNER)
    return out


def test_a_plan_says_what_is_computed_with_what(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    inner, outer, exploit, other = plan_study(STUDY, "paper")
    assert (inner.name, inner.within) == (INNER, OUTER)
    assert outer.within is exploit.within is other.within is None
    (tmp_path / "small.toml").write_text(TEXT)
    assert main(["study", str(tmp_path / "small.toml"), "--plan"]) == 0
    said = capsys.readouterr().out
    assert f"{INNER}: 2 betas x 2 seeds x 2,000 steps, computed with {OUTER}\n" in said
    assert "4 groups, 16 runs, 24,000 run-steps" in said
    assert main(["study", str(tmp_path / "small.toml"), "--plan", "--only", INNER, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["run_steps"] == 8000 and [group["within"] for group in plan["groups"]] == [OUTER, None]


def test_a_study_comes_to_the_same_either_way(in_one: Path, tmp_path: Path) -> None:
    out = separately(tmp_path / "out")
    assert run(out)[0] == INNER
    names = [name for name in differing(out, in_one) if name != "study.json"]
    assert names == [f"groups/{OUTER}/checkpoint/step-000000002000/checkpoint.json"]
    assert json.loads((in_one / "study.json").read_text())["groups"][0]["within"] == OUTER
    assert not StudyFolder(in_one).group(OUTER).contained.exists() and not (in_one / "locks").exists()
    assert run(in_one) == ()


def test_what_is_asked_for_alone_brings_the_other_along(in_one: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(out, only=(INNER,)) == (OUTER, INNER)
    for name in (INNER, OUTER):
        assert differing(in_one / "groups" / name, out / "groups" / name) == []
    assert run(tmp_path / "other", only=(OUTER,)) == (OUTER,), "and not the other way round"
    assert run(tmp_path / "other", only=("*curiosity*",)) == (INNER, "Room-curiosity-warmup-100")


def test_a_study_that_was_stopped_has_both(in_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr("hyper_rl.studies.runner.show_progress", lambda *_: stop_at(5000)(0))
        with pytest.raises(StudyInterrupted, match="0 of 4 groups done"):
            run(out)
    run(out)
    assert differing(in_one, out) == []


def test_killed_before_it_was_taken_out(in_one: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(in_one, out)
    (out / "groups" / INNER).rename(StudyFolder(out).group(OUTER).contained)
    (out / "results.csv").unlink()
    assert run(out) == (INNER,)
    assert differing(in_one, out) == []


def test_without_it_the_group_is_trained_itself(in_one: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(in_one, out)
    shutil.rmtree(out / "groups" / INNER)
    assert run(out) == (INNER,)
    assert differing(in_one / "groups" / INNER, out / "groups" / INNER) == []


def test_taken_out_of_a_folder_on_another_disk(in_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename = tmp_path / "out", Path.rename
    shutil.copytree(in_one, out)
    contained = StudyFolder(out).group(OUTER).contained
    (out / "groups" / INNER).rename(contained)
    (out / "groups" / f"{INNER}.copying").mkdir()  # by one that was killed

    def other_disk(path: Path, to: Path) -> Path:
        if path == contained:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", other_disk)
    assert run(out) == (INNER,)
    assert differing(in_one, out) == [] and not contained.exists()


def test_a_group_that_is_within_none_is_named(tmp_path: Path) -> None:
    open_study(STUDY, "paper", tmp_path / "out")
    folder = StudyFolder(tmp_path / "out")
    folder.json.write_text(folder.json.read_text().replace(f'"within": "{OUTER}"', '"within": "Room-x"'))
    with pytest.raises(UserError, match=rf"study.json: group '{INNER}' is within 'Room-x', which is no group of"):
        run(tmp_path / "out")


def test_a_cluster_hands_it_out_when_the_other_is_done(
    in_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray in this process: what is handed out is computed at once."""

    class Remote:
        def __init__(self, compute: Callable[[Job], Answer]) -> None:
            self.compute = compute

        def remote(self, job: Job) -> int:
            answers.append((job.group.name, self.compute(job)))
            return len(answers) - 1

    class Here:
        def remote(self, **_: Any) -> Any:
            return Remote

        def wait(self, references: list[int], **_: Any) -> tuple[list[int], list[int]]:
            return references[:1], references[1:]

        def get(self, reference: int) -> Answer:
            return answers[reference][1]

    monkeypatch.setattr("hyper_rl.studies.ray_runner.LOOK_EVERY_SECONDS", 0.0)
    answers, out = list[tuple[str, Answer]](), tmp_path / "out"
    folder, groups, _ = open_study(STUDY, "paper", out)
    chosen = with_outer(folder, groups[:1], groups)
    assert [group.name for group in chosen] == [INNER, OUTER]
    with ExitStack() as stack:
        progress = StudyProgress("small", folder, chosen, lambda *_: nullcontext(Silent()), stack, io.StringIO())
        tasks = Tasks(Here(), {}, progress, groups)
        for group in chosen:
            tasks.submit(Job(out, group, Saving(), 0, x64=False, inner=contained_in(group, groups)))
        assert [name for name, _ in answers] == [OUTER] and [job.group.name for _, job in tasks.later] == [INNER]
        while tasks.running or tasks.later:
            tasks.collect()
    assert tasks.computed == [OUTER, INNER]
    for name in (INNER, OUTER):
        assert differing(in_one / "groups" / name, out / "groups" / name) == []


def test_a_worker_computes_both(in_one: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder, groups, _ = open_study(STUDY, "paper", out)
    inner, outer = groups[:2]
    assert waits_for(folder, inner, groups) is outer and contained_in(outer, groups) is inner
    assert compute_group(Job(out, outer, Saving(), 0, x64=False, inner=inner)).state == "computed"
    assert waits_for(folder, inner, groups) is None
    assert compute_group(Job(out, inner, Saving(), 0, x64=False)) == Answer("computed")
    for name in (INNER, OUTER):
        assert differing(in_one / "groups" / name, out / "groups" / name) == []


def test_the_bar_counts_what_is_computed_with_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[tuple[int, int]]()

    class Counts(Silent):
        def __init__(self, total: int) -> None:
            self.total = total

        def update(self, step: int, note: str) -> None:
            shown.append((step, self.total))

    def counting(label: str, total: int, *_: object) -> Any:
        return nullcontext(Counts(total))

    monkeypatch.setattr("hyper_rl.studies.runner.show_progress", counting)
    run(tmp_path / "out", only=(INNER,))
    steps = [step for step, _ in shown]
    assert {total for _, total in shown} == {16000} and steps == sorted(steps) and steps[-1] == 16000


def test_what_is_divided_is_divided_alike() -> None:
    inner, outer, *_ = plan_study(STUDY, "paper")
    one = estimate(build_program(first_run(outer.config)))[0]
    parts = divide([inner, outer], int(1.5 * one / HEADROOM), devices=1)
    assert [(part.name, part.within) for part in parts[:4]] == [
        (f"{INNER}-part-{i}", f"{OUTER}-part-{i}") for i in (1, 2, 3, 4)
    ]
    assert [part.config.runs for part in parts[:4]] == [part.config.runs for part in parts[4:]]


def test_one_that_is_whole_after_all_has_the_same_name_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that other processes give back in the middle of it."""
    inner, outer, *_ = plan_study(STUDY, "paper")
    free = iter([1, 10**12, 10**12, 10**12])  # too little at the first look
    monkeypatch.setattr("hyper_rl.studies.layout.available", lambda _: next(free))
    parts = divide([inner, outer], devices=1)
    assert [(part.name, part.within) for part in parts] == [
        (f"{INNER}-part-1", f"{OUTER}-part-1"), (f"{OUTER}-part-1", None)
    ]  # fmt: skip

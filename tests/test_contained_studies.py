"""Studies that have Decouple and Curiosity: the one's groups bring the other's along, and come to the same files."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hyper_rl.cli.main import main
from hyper_rl.config import build_program, first_run
from hyper_rl.errors import UserError
from hyper_rl.studies.group_lock import try_lock
from hyper_rl.studies.layout import divide
from hyper_rl.studies.plan import plan_study
from hyper_rl.studies.ray_runner import Tasks
from hyper_rl.studies.ray_worker import Answer, Job, compute_group
from hyper_rl.studies.runner import StudyInterrupted, run_study, with_outer
from hyper_rl.studies.study_file import StudyFile, parse_study
from hyper_rl.studies.study_folder import StudyFolder, contained_in, open_study, waits_for
from hyper_rl.studies.study_progress import StudyProgress
from hyper_rl.training.memory import HEADROOM, estimate
from hyper_rl.training.progress import Silent
from hyper_rl.training.trainer import Saving
from kill_and_resume import differing
from test_contained import stop_at

pytestmark = pytest.mark.xdist_group("contained")  # one process, so that each program compiles once

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


def test_it_waits_for_the_process_that_computes_the_other(
    in_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, said = tmp_path / "out", io.StringIO()
    folder, _, _ = open_study(STUDY, "paper", out)
    other = ExitStack()
    assert other.enter_context(try_lock(folder.group_lock(OUTER)))

    def meanwhile(seconds: float) -> None:
        assert not any(out.glob("groups/*")), "nothing is begun before that is done"
        shutil.copytree(in_one / "groups" / OUTER, folder.group(OUTER).path)
        shutil.copytree(in_one / "groups" / INNER, folder.group(OUTER).contained)
        other.close()

    monkeypatch.setattr("hyper_rl.studies.runner.time", SimpleNamespace(sleep=meanwhile))
    assert run_study(STUDY, "paper", out, only=(INNER,), stream=said).computed == (INNER,)
    assert f"{INNER}: waiting for it: process {os.getpid()} on " in said.getvalue()
    assert differing(in_one / "groups" / INNER, out / "groups" / INNER) == []


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


def test_the_bar_counts_what_is_to_be_computed(in_one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert {total for _, total in shown} == {8000} and steps == sorted(steps) and steps[-1] == 8000
    shown.clear()
    shutil.copytree(in_one, tmp_path / "alone")
    shutil.rmtree(tmp_path / "alone" / "groups" / INNER)
    run(tmp_path / "alone")
    assert shown[0][0] > 24000 and {total for _, total in shown} == {32000}, "it is trained itself"


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

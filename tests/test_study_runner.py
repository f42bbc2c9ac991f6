"""A study that was stopped, killed or run in halves ends in the same bytes as one that never was."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.errors import UserError
from hyper_rl.studies.plan import plan_study
from hyper_rl.studies.runner import Outcome, StudyInterrupted, choose, run_study
from hyper_rl.studies.store import read_study
from hyper_rl.studies.study_file import StudyFile, parse_study
from hyper_rl.training.progress import Silent, show_progress
from kill_and_resume import SHARED_PROGRAMS, differing, results_of

pytestmark = pytest.mark.xdist_group("study")  # one process, so that each program compiles once

TEXT = """
title = "a small room"
task = "Room"
preset = "paper"
betas = [0.005, 1.0]
seeds = 2
steps = 2000
eval_every = 500
eval_episodes = 3
env = { size = 8, subgoal = [5, 5], R = 2.0 }

[[group]]
methods = ["hyper", "decouple"]  # one program for both

[[group]]
method = "hyper"
p_start = 0.5
p_end = 0.5

[scale.quick]
steps = 1000
"""
NAMES = [
    "Room-hyper-p_start-0.01-p_end-0.01",
    "Room-decouple-p_start-0.01-p_end-0.01",
    "Room-hyper-p_start-0.5-p_end-0.5",
]
STUDY = parse_study(TEXT, "small", "small.toml")


def run(out: Path, study: StudyFile = STUDY, scale: str = "paper") -> Outcome:
    return run_study(study, scale, out, stream=io.StringIO())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("study") / "out"
    run(out)
    return out


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """From now on Ctrl-C comes once so many run-steps of the study are done; None: not any more."""

    def arrange(at: int | None) -> None:
        class Stops(Silent):
            def update(self, step: int, note: str) -> None:
                if at is not None and step >= at:
                    signal.raise_signal(signal.SIGINT)

        @contextmanager
        def stopping(*args: object) -> Iterator[Silent]:
            yield Stops()

        monkeypatch.setattr("hyper_rl.studies.runner.show_progress", show_progress if at is None else stopping)

    return arrange


def test_a_study_in_full(undisturbed: Path) -> None:
    assert (undisturbed / "study.toml").read_text() == TEXT
    about = json.loads((undisturbed / "study.json").read_text())
    assert about["version"] == 1 and about["name"] == "small" and about["scale"] == "custom"
    assert about["command"] == "hyper-rl study small.toml --scale paper --out out"
    assert [group["name"] for group in about["groups"]] == NAMES
    assert about["groups"][0]["betas"] == [0.005, 1.0] and about["groups"][0]["seeds"] == [0, 1]
    assert about["groups"][2]["labels"]["p_start"] == 0.5
    rows = (undisturbed / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 12
    assert rows[0].startswith("group,task,method,preset,learner,p_start,p_end,run,beta,seed,success,return")
    for name in NAMES:
        config = json.loads((undisturbed / "groups" / name / "config.json").read_text())
        assert config["task_options"]["goal_reward"] == 2.0 and config["steps"] == 2000


def test_results_read_back(undisturbed: Path) -> None:
    study = read_study(undisturbed)
    assert (study.name, study.title, study.scale) == ("small", "a small room", "custom")
    assert study.folder == undisturbed and study.missing == () and len(study.runs) == 12
    assert len(study.select(method="hyper")) == 8 and len(study.select(method="hyper", p_start=0.5, beta=1.0)) == 2
    assert study.select(task="Maze") == () and study.select(colour=3) == ()
    (chosen,) = study.select(method="decouple", beta=1.0, seed=1)
    assert chosen.index == 3 and chosen.config.method == "decouple" and chosen.group == NAMES[1]
    entry = json.loads((undisturbed / "groups" / NAMES[1] / "result.json").read_text())["runs"][3]
    assert chosen.final["success"] == entry["success"] and chosen.final["finite"] == 1.0
    assert {"run", "beta", "seed"}.isdisjoint(chosen.final)
    unmeasured = [key for key, value in entry.items() if value is None]
    assert all(math.isnan(chosen.final[key]) for key in unmeasured)
    np.testing.assert_array_equal(chosen.curve["step"], [500, 1000, 1500, 2000])
    assert set(chosen.curve["seed"]) == {1} and set(chosen.curve["beta"]) == {1.0}
    assert chosen.visits is not None and chosen.visits.shape == (64,) and chosen.visits.sum() >= 2000


def test_what_is_finished_is_left_alone(undisturbed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}
    assert run(undisturbed).computed == ()
    assert before == {path: path.stat().st_mtime_ns for path in undisturbed.rglob("*") if path.is_file()}


def test_two_halves_give_the_same_bytes(
    undisturbed: Path, tmp_path: Path, stop_at: Callable[[int | None], None]
) -> None:
    out = tmp_path / "out"
    stop_at(12_100)  # in the second of three groups of 8000 run-steps
    with pytest.raises(StudyInterrupted, match=rf"1 of 3 groups done.*small.toml --scale paper --out {out}"):
        run(out)
    half = read_study(out)
    assert half.missing == tuple(NAMES[1:]) and len(half.runs) == 4
    assert not (out / "results.csv").exists()
    finished = out / "groups" / NAMES[0] / "result.json"
    when = finished.stat().st_mtime_ns
    stop_at(None)
    assert run(out).computed == tuple(NAMES[1:])
    assert finished.stat().st_mtime_ns == when
    assert differing(undisturbed, out) == []


def test_chosen_groups_come_first_and_the_others_when_asked_for(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = run_study(STUDY, "paper", out, stream=io.StringIO(), only=["*-decouple*", NAMES[1]])
    assert first.computed == (NAMES[1],) and not (out / "results.csv").exists()
    assert read_study(out).missing == (NAMES[0], NAMES[2])
    again = run_study(STUDY, "paper", out, stream=io.StringIO(), only=["*-decouple*"])
    assert again.computed == () and not (out / "results.csv").exists()
    assert run(out).computed == (NAMES[0], NAMES[2])
    assert (out / "results.csv").read_bytes() == (undisturbed / "results.csv").read_bytes()
    assert not (out / "locks").exists()


def test_a_divided_group_is_chosen_whole_or_by_its_part() -> None:
    whole = plan_study(STUDY, "paper")
    parts = tuple(dataclasses.replace(g, name=f"{g.name}-part-{k}") for g in whole[:2] for k in (1, 2)) + whole[2:]

    def names(*only: str) -> list[str]:
        return [group.name for group in choose(parts, only)]

    assert names() == [group.name for group in parts]
    assert names(NAMES[1]) == [f"{NAMES[1]}-part-1", f"{NAMES[1]}-part-2"]
    assert names(f"{NAMES[0]}-part-2", NAMES[2]) == [f"{NAMES[0]}-part-2", NAMES[2]]


def test_a_choice_that_fits_nothing_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"only: got 'Maze\*', must fit the name of a group, as 'Room-hyper"):
        run_study(STUDY, "paper", tmp_path / "out", stream=io.StringIO(), only=[NAMES[0], "Maze*"])
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_smaller_groups_give_the_same_numbers(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study begun where less memory is free has other groups, keeps them, and comes to the same tables."""
    out = tmp_path / "out"
    monkeypatch.setattr("hyper_rl.studies.layout.estimate", lambda program: (5, 5))
    monkeypatch.setattr("hyper_rl.studies.layout.available", lambda devices: 30)
    assert len(run(out).groups) == 6
    monkeypatch.undo()
    assert run(out).computed == ()  # now all of it would fit, but it was begun otherwise
    whole, parts = read_study(undisturbed), read_study(out)
    assert {run.group for run in parts.runs} == {f"{name}-part-{i}" for name in NAMES for i in (1, 2)}
    for one in whole.runs:
        (same,) = parts.select(**one.labels, beta=one.beta, seed=one.seed)
        np.testing.assert_equal(dict(one.final), dict(same.final))
        np.testing.assert_array_equal(one.curve["success"], same.curve["success"])
        np.testing.assert_array_equal(one.visits, same.visits)


def test_another_study_in_the_folder_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    before = results_of(undisturbed)
    other = parse_study(TEXT.replace("seeds = 2", "seeds = 3"), "small", "small.toml")
    with pytest.raises(UserError, match=r"line 6 of its study.toml is 'seeds = 2', of small.toml 'seeds = 3'"):
        run(undisturbed, other)
    with pytest.raises(UserError, match=r"scale: got 'quick', but .* was begun with 'custom'"):
        run(undisturbed, STUDY, "quick")
    assert results_of(undisturbed) == before
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already and is no study folder"):
        run(tmp_path)
    with pytest.raises(UserError, match="is not a study folder"):
        read_study(tmp_path)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(UserError, match=r"study\.json: not a study this version can read"):
        read_study(tmp_path)


def test_a_group_of_other_settings_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "groups" / NAMES[0]).mkdir(parents=True)
    for name in ("study.toml", "study.json", f"groups/{NAMES[0]}/config.json"):
        (out / name).write_bytes((undisturbed / name).read_bytes())
    config = out / "groups" / NAMES[0] / "config.json"
    config.write_text(config.read_text().replace('"p_end": 0.01', '"p_end": 0.5'))
    with pytest.raises(UserError, match=r"p_end: .* was made with 0.5, and the study now says 0.01"):
        run(out)


def test_progress_speaks_of_the_whole_study(tmp_path: Path) -> None:
    said = io.StringIO()
    run_study(STUDY, "quick", tmp_path / "out", stream=said)
    lines = said.getvalue().splitlines()
    assert any(f"group 1/3 {NAMES[0]}: memory:" in line for line in lines)
    assert lines[-1].startswith("study small 12000/12000 steps") and f"group 3/3 {NAMES[2]}" in lines[-1]
    assert read_study(tmp_path / "out").scale == "quick"


def test_the_command_lists_plans_and_reports(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["studies"]
    assert {"study", "title", "description", "scales"} == set(listed[0])
    assert main(["study", "figure-1", "--plan"]) == 0
    said = capsys.readouterr().out
    assert "Room-curiosity: 10 betas x 5 seeds x 1,000,000 steps, computed with Room-decouple\n" in said
    assert said.endswith("4 groups, 200 runs, 150,000,000 run-steps to compute\n")
    assert main(["study", "figure-1", "--plan", "--only", "*hyper*", "*decouple*"]) == 0
    assert "2 groups, 100 runs, 100,000,000 run-steps to compute\n" in capsys.readouterr().out
    assert main(["study", "table-2", "--plan", "--only", "x"]) == 2
    assert "only: got ('x',), must be left out for table-2" in capsys.readouterr().err
    file = tmp_path / "small.toml"
    file.write_text(TEXT)
    assert main(["study", str(file), "--out", str(undisturbed), "--no-figures", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["runs"] == 12 and summary["rows"][0]["runs"] == 4
    assert summary["groups_computed"] == summary["groups_missing"] == [] and summary["figures"] == []
    part = tmp_path / "part"
    assert main(["study", str(file), "--out", str(part), "--no-figures", "--only", NAMES[1]]) == 0
    assert "groups not computed yet: 2; the same command without --only goes on with them" in capsys.readouterr().out


# kill -9


def start(file: Path, out: Path, cache: Path, kill_after: float | None) -> int:
    """Exit code; killed so many seconds after the first sign of the study folder unless done by then."""
    command = [sys.executable, "-m", "hyper_rl.cli.main", "study", str(file), "--out", str(out)]
    environment = {**os.environ, **SHARED_PROGRAMS, "JAX_COMPILATION_CACHE_DIR": str(cache)}
    process = subprocess.Popen(
        [*command, "--checkpoint-seconds", "1e-9", "--no-figures", "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        while process.poll() is None and not out.exists():
            time.sleep(0.005)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=kill_after)
    finally:
        process.kill()
    return process.wait()


def kill_and_go_on(undisturbed: Path, scratch: Path, kills: int) -> list[float]:
    """Kill the study up to so many times at random moments; the moments that hit, in seconds."""
    file, out = scratch / "small.toml", scratch / "out"
    file.write_text(TEXT)
    draw, hits = random.Random(), list[float]()
    seconds = (undisturbed / "results.csv").stat().st_mtime - (undisturbed / "study.toml").stat().st_mtime
    done_before: dict[Path, int] = {}
    code = None
    for attempt in range(kills + 1):
        moment = draw.uniform(0, seconds) if attempt < kills else None
        code = start(file, out, scratch.parent / "cache", moment)
        done = {path: path.stat().st_mtime_ns for path in out.glob("groups/*/result.json")}
        assert done_before.items() <= done.items(), "a finished group was computed twice"
        done_before = done
        if code == 0:
            break
        assert code == -signal.SIGKILL and moment is not None
        hits.append(moment)
        seconds *= 0.8  # programs are compiled by now, so that less and less is left to hit
    assert code == 0
    assert differing(undisturbed, out) == [], f"after kills at {hits}"
    return hits


def test_killed_at_random_moments_it_ends_in_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    kill_and_go_on(undisturbed, tmp_path, 2)


@pytest.mark.long
def test_killed_at_ten_random_moments(undisturbed: Path, tmp_path: Path) -> None:
    hits: list[float] = []
    for turn in range(20):
        scratch = tmp_path / str(turn)
        scratch.mkdir()
        hits += kill_and_go_on(undisturbed, scratch, min(3, 10 - len(hits)))
        if len(hits) >= 10:
            break
    print("killed after", hits)
    assert len(hits) >= 10

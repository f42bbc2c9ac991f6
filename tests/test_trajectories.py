"""Paths through mazes: played from the checkpoint of a finished group, kept, drawn and put on the page."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import PRNGKeyArray

from hyper_rl.config import build_parts
from hyper_rl.errors import UserError
from hyper_rl.report import page_extras
from hyper_rl.report.page import report_page
from hyper_rl.report.page_data import page_data
from hyper_rl.report.panels import lay_out
from hyper_rl.report.path_figures import path_figure
from hyper_rl.report.study_figures import draw_study
from hyper_rl.report.trajectories import FILE, MazePath, paths_of, read_paths, split_path, thinned_with
from hyper_rl.report.visit_maps import WALL, visit_map
from hyper_rl.studies.plan import plan_study
from hyper_rl.studies.store import RunResult, StudyResult
from hyper_rl.studies.study_file import parse_study
from hyper_rl.threefry import make_key
from hyper_rl.training.checkpoint import Position, write_checkpoint
from made_studies import make_study

STUDY = """
title = "Paths"
task = "MediumMaze-Medium"
betas = [1.0]
seeds = 2
steps = 300
warmup = 100
eval_every = 150
eval_episodes = 1
td3 = { widths = [8, 8], batch_size = 8 }
disagreement = { widths = [8] }

[[group]]
methods = ["hyper"]
"""


class State(NamedTuple):
    """As much of a checkpoint's state as paths need."""

    learners: Any


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    """A finished group whose learners are still as they began: training would take longer than all tests here."""
    folder = tmp_path_factory.mktemp("paths")
    (group,) = plan_study(parse_study(STUDY, "mine", "mine.toml"), "paper")
    config = group.config
    parts, runs = build_parts(config), len(config.runs)

    def begin(key: PRNGKeyArray) -> Any:
        return parts.learner.init(key, parts.task.spec, jnp.zeros((), float))

    learners = jax.vmap(jax.vmap(begin))(jax.random.split(make_key(0), (runs, 2)))
    checkpoints = folder / "groups" / group.name / "checkpoint"
    write_checkpoint(checkpoints, State(learners), Position(config.steps, 2, 0, ""), keep=1)
    names = ("success", "return", "behaviour_return", "discounted_return", "critic_estimate")
    curve = {"step": np.array([150.0, 300.0]), **{name: np.zeros(2) for name in names}}
    final = dict.fromkeys(names, 0.0)
    made = [
        RunResult(group.name, group.labels, config, index, beta, seed, final, curve, np.arange(26) + index)
        for index, (beta, seed) in enumerate(config.runs)
    ]
    return dataclasses.replace(make_study("mine", made, "custom"), folder=folder)


def test_a_study_of_a_maze_keeps_and_draws_paths(study: StudyResult) -> None:
    drawn = {path.name for path in draw_study(study, study.folder / "figures")}
    assert {"paths.png", "paths.svg", "visits.png"} <= drawn
    found = paths_of(study)
    assert found == read_paths(study.folder) and [index for _, index in found] == [0], "the first seed"
    for run in found.values():
        assert run.step == 300 and len(run.paths) == 3
        for path in run.paths:
            assert path.length is not None and 1 <= path.steps <= 200
            assert all(100 <= x <= 700 for x in path.x) and len(path.x) == len(path.y) == path.steps + 1
            # The first L - 1 steps are the task policy's; paths of up to 200 steps are not thinned.
            assert (path.steps if path.handover is None else path.handover) == min(path.length - 1, path.steps)
    assert len({path.length for run in found.values() for path in run.paths}) > 1


def test_they_are_played_again_where_the_file_is_gone(study: StudyResult, tmp_path: Path) -> None:
    shutil.copytree(study.folder / "groups", tmp_path / "groups")
    copy = dataclasses.replace(study, folder=tmp_path)
    played = paths_of(copy)
    assert played == paths_of(study) and not (tmp_path / FILE).exists()
    paths_of(copy, keep=True)
    assert read_paths(tmp_path) == played
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(UserError, match=r"trajectories.json: not readable"):
        read_paths(tmp_path)
    (tmp_path / FILE).unlink()
    shutil.rmtree(tmp_path / "groups")
    assert paths_of(copy) == {}, "the explorer is gone with its checkpoint"
    assert path_figure(lay_out(copy.runs)[0], {}) is None
    assert page_data([copy], [])["studies"][0]["paths"] == []


def test_the_page_has_them(study: StudyResult, monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = page_data([study], [])["studies"]
    (panel,) = told["paths"]
    assert panel["map"][0] == "1" * 8 and [item["beta"] for item in panel["items"]] == [1]
    full = panel["items"][0]["paths"][0]
    monkeypatch.setattr(page_extras, "POINTS_IN_ALL", 1)
    thin = page_data([study], [])["studies"][0]["paths"][0]["items"][0]["paths"][0]
    assert len(thin["x"]) <= page_extras.FEWEST_POINTS + 1 < len(full["x"])
    assert (thin["x"][0], thin["x"][-1]) == (full["x"][0], full["x"][-1])
    if full["handover"] is not None:
        assert thin["x"][thin["handover"]] == full["x"][full["handover"]]
    assert '"radius":45' in report_page([study])


def test_visits_of_a_maze_lie_where_its_free_cells_are(study: StudyResult) -> None:
    cells = visit_map(study.runs)
    assert cells is not None and (cells.rows, cells.columns) == (8, 8)
    filled = cells.fill(np.arange(26))
    assert (filled == WALL).sum() == 64 - 26 and filled[1, 1:5].tolist() == [0, 1, WALL, WALL] and filled[6, 6] == 25
    wrong = [dataclasses.replace(study.runs[0], visits=np.arange(5))]
    with pytest.raises(UserError, match="5 cells, the task 26 free ones"):
        visit_map(wrong)


def test_parts_of_a_path_meet_at_the_hand_over() -> None:
    path = MazePath([100, 200, 300], [100, 100, 100], 1, [300, 100], True, 2, 2)
    first, second = split_path(path)
    assert first.tolist() == [[1.0, 1.0], [2.0, 1.0]] and second.tolist() == [[2.0, 1.0], [3.0, 1.0]]
    whole = [len(part) for part in split_path(dataclasses.replace(path, handover=None))]
    assert whole == [3, 0] and [len(part) for part in split_path(dataclasses.replace(path, handover=0))] == [0, 3]
    kept = thinned_with(1001, 777)
    assert 777 in kept and (kept[0], kept[-1], len(kept)) == (0, 1000, 251)

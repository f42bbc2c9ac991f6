"""Figures of a study: what becomes a panel, what a line; bands; files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image

from hyper_rl.report.page_charts import against_beta
from hyper_rl.report.panels import lay_out, method_name, split_crowded
from hyper_rl.report.study_figures import draw_study, legend_columns, mean_band
from hyper_rl.studies.store import RunResult
from made_studies import make_run, make_study, result


def labelled(run: RunResult, labels: Mapping[str, Any]) -> RunResult:
    return dataclasses.replace(run, labels={**run.labels, **labels})


def runs_of(
    method: str, labels: Mapping[str, Any] = MappingProxyType({}), betas: tuple[float, ...] = (0.1, 1.0)
) -> list[RunResult]:
    level = {"hyper": 1.0, "curiosity": 0.4}.get(method, 0.0)
    curve = {"behaviour_success": np.full(10, level)}
    final = result(level, behaviour_success=level)
    visits = np.arange(900)
    return [
        labelled(make_run("Room", method, beta, seed, final, curve=curve, visits=visits), labels)
        for beta in betas
        for seed in range(3)
    ]


def test_questions_make_panels_and_answers_make_lines() -> None:
    runs = []
    for reward in (1.0, 10.0):
        for lengths in ("bounded", "plain"):
            runs += runs_of("hyper", {"env.R": reward, "lengths": lengths})
        runs += runs_of("curiosity", {"env.R": reward, "lengths": "bounded"})
    panels = lay_out(runs)
    assert [panel.title for panel in panels] == ["Room, R = 1", "Room, R = 10"]
    names = [series.name for series in panels[0].series]
    assert names == ["UCB-Q, lengths bounded", "Hyper, lengths bounded", "Hyper, lengths plain"]  # Hyper on top
    colours = {series.method: series.colour for series in panels[0].series}
    assert len(set(colours.values())) == 2
    assert {series.stroke for series in panels[0].series if series.method == "hyper"} == {"-", "--"}
    assert panels[0].series[0].betas == [0.1, 1.0] and len(panels[0].series[0].at(1.0)) == 3


def test_a_learner_that_follows_from_the_task_is_no_series_of_its_own() -> None:
    runs = [*runs_of("hyper"), *[labelled(run, {"task": "Other", "learner": "dqn"}) for run in runs_of("hyper")]]
    assert [[series.name for series in panel.series] for panel in lay_out(runs)] == [["Hyper"], ["Hyper"]]


def test_methods_have_the_names_that_readers_know() -> None:
    assert method_name("curiosity", "tabular_q") == "UCB-Q" and method_name("curiosity", "td3") == "Curiosity"
    assert method_name("exploit", "dqn") == "DQN" and method_name("hyper", "sac") == "Hyper"


def test_a_band_needs_three_seeds_and_holds_the_mean() -> None:
    values = np.array([[0.0, 1.0], [1.0, 1.0], [0.5, 1.0]])
    mean, band = mean_band(values)
    assert mean.tolist() == [0.5, 1.0] and band is not None
    assert band[0, 0] < 0.5 < band[1, 0] and band[:, 1].tolist() == [1.0, 1.0]
    assert mean_band(values[:2])[1] is None


def test_a_study_is_drawn_twice_to_the_same_bytes(tmp_path: Path) -> None:
    study = make_study("figure-1", [*runs_of("hyper"), *runs_of("curiosity"), *runs_of("exploit", betas=(0.1,))])
    drawn = [draw_study(study, tmp_path / name) for name in ("one", "two")]
    names = {path.name for path in drawn[0]}
    assert names == {
        f"{stem}.{kind}"
        for stem in ("beta-success", "beta-behaviour_success", "curves-success", "visits")
        for kind in ("png", "svg")
    }
    for first, second in zip(*drawn, strict=True):
        assert first.read_bytes() == second.read_bytes()
    with Image.open(tmp_path / "one" / "beta-success.png") as image:
        assert image.width >= 1000


def test_nothing_finished_draws_nothing(tmp_path: Path) -> None:
    assert draw_study(make_study("figure-1", []), tmp_path / "figures") == []


def test_a_variant_is_called_by_its_own_name_and_has_a_colour_of_its_own() -> None:
    runs = []
    for number, variant in enumerate(("whole", "no decay", "slow models")):
        runs += runs_of("hyper", {"variant": variant, "disagreement.lr": 10.0**-number})
    series = lay_out(runs)[0].series
    assert [one.name for one in series] == ["Hyper, whole", "Hyper, no decay", "Hyper, slow models"]
    assert len({one.colour for one in series}) == 3 and {one.stroke for one in series} == {"-"}


def test_a_variant_that_stands_for_two_things_does_not_hide_their_difference() -> None:
    runs = []
    for preset in ("paper", "robust"):
        runs += runs_of("hyper", {"variant": "whole", "preset": preset})
    runs += runs_of("hyper", {"variant": "slow", "preset": "paper"})
    names = {series.name for series in lay_out(runs)[0].series}
    assert len(names) == 3 and all("preset" in name for name in names)


def test_panels_share_a_legend_so_a_preset_is_named_and_drawn_alike_in_all() -> None:
    runs = runs_of("hyper", {"task": "LargeMaze-Medium", "preset": "robust"})
    for preset in ("paper", "robust"):
        runs += runs_of("hyper", {"task": "MediumMaze-Easy", "preset": preset})
    large, easy = lay_out(runs)
    assert [series.name for series in large.series] == ["Hyper, preset robust"]
    assert [series.name for series in easy.series] == ["Hyper, preset paper", "Hyper, preset robust"]
    assert large.series[0].stroke == easy.series[1].stroke != easy.series[0].stroke


def test_a_preset_that_differs_in_no_panel_is_not_named() -> None:
    runs = runs_of("hyper", {"task": "Room", "preset": "paper"})
    runs += runs_of("hyper", {"task": "MiniGrid-Fetch", "preset": "minigrid"})
    assert [[series.name for series in panel.series] for panel in lay_out(runs)] == [["Hyper"], ["Hyper"]]


def test_a_legend_has_as_many_columns_as_fit() -> None:
    assert legend_columns(["Hyper", "UCB-Q"], 7.0) == 2
    assert legend_columns(["Hyper, preset robust, p start 0.001, p end 0.1"] * 6, 7.0) == 1
    assert legend_columns(["Hyper"] * 9, 14.0) == 5


def crowd(tasks: tuple[str, ...] = ("A", "B"), presets: tuple[str, ...] = ("paper", "robust")) -> list[RunResult]:
    """Four methods under each preset on each task; nothing but Hyper under the last preset on the last task."""
    return [
        labelled(run, {"task": task, "preset": preset, "learner": "td3"})
        for task in tasks
        for preset in presets
        for method in ("exploit", "curiosity", "decouple", "hyper")
        if method == "hyper" or (task, preset) != (tasks[-1], presets[-1])
        for run in runs_of(method, betas=(1.0,) if method == "exploit" else (0.1, 1.0))
    ]


def test_more_lines_than_one_can_follow_are_split_by_variant() -> None:
    rows = split_crowded(lay_out(crowd()))
    assert [[panel.title for panel in row] for row in rows] == [
        ["A, preset paper", "B, preset paper"],
        ["A, preset robust", "B, preset robust"],
    ]
    assert [series.name for series in rows[1][0].series] == ["TD3", "Curiosity", "Decouple", "Hyper"]
    assert {series.stroke for row in rows for panel in row for series in panel.series} == {"-"}
    assert [series.name for series in rows[1][1].series] == ["Hyper"]


def test_few_lines_stay_in_one_panel() -> None:
    few = [run for run in crowd() if run.labels["method"] != "decouple"]
    assert len(split_crowded(lay_out(few))) == 1
    assert len(split_crowded(lay_out(crowd(presets=("paper",))))) == 1


def test_split_panels_are_drawn_without_the_empty_ones(tmp_path: Path) -> None:
    runs = [run for run in crowd() if (run.labels["task"], run.labels["preset"]) != ("B", "robust")]
    study = make_study("mazes", [*runs, *crowd(tasks=("C",))])
    drawn = {path.name for path in draw_study(study, tmp_path)}
    assert {"beta-success.png", "curves-success.svg"} <= drawn
    written = (tmp_path / "curves-success.svg").read_text()
    assert "A, preset paper" in written and "A, preset robust" in written
    assert "B, preset paper" in written and "B, preset robust" not in written


def test_a_part_with_one_beta_is_not_drawn_against_it(tmp_path: Path) -> None:
    runs = [run for run in crowd() if (run.labels["task"], run.labels["preset"]) != ("A", "robust") or run.beta == 1.0]
    draw_study(make_study("mazes", runs), tmp_path)
    against = (tmp_path / "beta-success.svg").read_text()
    assert "A, preset paper" in against and "B, preset robust" in against and "A, preset robust" not in against
    assert "A, preset robust" in (tmp_path / "curves-success.svg").read_text()


def test_a_learner_alone_is_a_level_line_against_beta() -> None:
    panels = lay_out([*runs_of("hyper", betas=(0.1, 1.0, 10.0)), *runs_of("exploit", betas=(1.0,))])
    names = [series.name for series in panels[0].series]
    chart = against_beta(panels, names, "success")
    assert chart is not None and "level line" in chart["note"]
    level, hyper = chart["panels"][0]["views"]["all"]
    assert len(level["y"]) == 2 and len(hyper["y"]) == 3 and level["y"][0] == level["y"][1]

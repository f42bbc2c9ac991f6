"""The report page: what it says, that nothing in a file becomes markup, its size, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.errors import UserError
from hyper_rl.methods.repositioning import bounded_geometric_quantile, plain_geometric_quantile
from hyper_rl.report import study_figures
from hyper_rl.report.page import is_report, render_page, report_page, write_page
from hyper_rl.report.page_charts import band_of, length_chances, number, p_at, points_per_line, thinned
from hyper_rl.report.page_data import page_data
from hyper_rl.report.panels import COLOURS
from hyper_rl.report.study_figures import mean_band
from hyper_rl.studies.claims import CLAIMS
from hyper_rl.studies.statistics import robustness_score
from hyper_rl.studies.store import RunResult, StudyResult
from hyper_rl.studies.verdicts import judge_all
from made_studies import base_config, figure_1, make_run, make_study, result

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)> {{data}}"
MOST_BYTES = 6_000_000
BETAS = (0.01, 0.1, 1.0)


def small_study(scale: str = "paper", length: int = 30, betas: tuple[float, ...] = BETAS) -> StudyResult:
    rng = np.random.default_rng(0)
    runs = []
    for method in ("curiosity", "decouple", "hyper"):
        for beta in betas:
            for seed in range(3):
                columns = ("success", "return", "behaviour_success", "mean_length", "p")
                curve = {"step": np.arange(1, length + 1) * 1000.0, **{name: rng.random(length) for name in columns}}
                final = result(float(rng.random()), behaviour_success=float(rng.random()))
                visits = rng.integers(0, 50, 900)
                runs.append(make_run("Room", method, beta, seed, final, curve=curve, visits=visits))
    return make_study("figure-1", runs, scale)


def data_of(*studies: StudyResult) -> dict[str, Any]:
    return page_data(studies, judge_all(CLAIMS, studies))


def chart(study: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [one for one in study["charts"] if one["id"] == name]
    return found


def embedded(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return json.loads(text)


def test_lines_are_those_of_the_figures() -> None:
    made = small_study()
    (study,) = data_of(made)["studies"]
    assert [series["name"] for series in study["series"]] == ["UCB-Q", "Decouple", "Hyper"]
    assert study["series"][2]["colour"] == COLOURS["hyper"]
    against = chart(study, "beta-success")
    drawn = against["panels"][0]["views"]["all"][2]
    assert against["log"] and against["xs"][drawn["x"]] == list(BETAS)
    finals = [[run.final["success"] for run in made.select(method="hyper", beta=beta)] for beta in BETAS]
    for place, values in enumerate(finals):
        middle, band = mean_band(np.array(values)[:, None])
        assert band is not None
        assert drawn["y"][place] == number(middle[0]) and drawn["high"][place] == number(band[1, 0])
    curves = chart(study, "curves-success")
    assert [view["key"] for view in curves["views"]] == ["all", "0.01", "0.1", "1.0"]
    at_one = curves["panels"][0]["views"]["1.0"][2]
    told = np.mean([run.curve["success"] for run in made.select(method="hyper", beta=1.0)], axis=0)
    assert at_one["y"] == [number(value) for value in told]
    score = robustness_score(BETAS, [np.array(values) for values in finals])
    assert study["summary"]["rows"][2]["score"] == [number(v) for v in (score.value, score.low, score.high)]
    assert [one["series"] for one in chart(study, "mean_length")["panels"][0]["views"]["all"]] == [2]


def test_every_run_and_every_visit_is_there() -> None:
    made = small_study()
    (study,) = data_of(made)["studies"]
    assert len(study["runs"]["rows"]) == len(made.runs) == 27
    (maps,) = study["maps"]
    assert (maps["rows"], maps["columns"], maps["left_out"]) == (30, 30, 0) and len(maps["maps"]) == 27
    first = made.select(method="curiosity", beta=0.01, seed=0)[0]
    assert first.visits is not None and maps["maps"][0]["visits"] == first.visits.tolist()


def test_long_curves_are_thinned_and_gaps_stay_gaps() -> None:
    (study,) = data_of(small_study(length=1_000, betas=(1.0,)))["studies"]
    steps = chart(study, "curves-success")["xs"][0]
    assert len(steps) == 200 and steps[0] == 1_000 and steps[-1] == 1_000_000
    assert thinned(5, 200).tolist() == [0, 1, 2, 3, 4] and points_per_line(10**6) == 25
    middle, low, high = band_of(np.array([[1.0, np.nan, 1.0], [3.0, np.nan, np.nan], [2.0, np.nan, 2.0]]))
    assert middle == [2, None, 1.5] and low is not None and high is not None
    assert low[0] is not None and low[1:] == [None, None], "two runs make no interval"


def test_a_study_with_one_beta_has_no_axis_of_betas() -> None:
    (study,) = data_of(small_study(betas=(1.0,)))["studies"]
    names = [one["id"] for one in study["charts"]]
    assert not [name for name in names if name.startswith("beta")] and "curves-success" in names
    assert not study["summary"]["swept"]


def test_crowded_panels_are_split_by_variant_and_tasks_with_one_beta_are_not_drawn_against_it() -> None:
    runs = [
        make_run(task, method, beta, seed, result(0.5), preset=preset, learner="td3", task_options={})
        for task, betas in (("CartPole", (0.1, 1.0)), ("Pendulum", (1.0,)))
        for preset in ("paper", "robust")
        for method in ("exploit", "curiosity", "decouple", "hyper")
        for beta in ((1.0,) if method == "exploit" else betas)
        for seed in range(3)
    ]
    (study,) = data_of(make_study("crowd", runs))["studies"]
    titles = [f"{task}, preset {preset}" for preset in ("paper", "robust") for task in ("CartPole", "Pendulum")]
    assert [panel["title"] for panel in chart(study, "curves-success")["panels"]] == titles
    assert [panel["title"] for panel in chart(study, "estimates")["panels"]] == titles
    swept = chart(study, "beta-success")["panels"]
    assert [panel["title"] for panel in swept] == [titles[0], titles[2]]
    names = [[study["series"][line["series"]]["name"] for line in panel["views"]["all"]] for panel in swept]
    methods = ("TD3", "Curiosity", "Decouple", "Hyper")
    assert names == [[f"{method}, preset {preset}" for method in methods] for preset in ("paper", "robust")]
    assert len(study["summary"]["rows"]) == 16, "tables are not split"


def test_a_part_of_a_crowded_panel_with_one_beta_is_not_drawn_against_it() -> None:
    runs = [
        make_run("CartPole", method, beta, seed, result(0.5), preset=preset, learner="td3", task_options={})
        for preset, betas in (("paper", (0.1, 1.0)), ("robust", (1.0,)))
        for method in ("exploit", "curiosity", "decouple", "hyper")
        for beta in ((1.0,) if method == "exploit" else betas)
        for seed in range(3)
    ]
    (study,) = data_of(make_study("crowd", runs))["studies"]
    assert [panel["title"] for panel in chart(study, "beta-success")["panels"]] == ["CartPole, preset paper"]


def test_deep_learners_get_estimates_beside_returns_and_tables_do_not() -> None:
    curve = {"critic_estimate": np.full(10, 5.0), "discounted_return": np.full(10, 2.0)}
    runs = [make_run("Room", "decouple", 1.0, seed, result(0.0), curve=curve, learner="td3") for seed in range(3)]
    (study,) = data_of(make_study("figure-3", runs))["studies"]
    given, promised = chart(study, "estimates")["panels"][0]["views"]["all"]
    assert (given["suffix"], given["y"][0], promised["suffix"], promised["y"][0]) == ("return", 2, "estimate", 5)
    assert study["column"] == "return", "no run succeeds: the return says more"
    (tabular,) = data_of(small_study())["studies"]
    assert "estimates" not in [one["id"] for one in tabular["charts"]]


@pytest.mark.parametrize("p", [0.3, 0.01, 0.0005, 1.0])
@pytest.mark.parametrize("bounded", [True, False])
def test_lengths_have_the_distribution_that_they_are_drawn_from(p: float, bounded: bool) -> None:
    horizon = 100
    chances = length_chances(p, horizon, bounded=bounded)
    assert chances.shape == (horizon,) and math.isclose(chances.sum(), 1.0, rel_tol=1e-12)
    u = (np.arange(20_000) + 0.5) / 20_000
    quantile = bounded_geometric_quantile if bounded else plain_geometric_quantile
    drawn = quantile(jnp.asarray(u, float), jnp.asarray(p, float), jnp.asarray(horizon))
    shares = np.bincount(np.asarray(drawn), minlength=horizon + 1)[1:] / len(u)
    assert np.abs(shares - chances).max() < 2 / len(u)  # u lies on a grid of that width


def test_p_falls_over_the_schedule_and_then_stays() -> None:
    config = dataclasses.replace(base_config(), p_start=0.1, p_end=0.02, schedule_steps=100)
    assert [round(p_at(config, step), 12) for step in (0, 50, 100, 200)] == [0.1, 0.06, 0.02, 0.02]


def test_a_paper_study_gets_verdicts_and_a_quick_one_none() -> None:
    told = data_of(figure_1(True))
    words = {claim["id"]: claim["verdict"] for claim in told["claims"]}
    assert "reproduced" in words.values() and len(words) == len(CLAIMS)
    quick = data_of(dataclasses.replace(figure_1(True), scale="quick"))
    assert {claim["verdict"] for claim in quick["claims"]} == {"not run"}
    assert not quick["studies"][0]["judged"] and "(quick)" in report_page([small_study("quick")])


def test_unfinished_studies_say_so() -> None:
    half = dataclasses.replace(small_study(), missing=("Room-exploit",))
    assert data_of(half)["studies"][0]["missing"] == ["Room-exploit"]
    (empty,) = data_of(make_study("figure-1", []))["studies"]
    assert empty["count"] == 0 and empty["charts"] == [] and empty["maps"] == []


def with_names(study: StudyResult, text: str) -> StudyResult:
    def renamed(run: RunResult) -> RunResult:
        return dataclasses.replace(run, group=text, labels={**run.labels, "variant": f"{text}{run.beta}"})

    runs = tuple(renamed(run) for run in study.runs)
    return dataclasses.replace(study, title=text, name=text, command=text, runs=runs, versions={text: text})


def test_what_comes_from_files_stays_text() -> None:
    page = report_page([with_names(small_study(), ATTACK)])
    assert page.count("<script") == 2 and page.count("</script>") == 2 and "<img" not in page
    told = embedded(page)
    assert told["studies"][0]["title"] == ATTACK and told["studies"][0]["command"] == ATTACK
    assert "alert(1)" in re.findall(r"<title>(.*?)</title>", page)[0] and "innerHTML" not in page


def test_a_page_is_one_file_without_addresses_and_the_same_every_time(tmp_path: Path) -> None:
    made = small_study()
    page = report_page([made])
    assert page == report_page([dataclasses.replace(made, folder=tmp_path / made.folder.name)])
    without_names = page.replace("http://www.w3.org/2000/svg", "")  # the name of SVG, nothing that is fetched
    assert not re.findall(r"https?://|\bsrc=|@import|url\(|fetch\(|XMLHttpRequest", without_names)
    assert "default-src 'none'" in page and str(tmp_path) not in page


def test_a_large_study_keeps_within_six_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_figures, "RESAMPLES", 20)  # as many digits in less time
    rng = np.random.default_rng(0)
    columns = ("success", "behaviour_success", "mean_length", "p")
    runs = []
    for reward in range(4):
        for method in ("curiosity", "decouple", "hyper"):
            for beta in np.logspace(-4, 4, 10):
                for seed in range(5):
                    curve = {"step": np.arange(400) * 1e4, **{name: rng.random(400) for name in columns}}
                    visits = rng.integers(0, 10**6, 900)
                    run = make_run("Room", method, beta, seed, result(rng.random()), curve=curve, visits=visits)
                    runs.append(dataclasses.replace(run, labels={**run.labels, "env.R": reward}))
    told = data_of(make_study("wide-beta", runs))
    assert len(render_page(told, "large").encode()) < MOST_BYTES
    assert told["studies"][0]["maps"][0]["left_out"] > 0 and 25 <= told["points"] <= 200


def write_quick(folder: Path) -> Path:
    """A study folder whose groups are not finished."""
    folder.mkdir()
    group = {"name": "Room-hyper", "labels": {"task": "Room"}, "betas": [1.0], "seeds": [0]}
    about = {"version": 1, "name": "figure-1", "title": "T", "scale": "quick", "groups": [group]}
    (folder / "study.json").write_text(json.dumps({**about, "command": "c", "versions": {}}))
    return folder


def test_the_command_writes_into_the_folder_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_quick(tmp_path / "study")
    assert main(["report", str(folder)]) == 0
    first = (folder / "report.html").read_bytes()
    assert main(["report", str(folder)]) == 0, "its own report is replaced without asking"
    assert (folder / "report.html").read_bytes() == first
    assert "1 group not finished" in capsys.readouterr().out


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = write_quick(tmp_path / "one"), write_quick(tmp_path / "two")
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<html>years of work</html>")
    for words, said in (
        ([], "folders: missing"),
        ([str(tmp_path)], "not a study folder"),
        ([str(one), str(two)], "out: missing; with several folders"),
        ([str(one), str(one), "--out", "x.html"], "given twice"),
        ([str(one), "--out", str(thesis)], "exists and is not a report"),
        ([str(one), "--out", str(two)], "is a folder"),
        ([str(one), "--out", str(thesis / "x.html")], "cannot be written"),
    ):
        assert main(["report", *words]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, error
    assert thesis.read_text() == "<html>years of work</html>"
    assert main(["report", str(one), "--out", str(thesis), "--force"]) == 0 and is_report(thesis)
    assert main(["report", str(one), str(two), "--out", str(tmp_path / "new" / "both.html")]) == 0


def test_a_file_that_only_mentions_the_mark_late_is_not_ours(tmp_path: Path) -> None:
    notes = tmp_path / "notes.html"
    notes.write_text("x" * 5_000 + '<meta name="generator" content="hyper-rl report">')
    with pytest.raises(UserError, match="not a report"):
        write_page(notes, "page")

"""Verdicts: the rule, what is not run, and every claim in a world where it is true and in one where it is false."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.studies.cells import cell, performance, runs_of, steps_to_solve, task_scale
from hyper_rl.studies.claims import CLAIMS, claims_markdown
from hyper_rl.studies.claims_beta import log_best_beta
from hyper_rl.studies.claims_lengths import whole_episode_probability
from hyper_rl.studies.claims_room import visit_evenness
from hyper_rl.studies.statistics import Estimate, share_of_trials
from hyper_rl.studies.store import RunResult
from hyper_rl.studies.verdicts import (
    Check,
    Claim,
    NotRun,
    Verdict,
    at_least,
    at_most,
    conclude,
    judge,
    judge_all,
    less_than,
    more_than,
    rare,
)
from hyper_rl.training.snapshot import COLUMNS
from made_studies import (
    ROOM,
    all_studies,
    comparison,
    figure_1,
    figure_6,
    lengths_study,
    make_run,
    make_study,
    result,
    sweep_runs,
)

BY_ID = {claim.id: claim for claim in CLAIMS}
DOCS = Path(__file__).parents[1] / "docs" / "claims.md"


@pytest.fixture(scope="module")
def verdicts() -> dict[bool, dict[str, Verdict]]:
    return {true: {v.claim.id: v for v in judge_all(CLAIMS, all_studies(true))} for true in (True, False)}


@pytest.mark.parametrize("name", BY_ID)
def test_a_claim_that_is_true_is_reproduced(verdicts: dict[bool, dict[str, Verdict]], name: str) -> None:
    verdict = verdicts[True][name]
    assert verdict.word == "reproduced", (verdict.note, verdict.deciding)
    assert verdict.study in BY_ID[name].studies


@pytest.mark.parametrize("name", BY_ID)
def test_a_claim_that_is_false_is_contradicted(verdicts: dict[bool, dict[str, Verdict]], name: str) -> None:
    verdict = verdicts[False][name]
    if name == "figure-4-plain-spike":  # a fact about a distribution: there is no world in which it is false
        assert verdict.word == "not run"
    else:
        assert verdict.word == "contradicted", (verdict.note, verdict.deciding)


def test_the_three_outcomes_of_a_threshold() -> None:
    above, below, across = Estimate(2, 1.5, 3), Estimate(0, -1, 0.5), Estimate(1, 0, 2)
    assert [at_least("", x, 1).outcome for x in (above, below, across)] == ["holds", "fails", "open"]
    assert [at_most("", x, 1).outcome for x in (above, below, across)] == ["fails", "holds", "open"]
    assert [more_than("", x, 1).outcome for x in (above, below, across)] == ["holds", "fails", "open"]
    assert [less_than("", x, 1).outcome for x in (above, below, across)] == ["fails", "holds", "open"]


def test_what_is_exactly_at_the_threshold() -> None:
    there = Estimate(1, 1, 1)
    outcomes = [compare("", there, 1).outcome for compare in (at_least, at_most, more_than, less_than)]
    assert outcomes == ["holds", "holds", "fails", "fails"]
    nearly = Estimate(0.8 - 1e-12, 0.8 - 1e-12, 0.8 - 1e-12)  # a sum of floats that should have been 0.8
    assert at_least("", nearly, 0.8).outcome == "holds"


@pytest.mark.parametrize(
    ("hits", "trials", "outcome"), [(0, 10, "holds"), (0, 5, "open"), (1, 10, "open"), (3, 10, "fails")]
)
def test_no_trial_out_of_how_many(hits: int, trials: int, outcome: str) -> None:
    found = share_of_trials(hits, trials)
    assert rare("", found, at_most_hits=0, hits=hits, limit=0.35, refuted_above=0.05).outcome == outcome


@pytest.mark.parametrize(
    ("hits", "trials", "outcome"), [(1, 15, "holds"), (2, 25, "open"), (5, 15, "fails"), (20, 25, "fails")]
)
def test_once_in_all_trials(hits: int, trials: int, outcome: str) -> None:
    found = share_of_trials(hits, trials)
    assert rare("", found, at_most_hits=1, hits=hits, limit=1 / 3, refuted_above=0.1).outcome == outcome


def test_checks_make_a_verdict() -> None:
    def checks(*outcomes: str) -> list[Check]:
        return [Check("", Estimate(0, 0, 0), "", outcome) for outcome in outcomes]  # type: ignore[arg-type]

    assert conclude(checks("holds", "holds")) == "reproduced"
    assert conclude(checks("holds", "open")) == "not reproduced"
    assert conclude(checks("holds", "open", "fails")) == "contradicted"
    assert conclude([]) == "not run"


def test_a_difference_within_the_noise_is_not_reproduced() -> None:
    runs = sweep_runs("Room", "exploit", [1.0], lambda beta: 0.25, noise=0.4)  # 0.09 and 0.49 around 0.2
    verdict = judge(BY_ID["room-exploit-stuck"], [make_study("figure-1", runs)])
    assert verdict.word == "not reproduced"
    assert verdict.deciding is not None and verdict.deciding.outcome == "open"


@pytest.mark.parametrize("scale", ["quick", "custom"])
def test_other_scales_never_give_a_verdict(scale: str) -> None:
    studies = [dataclasses.replace(study, scale=scale) for study in all_studies(True)]
    for verdict in judge_all(CLAIMS, studies):
        assert (verdict.word, verdict.note, verdict.checks) == ("not run", scale, ())


def test_a_quick_study_does_not_hide_the_full_one() -> None:
    quick = dataclasses.replace(figure_1(True), scale="quick")
    assert judge(BY_ID["room-hyper-robust"], [quick, figure_1(False)]).word == "contradicted"


def test_what_is_missing_is_said() -> None:
    assert judge(BY_ID["room-hyper-robust"], []).note == ""
    no_hyper = make_study("figure-1", [run for run in figure_1(True).runs if run.config.method != "hyper"])
    verdict = judge(BY_ID["room-hyper-robust"], [no_hyper])
    assert (verdict.word, verdict.note) == ("not run", "figure-1: Room, Hyper: 0 beta")
    few = make_study("figure-1", [run for run in figure_1(True).runs if run.seed < 4])
    note = judge(BY_ID["room-exploit-stuck"], [few]).note
    assert note == "figure-1: Room, TD3: 4 of 5 runs"


def test_half_a_study_is_no_study() -> None:
    """Five of ten betas, or four of five tasks, may be the easy ones."""
    half = dataclasses.replace(figure_1(True), missing=("Room-hyper-part-2",))
    verdict = judge(BY_ID["room-hyper-robust"], [half])
    assert (verdict.word, verdict.note) == ("not run", "figure-1: Room-hyper-part-2 is not finished")
    assert judge(BY_ID["room-ucbq-window"], [half]).word == "reproduced"
    tasks = dataclasses.replace(comparison("figure-8", True), missing=("Hopper-hyper",))
    assert judge(BY_ID["hyper-comparable-full"], [tasks]).note == "figure-8: Hopper-hyper is not finished"
    assert judge(BY_ID["td3-maze-once"], [tasks]).word == "reproduced"
    robust = dataclasses.replace(figure_6(True), missing=("Walker2d-hyper-robust",))
    assert judge(BY_ID["hyper-more-robust"], [robust]).word == "reproduced"


def test_the_next_study_is_asked_where_the_first_lacks_the_runs() -> None:
    mazes_only = make_study("figure-8", [run for run in comparison("figure-8", True).runs if "Maze" in run.config.task])
    verdict = judge(BY_ID["curiosity-sparse"], [mazes_only, comparison("figure-5", True)])
    assert (verdict.word, verdict.study) == ("reproduced", "figure-5")


def test_the_study_of_the_mazes_stands_in_for_the_figures_and_says_how_long_it_is() -> None:
    mazes = [run for run in comparison("figure-8", True).runs if "Maze" in run.config.task]
    verdict = judge(BY_ID["hyper-all-mazes"], [make_study("mazes", mazes)])
    assert (verdict.word, verdict.study, verdict.note) == ("reproduced", "mazes", "in half the paper's steps")
    more_betas = ("LargeMaze-Medium-hyper-robust~2", "LargeMaze-Medium-hyper-paper~2")
    assert judge(BY_ID["hyper-all-mazes"], [dataclasses.replace(make_study("mazes", mazes), missing=more_betas)]).checks
    first = dataclasses.replace(make_study("mazes", mazes), missing=("LargeMaze-Easy-curiosity-paper",))
    assert judge(BY_ID["hyper-all-mazes"], [first]).note == "mazes: LargeMaze-Easy-curiosity-paper is not finished"
    assert judge(BY_ID["td3-maze-once"], [first]).checks, "nothing in it is about Curiosity"
    preferred = judge(BY_ID["hyper-all-mazes"], [make_study("mazes", mazes), comparison("figure-8", True)])
    assert (preferred.study, preferred.note) == ("figure-8", "")


def test_the_main_comparison_is_about_beta_one_where_there_are_others() -> None:
    """Goals met at other betas are no evidence for or against a sentence on the main comparison."""
    runs = [
        make_run(task, "curiosity", beta, seed, result(0.0, goals=float(beta == 1.0)))
        for task in ("MediumMaze-Medium", "LargeMaze-Medium", "LargeMaze-Hard")
        for beta in (0.1, 1.0, 10.0)
        for seed in range(5)
    ]
    verdict = judge(BY_ID["curiosity-mazes"], [make_study("mazes", runs)])
    assert verdict.word == "reproduced" and [check.statistic.value for check in verdict.checks] == [1.0, 0.0] * 3
    others = [run for run in runs if run.beta != 1.0]
    assert judge(BY_ID["curiosity-mazes"], [make_study("mazes", others)]).note.endswith("Curiosity: 0 of 5 runs")


def test_sweeps_of_the_mazes_are_judged_while_tasks_without_one_are_missing() -> None:
    runs = [
        make_run(task, method, beta, seed, result(level if beta < 1 or method == "hyper" else 0.0))
        for task in ("MediumMaze-Medium", "LargeMaze-Medium")
        for method, level in (("hyper", 0.9), ("curiosity", 0.6), ("decouple", 0.5))
        for beta in (0.1, 1.0, 10.0)
        for seed in range(5)
    ]
    runs += [make_run("LargeMaze-Hard", "hyper", 1.0, seed, result(0.0)) for seed in range(5)]
    not_swept = ("LargeMaze-Easy-hyper-paper", "LargeMaze-Medium-curiosity-robust~2")
    begun = dataclasses.replace(make_study("mazes", runs), missing=not_swept)
    verdict = judge(BY_ID["hyper-more-robust"], [begun])
    assert (verdict.word, verdict.note) == ("reproduced", "two mazes, beta up to 1000, in half the paper's steps")
    half = dataclasses.replace(begun, missing=("LargeMaze-Medium-decouple-paper~2",))
    assert judge(BY_ID["hyper-more-robust"], [half]).note == "mazes: LargeMaze-Medium-decouple-paper~2 is not finished"
    assert judge(BY_ID["hyper-more-consistent"], [half]).checks, "nothing in it is about Decouple"
    assert judge(BY_ID["decouple-mazes"], [half]).checks, "beta 1 is there"
    some_seeds = dataclasses.replace(begun, missing=("LargeMaze-Medium-decouple-paper-part-2",))
    assert judge(BY_ID["decouple-mazes"], [some_seeds]).word == "not run"


def test_claims_are_about_the_paper_and_not_about_the_robust_preset() -> None:
    robust = [make_run("Room", "hyper", 1.0, seed, result(0.0), preset="robust") for seed in range(5)]
    paper = [make_run("Room", "hyper", 1.0, seed, result(1.0)) for seed in range(5)]
    study = make_study("figure-1", [*robust, *paper])
    assert cell(study, "Room", "hyper", 1.0).tolist() == [1.0] * 5


def test_runs_of_exploit_that_differ_in_beta_alone_count_once() -> None:
    study = make_study("figure-1", sweep_runs("Room", "exploit", [0.1, 1.0, 10.0], lambda beta: 0.0))
    assert sorted(run.seed for run in runs_of(study, "Room", "exploit")) == [0, 1, 2, 3, 4]


def test_runs_of_several_settings_are_not_pooled_in_silence() -> None:
    other = {"learner_options": {"gamma": 0.9}}
    runs = [make_run("Room", "hyper", 1.0, seed, result(1.0), **more) for seed in range(5) for more in ({}, other)]
    with pytest.raises(NotRun, match="several settings"):
        cell(make_study("figure-1", runs), "Room", "hyper", 1.0)


def test_performance_is_return_for_locomotion_and_success_elsewhere() -> None:
    final = {"success": 0.3, "return": 70.0}
    assert performance(make_run("Hopper", "hyper", 1.0, 0, final)) == 70.0
    assert performance(make_run("MediumMaze-Easy", "hyper", 1.0, 0, final)) == 0.3
    overflowed = {"success": 0.0, "return": math.nan, "finite": 0.0}
    assert performance(make_run("Hopper", "hyper", 1.0, 0, overflowed)) == 0.0
    with pytest.raises(NotRun, match="no return"):
        performance(make_run("Hopper", "hyper", 1.0, 0, {"success": 0.0, "return": math.nan}))


def test_returns_are_pooled_in_units_of_the_best_cell() -> None:
    study = figure_6(True)
    best = np.mean([performance(run) for run in runs_of(study, "Walker2d", "curiosity", 0.1)])
    assert task_scale(study, "Walker2d") == pytest.approx(best)
    assert task_scale(study, "MediumMaze-Easy") == 1.0


def test_steps_to_solve() -> None:
    def run(success: list[float]) -> float:
        padded = np.array(success + [success[-1]] * (10 - len(success)))
        return steps_to_solve(make_run("Room", "hyper", 1.0, 0, result(1.0), curve={"success": padded}))

    assert run([0.0, 1.0, 0.5, 0.8]) == 400_000
    assert run([1.0]) == 100_000
    assert run([0.0]) == 2_000_000  # never: twice the budget
    assert run([1.0, math.nan, 1.0]) == 300_000


def test_small_numbers_by_hand() -> None:
    assert visit_evenness(np.array([5, 5, 0, 0])) == pytest.approx(0.5)
    assert visit_evenness(np.full(900, 3)) == pytest.approx(1.0)
    assert whole_episode_probability(0.01, 200) == pytest.approx(0.1353, abs=1e-4)
    runs = [np.array([0.0, 1.0]), np.array([1.0, 1.0]), np.array([1.0, 1.0])]
    assert log_best_beta([0.1, 1.0, 10.0], runs) == pytest.approx(0.5)  # 1 and 10 are equally good


def test_bounded_is_judged_only_where_p_is_below_one_over_h() -> None:
    large_p = make_study("bounded", [run for run in lengths_study("bounded", True).runs if run.config.p_end > 0.01])
    verdict = judge(BY_ID["bounded-solves-sooner"], [large_p])
    assert (verdict.word, "p < 1/H" in verdict.note) == ("not run", True)


def test_runs_that_never_solve_the_task_say_nothing_about_lengths() -> None:
    def hopeless(run: RunResult) -> RunResult:
        return dataclasses.replace(run, curve={**run.curve, "success": np.zeros(10)})

    runs = [hopeless(run) for run in lengths_study("bounded", True).runs]
    verdict = judge(BY_ID["bounded-solves-sooner"], [make_study("bounded", runs)])
    assert (verdict.word, "a run that solves the task" in verdict.note) == ("not run", True)


def test_what_never_rises_has_no_peak() -> None:
    runs = sweep_runs("MediumMaze-Easy", "curiosity", [0.1, 1.0, 100.0], lambda beta: 0.0)
    runs += sweep_runs("MediumMaze-Medium", "curiosity", [0.1, 1.0, 100.0], lambda beta: 0.9 if beta < 1 else 0.1)
    verdict = judge(BY_ID["curiosity-peaks-small-beta"], [make_study("figure-6", runs)])
    assert (verdict.word, "1 of at least 2" in verdict.note) == ("not run", True)


def test_entries_are_complete_and_told_apart() -> None:
    assert len(BY_ID) == len(CLAIMS)
    for claim in CLAIMS:
        for field in dataclasses.fields(Claim):
            assert getattr(claim, field.name), f"{claim.id}: {field.name}"
    for asked in ("hyper-smaller-variance", "td3-maze-once", "curiosity-peaks-small-beta", "room-ucbq-window"):
        assert asked in BY_ID


def test_the_page_has_the_list_as_it_is() -> None:
    assert claims_markdown() in DOCS.read_text()


def write_last_rows(folder: Path) -> None:
    """Curves are not kept in results/room: one row per run stands for them, from what is."""
    entries = json.loads((folder / "result.json").read_text())["runs"]
    rows = [{**entry, "step": 1_000_000, "finite": 1} for entry in entries]
    cells = [["" if row.get(name) is None else str(row[name]) for name in COLUMNS] for row in rows]
    (folder / "curve.csv").write_text("\n".join(",".join(line) for line in [list(COLUMNS), *cells]) + "\n")


@pytest.fixture
def room_study(tmp_path: Path) -> Path:
    """The stored runs of the room, arranged as the study figure-1 would have left them."""
    folder, groups = tmp_path / "figure-1", []
    for method in ("exploit", "curiosity", "decouple", "hyper"):
        shutil.copytree(ROOM / method, folder / "groups" / method)
        write_last_rows(folder / "groups" / method)
        config = json.loads((ROOM / method / "config.json").read_text())
        labels = {key: config[key] for key in ("task", "method", "preset", "learner")}
        groups.append({"name": method, "labels": labels, "betas": config["betas"], "seeds": config["seeds"]})
    about = {"version": 1, "name": "figure-1", "title": "Figure 1", "scale": "paper", "groups": groups,
             "command": "hyper-rl study figure-1", "versions": {}}  # fmt: skip
    (folder / "study.json").write_text(json.dumps(about))
    (folder / "study.toml").write_text("")
    return folder


def test_the_command_on_the_stored_room(room_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", str(room_study), "--json", str(tmp_path / "claims.json")]) == 0
    printed = capsys.readouterr().out
    assert "0.189" in printed and "contradicted" in printed and "td3-maze-once" in printed
    written = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [entry["id"] for entry in written] == [claim.id for claim in CLAIMS]
    found = {entry["id"]: entry["verdict"] for entry in written if entry["verdict"] != "not run"}
    # docs/results.md, "The room": a window of beta, but not the one of the text; robust upward and not downward.
    assert found == {
        "room-exploit-stuck": "reproduced",
        "room-ucbq-sensitive": "reproduced",
        "room-ucbq-window": "contradicted",
        "room-small-beta-stuck": "reproduced",
        "room-large-beta-over-explores": "reproduced",
        "room-hyper-robust": "contradicted",
        "room-hyper-large-beta": "reproduced",
        "room-hyper-less-sensitive": "reproduced",
    }
    less = next(entry for entry in written if entry["id"] == "room-hyper-less-sensitive")["checks"][0]
    assert less["value"] == pytest.approx(0.87729 - 0.18864, abs=1e-5)


def test_bad_folders_are_one_line(room_study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", str(room_study), str(ROOM)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "is not a study folder" in error
    assert main(["claims", str(room_study), "--json", str(tmp_path / "nowhere" / "claims.json")]) == 2
    assert "json:" in capsys.readouterr().err


def test_the_list_without_any_study(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--list"]) == 0
    assert capsys.readouterr().out == claims_markdown()
    assert main(["claims"]) == 0
    assert f"{len(CLAIMS)} not run" in capsys.readouterr().out

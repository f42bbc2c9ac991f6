"""Studies that are computed and not trained: folders, refusals, going on, figures, the page, verdicts."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from hyper_rl.cli.main import main
from hyper_rl.errors import UserError
from hyper_rl.report.page import report_page
from hyper_rl.report.study_figures import draw_study
from hyper_rl.studies.claims import CLAIMS
from hyper_rl.studies.computed import ComputedStudy, Part, computed_studies, run_computed
from hyper_rl.studies.runner import StudyInterrupted
from hyper_rl.studies.store import read_study
from hyper_rl.studies.study_file import find_study
from hyper_rl.studies.verdicts import judge_all
from made_studies import linear, table_2

LINEAR_RESULTS = Path(__file__).parents[1] / "results" / "linear"


def count_up(folder: Path, settings: Any) -> None:
    print("working")
    (folder / "numbers.json").write_text(json.dumps(list(range(settings["count"]))))
    (folder / "rows.csv").write_text("a,b\n1,x\n2.5,y\n")


SMALL = ComputedStudy(
    "small", "Small", "For tests",
    tuple(Part(name, count_up, {"paper": {"count": 3}, "quick": {"count": 1}}) for name in ("one", "two")),
)  # fmt: skip


def test_a_finished_part_is_never_computed_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_computed(SMALL, "quick", tmp_path / "s") == ("one", "two")
    assert capsys.readouterr().out == "", "progress is no answer"
    mark = tmp_path / "s" / "parts" / "one" / "mark"
    mark.write_text("")
    shutil.rmtree(tmp_path / "s" / "parts" / "two")
    assert read_study(tmp_path / "s").missing == ("two",)
    assert run_computed(SMALL, "quick", tmp_path / "s") == ("two",)
    assert run_computed(SMALL, "quick", tmp_path / "s") == () and mark.exists()
    found = read_study(tmp_path / "s")
    assert (found.name, found.scale, found.missing, found.runs) == ("small", "quick", (), ())
    assert found.parts["one"] == {"numbers.json": [0], "rows.csv": [{"a": 1, "b": "x"}, {"a": 2.5, "b": "y"}]}
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["parts", "study.json"]


def test_half_a_part_is_no_part(tmp_path: Path) -> None:
    def stop(folder: Path, settings: Any) -> None:
        count_up(folder, settings)
        raise KeyboardInterrupt

    stopped = dataclasses.replace(SMALL, parts=(SMALL.parts[0], dataclasses.replace(SMALL.parts[1], compute=stop)))
    with pytest.raises(StudyInterrupted, match="stopped with 1 of 2"):
        run_computed(stopped, "paper", tmp_path / "s")
    assert read_study(tmp_path / "s").missing == ("two",)
    (tmp_path / "s" / "parts" / ".two.writing").mkdir()  # as after a kill
    assert run_computed(SMALL, "paper", tmp_path / "s") == ("two",)


def test_folders_of_something_else_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_computed(SMALL, "quick", tmp_path / "s")
    with pytest.raises(UserError, match=r"scale: got 'paper', but .* was begun with 'quick'"):
        run_computed(SMALL, "paper", tmp_path / "s")
    with pytest.raises(UserError, match=r"holds another study, 'small'"):
        run_computed(computed_studies()["figure-7"], "quick", tmp_path / "s")
    other = dataclasses.replace(SMALL, parts=(Part("one", count_up, {"quick": {"count": 9}}),))
    with pytest.raises(UserError, match=r"other settings of part 'one': \{'count': 1\}, now \{'count': 9\}"):
        run_computed(other, "quick", tmp_path / "s")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="exists already and is no study folder"):
        run_computed(SMALL, "quick", tmp_path / "mine")
    assert main(["study", "figure-1", "--scale", "quick", "--out", str(tmp_path / "s")]) == 2
    assert "holds another study" in capsys.readouterr().err
    with pytest.raises(UserError, match="table-2"):
        find_study("table-3")


def test_they_are_listed_and_planned_like_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "--list", "--json"]) == 0
    entries = {entry["study"]: entry for entry in json.loads(capsys.readouterr().out)["studies"]}
    assert {"linear", "figure-7", "table-2", "figure-1"} <= set(entries) and list(entries) == sorted(entries)
    assert all(entries[name]["title"] and entries[name]["description"] for name in computed_studies())
    assert main(["study", "linear", "--plan"]) == 0
    assert "table: seeds 20, episodes 3000" in capsys.readouterr().out
    assert main(["study", "table-2"]) == 2 and "out: missing" in capsys.readouterr().err


@pytest.fixture(scope="module")
def mazes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("computed") / "figure-7"
    assert main(["study", "figure-7", "--out", str(folder), "--json"]) == 0
    return folder


def test_the_mazes_are_drawn(mazes: Path) -> None:
    found = read_study(mazes).parts["layouts"]["layouts.json"]["mazes"]
    assert [maze["horizon"] for maze in found] == [500, 200, 1000, 500, 300]
    assert found[0]["start"] == [1, 1] and found[0]["goal"] == [6, 6] and found[0]["shortest_path_cells"] == 10
    with Image.open(mazes / "figures" / "figure-7.png") as image:
        assert image.width > 1_500
    svg = (mazes / "figures" / "figure-7.svg").read_text()
    draw_study(read_study(mazes), mazes / "again")
    assert (mazes / "again" / "figure-7.svg").read_text() == svg
    page = report_page([read_study(mazes)])
    assert '"pictures":[{"name":"figure-7"' in page and "LargeMaze-Hard" in page and len(page) < 6_000_000


def test_a_quick_result_judges_nothing() -> None:
    quick = [dataclasses.replace(study, scale="quick") for study in (linear(True), table_2(True))]
    assert {verdict.word for verdict in judge_all(CLAIMS, quick)} == {"not run"}
    half = dataclasses.replace(linear(True), parts={"table": linear(True).parts["table"]})
    words = {verdict.claim.id: (verdict.word, verdict.note) for verdict in judge_all(CLAIMS, [half])}
    assert words["linear-near-optimal"][0] == "reproduced"
    assert words["linear-scaling"] == ("not run", "linear: part complexity is not finished")


def test_the_stored_results_on_linear_mdps_are_judged(tmp_path: Path) -> None:
    """Those of results/linear, arranged as the study would have left them."""
    names = ("table", "confidence", "complexity")
    for name in names:
        (tmp_path / "parts" / name).mkdir(parents=True)
        for path in LINEAR_RESULTS.glob(f"{name}*"):
            shutil.copy(path, tmp_path / "parts" / name)
    about = {"version": 1, "name": "linear", "title": "T", "scale": "paper", "groups": [], "command": "c",
             "versions": {}, "parts": [{"name": name, "settings": {}} for name in names]}  # fmt: skip
    (tmp_path / "study.json").write_text(json.dumps(about))
    study = read_study(tmp_path)
    found = {verdict.claim.id: verdict.word for verdict in judge_all(CLAIMS, [study]) if verdict.word != "not run"}
    # docs/linear.md: the gain comes from judging Q, and repositioning itself costs on RiverSwim.
    assert found == {
        "linear-near-optimal": "reproduced",
        "linear-upper-bound": "reproduced",
        "linear-lower-bound": "reproduced",
        "linear-scaling": "reproduced",
        "linear-any-p": "reproduced",
        "linear-more-robust": "reproduced",
        "linear-repositioning": "contradicted",
    }
    drawn = {path.name for path in draw_study(study, tmp_path / "figures")}
    assert drawn == {"linear-beta.png", "linear-complexity.png"}

"""The command, as a person at a terminal or a script meets it."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hyper_rl import __version__
from hyper_rl.cli.main import main
from hyper_rl.cli.tables import print_result
from hyper_rl.envs.gym_tasks import REGISTRATIONS
from hyper_rl.envs.gym_tasks.minigrid import DEFAULT_CAP as MINIGRID_LIMIT
from hyper_rl.training.run_folder import RunFolder

pytestmark = pytest.mark.xdist_group("command")  # one process, so that each program compiles once

BETAS, SEEDS = (0.005, 1.0, 10.0), (5, 6)
RUNS = [(beta, seed) for beta in BETAS for seed in SEEDS]
WORDS = "Room --beta 0.005 1 10 --seeds 2 --seed 5 --steps 2500 --eval-every 1000 --eval-episodes 4 --preset paper"
MODULE = [sys.executable, "-m", "hyper_rl"]


class Trained:
    """One `hyper-rl train --json` and everything it said."""

    def __init__(self, folder: Path, out: str, err: str) -> None:
        self.folder, self.out, self.err = folder, out, err

    def json(self, name: str) -> Any:
        return json.loads((self.folder / name).read_text())


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Through a real process, with nothing attached to a terminal."""
    folder = tmp_path_factory.mktemp("command") / "run"
    done = subprocess.run(
        [*MODULE, "train", *WORDS.split(), "--out", str(folder), "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Trained(folder, done.stdout, done.stderr)


# The front door


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_names_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    said = capsys.readouterr()
    for command in ("train", "evaluate", "tasks", "demo", "linear"):
        assert f"\n  {command} " in said.out
    assert said.err == ""


def test_no_command_shows_the_usage_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: hyper-rl" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hyper-rl {__version__}\n"


def test_train_help_shows_every_hyper_parameter_and_the_defaults_of_the_preset(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = {}
    for preset in ("paper", "robust"):
        with pytest.raises(SystemExit) as stop:
            main(["train", "--preset", preset, "--help"])
        assert stop.value.code == 0
        shown[preset] = capsys.readouterr().out
    for option in ("--method", "--learner", "--bonus", "--beta", "--steps", "--seeds", "--seed", "--warmup", "--out"):
        assert option in shown["robust"]
    assert shown["robust"].splitlines()[0].endswith(" TASK")
    for option in ("--td3.tau", "--tabular-q.step-size", "--disagreement.share", "--room.subgoal", "--eval-every"):
        assert option in shown["robust"]
    rates = [re.search(r"--rnd\.lr.*?default: ([\d.e-]+)", shown[name], re.DOTALL) for name in shown]
    assert [rate and rate.group(1) for rate in rates] == ["0.0001", "0.001"], "learning rate of RND"


def test_tasks_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "--json"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    names = {task["task"] for task in tasks}
    mazes = {"MediumMaze-Easy", "MediumMaze-Medium", "LargeMaze-Easy", "LargeMaze-Medium", "LargeMaze-Hard"}
    assert names >= {"Room", *mazes} and not any(name.startswith("Probe") for name in names)
    horizons = {task["task"]: task["horizon"] for task in tasks}
    assert [horizons[name] for name in sorted(mazes)] == [1000, 300, 500, 500, 200]
    limits = {name: registered.max_episode_steps or MINIGRID_LIMIT for name, registered in REGISTRATIONS.items()}
    assert {name: horizons[name] for name in limits} == limits
    assert main(["tasks"]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in names) and "ProbeCredit-Discrete" in table


# Training


def test_json_is_the_only_thing_on_standard_output(trained: Trained) -> None:
    assert trained.out.count("\n") == 1 and trained.out.endswith("\n")
    assert json.loads(trained.out) == {**trained.json("result.json"), "folder": str(trained.folder)}


def test_progress_goes_to_standard_error_as_plain_lines(trained: Trained) -> None:
    lines = trained.err.splitlines()
    assert lines[0].startswith("memory: ") and "6 runs" in lines[0]
    assert "hyper on Room (6 runs) 2500/2500 steps" in lines[-1]
    assert "steps/s" in lines[-1] and "left" in lines[-1]
    assert "\x1b" not in trained.err and "\r" not in trained.err


def test_the_run_folder_holds_what_it_should(trained: Trained) -> None:
    names = {str(path.relative_to(trained.folder)) for path in trained.folder.rglob("*") if path.is_file()}
    agents = {f"runs/{run}/agent/{file}" for run in range(6) for file in ("agent.json", "policy.safetensors")}
    saved = {f"checkpoint/step-000000002500/{file}" for file in ("checkpoint.json", "state.safetensors")}
    assert names == {"config.json", "curve.csv", "result.json", "timing.json", "visits.csv", *agents, *saved}


def test_the_result_names_everything_and_every_run(trained: Trained) -> None:
    result = trained.json("result.json")
    named = {name: result[name] for name in ("task", "method", "learner", "bonus", "preset", "steps")}
    assert named == {
        "task": "Room", "method": "hyper", "learner": "tabular_q", "bonus": "counts", "preset": "paper", "steps": 2500
    }  # fmt: skip
    assert {"hyper-rl", "jax", "jaxlib", "numpy", "python"} <= set(result["versions"])
    assert [(run["beta"], run["seed"]) for run in result["runs"]] == RUNS
    for run in result["runs"]:
        assert {"success", "return", "behaviour_success", "finite"} <= set(run)
        assert run["finite"] is True and 0 <= run["success"] <= 1 and 0 <= run["behaviour_success"] <= 1
    assert not any("second" in name for name in result), "speeds belong in timing.json"
    assert trained.json("timing.json")["steps_per_second"] > 0


def test_the_configuration_writes_every_number_out(trained: Trained) -> None:
    config = trained.json("config.json")
    assert config["betas"] == list(BETAS) and config["seeds"] == list(SEEDS)
    assert (config["p_start"], config["p_end"]) == (pytest.approx(0.01), 0.01)
    assert config["learner_options"]["step_size"] == 0.5 and config["task_options"]["horizon"] == 100
    # A JAX task has no environment on the host; everything else is a number or a name.
    assert config.pop("host") is None and None not in config.values()


def test_the_curve_has_one_row_per_evaluation_and_run(trained: Trained) -> None:
    with (trained.folder / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["step"]), int(row["run"])) for row in rows] == [
        (step, run) for step in (1000, 2000, 2500) for run in range(6)
    ]
    assert [(float(row["beta"]), int(row["seed"])) for row in rows[:6]] == RUNS
    needed = {
        "success", "return", "steps_to_goal", "discounted_return", "critic_estimate", "behaviour_success",
        "behaviour_return", "reposition_success", "explore_success", "goals", "cells_visited", "bonus_mean",
        "bonus_scale", "mean_length", "p", "task_loss", "explorer_loss", "finite",
    }  # fmt: skip
    assert needed <= set(rows[0])
    assert {row[name] for row in rows for name in ("task_actor_loss", "bonus_loss")} == {""}, "tables and counts"


def test_every_step_is_a_visit(trained: Trained) -> None:
    with (trained.folder / "visits.csv").open() as file:
        rows = list(csv.DictReader(file))
    for run in range(6):
        assert sum(int(row["visits"]) for row in rows if int(row["run"]) == run) == 2500 + 1


def test_another_process_gives_the_same_bytes_and_a_table(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """How often it is judged changes nothing that is learned; without --json there is a line per beta."""
    often = tmp_path / "often"
    assert main(["train", *WORDS.replace("--eval-every 1000", "--eval-every 300").split(), "--out", str(often)]) == 0
    said = capsys.readouterr()
    assert f"run folder: {often}" in said.out and "hyper on Room" in said.out
    assert all(f"{beta:g}" in said.out for beta in BETAS)
    for name in ("visits.csv", *(f"runs/{run}/agent/policy.safetensors" for run in range(6))):
        assert (often / name).read_bytes() == (trained.folder / name).read_bytes(), name


@pytest.mark.parametrize(("has_cells", "told"), [(True, "0.25"), (False, "-")])
def test_cells_are_told_only_where_the_task_has_some(
    has_cells: bool, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = {"beta": 1.0, "success": 1.0, "return": 1.0, "behaviour_success": 1.0, "goals": 3, "finite": True}
    result = {"method": "hyper", "task": "Room", "steps": 9, "preset": "paper"}
    print_result({**result, "runs": [{**run, "cells_visited": 0.25}]}, Path("run"), has_cells=has_cells)
    row = next(line for line in capsys.readouterr().out.splitlines() if "yes" in line)
    assert row.replace("│", " ").split()[-2] == told


def test_the_default_folder_is_named_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *WORDS.split()]) == 0
    assert (tmp_path / "runs" / "Room-hyper-paper" / "result.json").is_file()


def test_exploit_has_no_explorer_to_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "Room --method exploit --steps 300 --eval-every 100 --eval-episodes 2 --json"
    assert main(["train", *words.split(), "--out", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)["bonus"] == "none"
    with (tmp_path / "run" / "curve.csv").open() as file:
        row = next(csv.DictReader(file))
    assert row["explorer_loss"] == row["bonus_mean"] == row["mean_length"] == row["p"] == ""
    assert row["task_loss"] != ""


# Evaluating


def evaluate(folder: Path, words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["evaluate", str(folder), *words.split(), "--json"]) == 0
    said = capsys.readouterr()
    assert said.out.count("\n") == 1
    return json.loads(said.out)


def test_evaluate_judges_every_run_or_one(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    everything = evaluate(trained.folder, "--episodes 7", capsys)
    assert (everything["task"], everything["method"], everything["episodes"]) == ("Room", "hyper", 7)
    assert [(run["run"], run["beta"], run["seed"]) for run in everything["runs"]] == [
        (run, beta, seed) for run, (beta, seed) in enumerate(RUNS)
    ]
    assert evaluate(trained.folder, "--episodes 7", capsys) == everything
    alone = evaluate(trained.folder, "--episodes 7 --run 4", capsys)
    assert alone["runs"] == [everything["runs"][4]]
    assert main(["evaluate", str(trained.folder), "--episodes", "7", "--run", "4"]) == 0
    assert "hyper on Room, 7 episodes each" in capsys.readouterr().out


def test_evaluate_judges_an_agent_that_is_all_there_is(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The two files of one agent, taken out of their run folder."""
    shutil.copytree(RunFolder(trained.folder).agent(4), tmp_path / "agent")
    whole, alone = (
        evaluate(trained.folder, "--episodes 7 --run 4", capsys),
        evaluate(tmp_path / "agent", "--episodes 7", capsys),
    )
    whole["runs"][0]["run"] = 0
    assert alone == whole
    assert main(["evaluate", str(tmp_path / "agent"), "--run", "1"]) == 2
    assert "between 0 and 0" in capsys.readouterr().err


def test_evaluate_leaves_the_folder_alone(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.folder.rglob("*")}
    evaluate(trained.folder, "--episodes 7 --run 0", capsys)
    assert {path: path.stat().st_mtime_ns for path in trained.folder.rglob("*")} == before


# In a pipe


def test_a_reader_that_has_gone_is_no_error_message() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([*MODULE, "tasks", "--json"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == "" and done.returncode == 141

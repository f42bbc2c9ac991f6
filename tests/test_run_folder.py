"""The run folder: what is written can be read back, and nothing that exists is overwritten."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hyper_rl.training.run_folder as run_folder
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import Config
from hyper_rl.errors import UserError
from hyper_rl.learners.tabular_q import TabularQPolicy
from hyper_rl.training.agent_file import read_agent, write_agent
from hyper_rl.training.checkpoint import flatten
from hyper_rl.training.run_folder import RunFolder, summarise_runs, write_atomically
from hyper_rl.training.snapshot import COLUMNS


def config_of(words: str) -> Config:
    return resolve(parse(words.split()))


@pytest.fixture
def config() -> Config:
    return config_of("Room --beta 0.1 1 --seeds 1 --steps 1000 --eval-every 100")


@pytest.fixture
def folder(tmp_path: Path, config: Config) -> RunFolder:
    made = RunFolder.create(tmp_path / "some" / "run", config)
    made.start_curve()
    return made


def row(step: int, run: int, **values: float) -> dict[str, float]:
    return {**dict.fromkeys(COLUMNS, math.nan), "step": step, "run": run, **values}


# Creating and opening


def test_the_configuration_comes_back(folder: RunFolder, config: Config) -> None:
    opened, read = RunFolder.open(folder.path)
    assert opened.path == folder.path
    assert read.to_json() == config.to_json()
    assert read.runs == config.runs


@pytest.mark.parametrize(
    "words",
    [
        "MediumMaze-Easy --preset robust --td3.widths 8 8 --beta 0.1 3",
        "MediumMaze-Easy --method exploit --horizon 50",
        "Room --room.subgoal 3 4 --p-end 1/H --tabular-q.replay 3",
    ],
)
def test_a_read_configuration_builds_the_same_parts(words: str) -> None:
    made = config_of(words)
    read = Config.from_json(made.to_json(), "config.json")
    read.check()
    assert read.to_json() == made.to_json()


def test_an_existing_folder_is_never_touched(folder: RunFolder, config: Config, tmp_path: Path) -> None:
    before = folder.config.read_bytes()
    for path in (folder.path, folder.config):
        with pytest.raises(UserError, match="exists already"):
            RunFolder.create(path, config)
    assert folder.config.read_bytes() == before
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", config)


def test_a_folder_without_a_configuration_is_no_run_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path)
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data | {"version": 99}, "format version 99, this program reads 2"),
        (lambda data: data | {"colour": "red"}, "colour"),
        (lambda data: {name: value for name, value in data.items() if name != "betas"}, "betas"),
        (lambda data: [1], "config.json"),
        (lambda data: data | {"betas": 3}, "config.json"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_refused_by_name(change: Any, said: str, folder: RunFolder) -> None:
    folder.config.write_text(json.dumps(change(json.loads(folder.config.read_text()))))
    with pytest.raises(UserError) as error:
        RunFolder.open(folder.path)
    assert said in str(error.value) and str(folder.config) in str(error.value)


def test_a_configuration_cut_short_is_refused_by_name(folder: RunFolder) -> None:
    folder.config.write_text(folder.config.read_text()[:50])
    with pytest.raises(UserError, match=r"config\.json"):
        RunFolder.open(folder.path)


def test_no_result_says_how_to_get_one(folder: RunFolder) -> None:
    with pytest.raises(UserError, match=f"--resume {folder.path}"):
        folder.read_result()


def test_a_damaged_result_is_one_line(folder: RunFolder) -> None:
    folder.result.write_text('{"task": "Roo')
    with pytest.raises(UserError, match=r"result\.json"):
        folder.read_result()


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, "old")

    def crash(path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_folder, "flush", crash)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert path.read_text() == "old"


# Curve and visits


def test_the_curve_comes_back_to_the_last_digit(folder: RunFolder) -> None:
    values = (0.1, 1 / 3, 1e-300, -0.0, 12345678.0, float(np.float32(0.1)), 1e22)
    folder.append_curve([row(100, 0, success=value) for value in values])
    folder.append_curve([row(200, 1, finite=1.0)])
    curve = folder.read_curve()
    assert list(curve) == list(COLUMNS)
    assert curve["success"][:-1].tolist() == list(values)
    assert math.isnan(curve["success"][-1]) and curve["finite"][-1] == 1
    assert curve["step"].tolist() == [100] * len(values) + [200]


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_a_diverged_number_stays_visible_in_the_curve(value: float, folder: RunFolder) -> None:
    folder.append_curve([row(100, 0, task_loss=value)])
    assert folder.read_curve()["task_loss"].tolist() == [value]


def test_an_empty_curve_has_empty_columns(folder: RunFolder) -> None:
    assert all(column.size == 0 for column in folder.read_curve().values())


def test_the_curve_is_cut_back_to_a_checkpoint(folder: RunFolder) -> None:
    folder.append_curve([row(100, 0)])
    kept = folder.curve.read_bytes()
    folder.append_curve([row(200, 0)])
    folder.cut_curve(len(kept))
    assert folder.curve.read_bytes() == kept


def test_visits_come_back(folder: RunFolder) -> None:
    visits = np.arange(6, dtype=np.int32).reshape(2, 3)
    folder.write_visits(visits)
    assert folder.read_visits().tolist() == visits.tolist()


# The result


def test_the_result_is_worked_out_from_the_end_of_the_curve(folder: RunFolder, config: Config) -> None:
    """Success: the mean of the last five evaluations. Behaviour: the episodes ended in the last tenth of the steps."""
    for step in range(100, 1001, 100):
        good = {"success": step / 1000, "return": 2.0, "steps_to_goal": 7.0, "goals": step, "finite": 1.0}
        last = {"episodes": 4.0, "behaviour_success": 0.75, "behaviour_return": 3.0}
        before = {"episodes": 100.0, "behaviour_success": 0.0, "behaviour_return": 0.0}
        never = {"success": 0.0, "return": 0.0, "goals": 0, "finite": float(step != 300), "episodes": 0.0}
        folder.append_curve([row(step, 0, **good, **(last if step == 1000 else before)), row(step, 1, **never)])
    result = summarise_runs(config, folder.read_curve())
    good_run, bad_run = result["runs"]
    assert good_run["success"] == pytest.approx(0.8)
    assert (good_run["behaviour_success"], good_run["behaviour_return"]) == (0.75, 3.0)
    assert (good_run["goals"], good_run["steps_to_goal"], good_run["finite"]) == (1000, 7.0, True)
    assert bad_run["steps_to_goal"] is None and bad_run["behaviour_success"] is None, "JSON has no NaN"
    assert bad_run["finite"] is False, "once not finite is not finite"
    no_success = dataclasses.replace(config, task="Pendulum")
    assert summarise_runs(no_success, folder.read_curve())["runs"] == result["runs"], (
        "where there were some, nobody asks"
    )
    curve = {name: values[folder.read_curve()["run"] == 1] for name, values in folder.read_curve().items()}
    one_run = dataclasses.replace(config, betas=config.betas[:1], seeds=config.seeds[:1])
    alone = {**curve, "run": np.zeros_like(curve["run"])}
    (told,) = summarise_runs(one_run, alone)["runs"]
    (untold,) = summarise_runs(dataclasses.replace(one_run, task="Pendulum"), alone)["runs"]
    assert (told["success"], told["goals"]) == (0.0, 0)
    assert untold["success"] is untold["behaviour_success"] is untold["goals"] is None and untold["return"] == 0.0
    folder.write_result(result)
    assert folder.read_result() == result
    assert "NaN" not in folder.result.read_text()


# Agents


def test_an_agent_comes_back_and_is_refused_when_damaged(folder: RunFolder, config: Config) -> None:
    path = folder.agent(1)
    table = jnp.asarray(np.random.default_rng(0).standard_normal((900, 4)), jnp.float32)
    write_agent(path, config, 1, 1000, TabularQPolicy(table))
    agent = read_agent(path)
    assert np.asarray(agent.policy.q).tobytes() == np.asarray(table).tobytes()
    assert (agent.meta["beta"], agent.meta["seed"], agent.meta["step"]) == (1.0, 0, 1000)
    assert sorted(file.name for file in path.iterdir()) == ["agent.json", "policy.safetensors"]
    assert list(flatten(TabularQPolicy(table))) == [".q"]

    meta, policy = path / "agent.json", path / "policy.safetensors"
    for file, text in ((policy, policy.read_bytes()[:100]), (meta, b"{"), (meta, b'{"format_version": 99}')):
        whole = file.read_bytes()
        file.write_bytes(text)
        with pytest.raises(UserError, match="agent"):
            read_agent(path)
        file.write_bytes(whole)
    policy.unlink()
    with pytest.raises(UserError, match="not an agent folder"):
        read_agent(path)


def test_an_agent_of_another_task_is_refused(folder: RunFolder, config: Config) -> None:
    write_agent(folder.agent(0), config, 0, 1000, TabularQPolicy(jnp.zeros((4, 2), jnp.float32)))
    with pytest.raises(UserError, match=r"\.q is float32\[4, 2\], expected float32\[900, 4\]"):
        read_agent(folder.agent(0))

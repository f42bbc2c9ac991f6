"""One task, two backends: an agent trained on the compiled maze is judged on MuJoCo, and the other way round."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve

pytestmark = pytest.mark.xdist_group("backends")

TINY = "--method exploit --steps 300 --warmup 150 --eval-every 300 --eval-episodes 1 --td3.widths 8 8"


def judge(folder: Path, capsys: pytest.CaptureFixture[str], words: str = "") -> dict[str, object]:
    capsys.readouterr()
    assert main(f"evaluate {folder} --episodes 3 --json {words}".split()) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_an_agent_changes_backends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"train MediumMaze-Medium --out {tmp_path / 'jax'} {TINY}".split()) == 0
    at_home, abroad = (judge(tmp_path / "jax", capsys, words) for words in ("", "--backend mujoco"))
    assert (at_home["backend"], abroad["backend"]) == ("jax", "mujoco")
    assert main(f"train MediumMaze-Medium --backend mujoco --out {tmp_path / 'mujoco'} {TINY}".split()) == 0
    config = json.loads((tmp_path / "mujoco" / "config.json").read_text())
    assert config["task"] == "MediumMaze-Medium" and config["host"]["env_id"] == "hyper_rl/MediumMaze-Medium-v0"
    assert config["host"]["spec"]["horizon"] == 200 and config["host"]["spec"]["cells"] == 26
    at_home, abroad = (judge(tmp_path / "mujoco", capsys, words) for words in ("", "--backend jax"))
    assert (at_home["backend"], abroad["backend"]) == ("mujoco", "jax")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train HalfCheetah --backend jax", "backend: got 'jax', but HalfCheetah is only a Gymnasium environment"),
        ("train Pendulum --backend mujoco", "backend: got 'mujoco', but Pendulum exists only as a JAX task"),
        ("train Room --backend pybullet", "backend: unknown 'pybullet'"),
        ("train Room --success reward", "success: got 'reward', must be left out for the JAX task Room"),
        ("train Pendulum-v1 --env-module no_such_module", "no_such_module"),
        ("train Pendulum-v1 --env.gravity 3", "gravity"),
        ("train Pendulum-v1 --horizon 1000", "horizon: got 1000, must be at most 200"),
        ("train Pendulum-v1 --success often", "success: unknown 'often'"),
        ("train Pendulum-v1 --env-workers -1", "env_workers: got -1"),
        ("train Pendulum-v1 --env-workers 3", "env_workers: got 3"),
        ("train Pendulum-v1 --log pigeon", "log: unknown 'pigeon'"),
        ("train Pendulum-v1 --train-every 0", "train_every: got 0"),
        ("train Room --train-every 2", "train_every: got 2, must be 1"),
        ("train Room --normalise-observations --preset paper", "normalise_observations"),
        ("train PongNoFrameskip-v4", "PongNoFrameskip-v4"),
        ("train CartPole-v1 --learner td3", "'td3'"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    words: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main([*words.split(), "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1 and says in error[0], error
    assert not out.exists()


@pytest.mark.parametrize(
    "words, normalised",
    [
        ("MediumMaze-Easy", False),  # its observations are of order one
        ("MediumMaze-Easy --normalise-observations", True),
        ("MediumMaze-Easy --backend mujoco", False),
        ("hyper_rl/MediumMaze-Easy-v0", False),
        ("Pendulum", True),
        ("Pendulum --no-normalise-observations", False),
        ("Pendulum-v1", True),
        ("Pendulum --preset paper", False),
        ("Pendulum --preset paper --normalise-observations", True),
        ("Room", False),
    ],
)
def test_what_learners_see_follows_the_preset_and_the_task(words: str, normalised: bool) -> None:
    assert resolve(parse(words.split())).normalise_observations is normalised


def test_a_task_of_ours_has_the_same_settings_by_its_gymnasium_id() -> None:
    by_name = resolve(parse(["MediumMaze-Easy", "--backend", "mujoco"]))
    by_id = resolve(parse(["hyper_rl/MediumMaze-Easy-v0"]))
    assert dataclasses.replace(by_id, task=by_name.task) == by_name

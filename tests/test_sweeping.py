"""`hyper_rl.sweep`: several betas and seeds as one call, in the command's own run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyper_rl
import toy_envs
from hyper_rl import Sweep, sweep
from hyper_rl.errors import UserError
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.training.run_folder import RunFolder

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("sweeping")

CALL: dict[str, Any] = {"betas": (0.01, 0.1), "seeds": 2, "steps": 4_000, "eval_every": 2_000, "eval_episodes": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    return sweep("Room", out=tmp_path_factory.mktemp("sweep") / "room", **CALL)


def test_every_beta_is_trained_with_every_seed(trained: Sweep) -> None:
    assert [(run["beta"], run["seed"]) for run in trained.runs] == [(0.01, 0), (0.01, 1), (0.1, 0), (0.1, 1)]
    assert trained.config.task == "Room" and trained.config.method == "hyper" and trained.betas == (0.01, 0.1)
    assert set(trained.means()) == {0.01, 0.1} and [len(v) for v in trained.values("goals").values()] == [2, 2]
    curve = trained.curve()
    assert len(curve["step"]) == 8 and set(curve["beta"]) == {0.01, 0.1}
    nobody_got_there = trained.means("steps_to_goal")
    assert all(np.isnan(value) for value in nobody_got_there.values())
    score = trained.robustness()
    assert score.low <= score.value <= score.high


def test_an_agent_of_it_predicts(trained: Sweep) -> None:
    agent = trained.agent(beta=0.1, seed=1)
    assert isinstance(agent, hyper_rl.Hyper) and agent.config.betas == (0.1,) and agent.config.seeds == (1,)
    assert agent.predict(0)[0] in range(4)
    with pytest.raises(
        UserError, match=r"agent: beta 0.1 and seed None name 2 runs .* must name one of: beta 0.01 seed 0"
    ):
        trained.agent(beta=0.1)


def test_the_same_call_reads_what_is_there_and_another_is_refused(trained: Sweep) -> None:
    before = RunFolder(trained.folder).result.stat().st_mtime_ns
    again = sweep("Room", out=trained.folder, **CALL)
    assert again == trained == Sweep.read(trained.folder)
    assert RunFolder(trained.folder).result.stat().st_mtime_ns == before
    with pytest.raises(
        UserError, match=r"betas: got \[0.01\], but .* was made with \[0.01, 0.1\]; give another folder"
    ):
        sweep("Room", out=trained.folder, **{**CALL, "betas": 0.01})


def test_it_is_what_the_command_trains(trained: Sweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from hyper_rl.cli.train import run_train

    words = "Room --beta 0.01 0.1 --seeds 2 --steps 4000 --eval-every 2000 --eval-episodes 2 --json"
    assert run_train([*words.split(), "--out", str(tmp_path / "command")]) == 0
    capsys.readouterr()
    for name in ("config.json", "curve.csv"):
        assert (tmp_path / "command" / name).read_bytes() == (trained.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ({"task": object()}, "task: got .* must be a task's name or a Gymnasium id"),
        ({"seeds": 0}, "seeds: got 0, must be a whole number >= 1"),
        ({"seeds": (3, 3)}, r"seeds: got \[3, 3\], must be a list without repetitions"),
        ({"warmup": 4_000}, "warmup: got 4000, must be below the 4000 steps"),
        ({"method": 3}, "method: got 3, must be one of"),
        ({"checkpoint_seconds": "x"}, "checkpoint_seconds: got 'x', must be a number"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds: got -1, must be a number > 0"),
        ({"env_workers": "2"}, "env_workers: got '2', must be a whole number >= 0"),
        ({"log": None}, "log: got None, must be several of"),
        ({"log": "tensorboard"}, r"log: got 'tensorboard', must be several of .* log=\('tensorboard',\)"),
        ({"seeds": [0, -1]}, "seed: got -1"),
        ({"betas": ["much"]}, "beta: got 'much', must be a number"),
        ({"steps": 10.5}, "steps: got 10.5"),
        ({"gamma": 0.9}, r"gamma: belongs to the learner .* learner=TD3\(gamma=0.9\)"),
        ({"curiosity": 1}, "curiosity: not a setting; there are backend, betas, bonus"),
        ({"method": "exploit", "bonus": "counts"}, "bonus: got 'counts', must be left out"),
        ({"task": "toy/Steps-v0", "env_kwargs": {"wrong": print}}, "env_kwargs: wrong cannot be written to a file"),
        ({"learner": "tabular"}, "learner: unknown 'tabular'"),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_bad_input_is_refused_before_anything_is_made(call: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        sweep(**{"task": "Room", "out": tmp_path / "new", **CALL, **call})
    assert not (tmp_path / "new").exists()


def test_numbers_in_any_form_name_the_same_runs(trained: Sweep) -> None:
    betas = np.array([0.01, 0.1])
    assert sweep("Room", out=trained.folder, **{**CALL, "betas": betas, "seeds": np.int64(2)}) == trained
    assert trained.agent(beta=float(np.float32(0.1)), seed=1).config.betas == (0.1,)
    learner = TabularQ(step_size=np.float32(0.25))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"learner_options.step_size: got 0.25, but .* made with 0.5; give another"):
        sweep("Room", out=trained.folder, learner=learner, **CALL)


def test_a_column_that_is_not_there_is_named(trained: Sweep) -> None:
    with pytest.raises(UserError, match="column: got 'reward', must be one of behaviour_return"):
        trained.means("reward")

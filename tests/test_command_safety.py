"""What the command refuses rather than do something else without a word, and errors of the system in one line."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hyper_rl.cli.evaluate import find_agents
from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import build_parts, make_task
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.training import checkpoint
from hyper_rl.training.agent_file import write_agent
from hyper_rl.training.checkpoint import META_FILE, STATE_FILE, list_checkpoints

pytestmark = pytest.mark.xdist_group("command-safety")

SMALL_ROOM = ("--room.size", "10", "--room.subgoal", "6", "6", "--room.goal-reward", "5", "--horizon", "40")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("room") / "run"
    assert main(["train", "Room", "--steps", "4000", *SMALL_ROOM, "--beta", "0.1", "--out", str(folder)]) == 0
    return folder


def judged(capsys: pytest.CaptureFixture[str], folder: Path, *more: str) -> dict[str, Any]:
    code, text = said(capsys, "evaluate", str(folder), "--episodes", "3", "--json", *more)
    assert code == 0, text
    result: dict[str, Any] = json.loads(text)["runs"][0]
    return result


def test_the_other_version_of_a_task_has_the_options_it_was_trained_with(
    room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = judged(capsys, room), judged(capsys, room, "--backend", "gymnasium")
    assert here["return"] > 0
    for name, value in here.items():
        assert there[name] == (None if value is None else pytest.approx(value, rel=1e-5)), name


def test_a_policy_for_other_observations_is_not_judged(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(room, changed)
    config = json.loads((changed / "config.json").read_text())
    config["task_options"] = {}
    (changed / "config.json").write_text(json.dumps(config))
    code, text = said(capsys, "evaluate", str(changed), "--backend", "gymnasium")
    assert code == 2 and "Discrete(n=900)" in text and "Discrete(n=100)" in text


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("train", "Room", "--beta", "0.1", "--beta", "1"), "beta"),
        (("train", "Room", "--steps=1000", "--steps", "2000"), "steps"),
        (("train", "Room", "--eval-every", "10", "--eval_every", "20"), "eval-every"),
        (("evaluate", "nowhere", "--episodes", "1", "--episodes", "2"), "episodes"),
    ],
)
def test_an_option_given_twice_is_refused(
    words: tuple[str, ...], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *words)
    assert code == 2 and f"{field}: given twice" in text


def test_numbers_that_would_be_taken_for_others(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("evaluate", str(room), "--seed", "4294967301"), ("render", str(room), "--seed", "4294967296")):
        code, text = said(capsys, *words)
        assert code == 2 and "4294967295" in text
    code, text = said(capsys, "render", str(room), "--fps", "0")
    assert code == 2 and "fps: got 0" in text


def test_an_error_of_the_system_is_one_line(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "somewhere/file")

    monkeypatch.setattr("hyper_rl.cli.evaluate.judge_agents", lambda *_, **__: full())
    code, text = said(capsys, "evaluate", str(room))
    assert (code, text) == (2, "hyper-rl: error: somewhere/file: No space left on device\n")


def test_a_disk_that_is_full_leaves_no_half_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(checkpoint, "save_file", full)
    position = checkpoint.Position(1, 0, 0, checkpoint.head_sha256(tmp_path / "curve.csv", 0))
    with pytest.raises(OSError, match="No space left on device"):
        checkpoint.write_checkpoint(tmp_path / "checkpoint", {"a": np.zeros(2)}, position, keep=1)
    assert not list((tmp_path / "checkpoint").iterdir())


def test_a_checkpoint_from_before_winners_were_known_goes_on(
    room: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    shutil.copytree(room, old)
    shutil.copytree(room, new)
    path = list_checkpoints(old / "checkpoint")[0]
    arrays = {name: array for name, array in load_file(path / STATE_FILE).items() if not name.endswith("winner")}
    assert len(arrays) == len(load_file(path / STATE_FILE)) - 1
    save_file(arrays, path / STATE_FILE)
    body = json.loads((path / META_FILE).read_text())["body"]
    body |= {"format_version": 1, "state_sha256": checkpoint.file_sha256(path / STATE_FILE)}
    (path / META_FILE).write_text(json.dumps({"body": body, "sha256": checkpoint._body_sha256(body)}))
    for folder in (old, new):
        code, text = said(capsys, "train", "--resume", str(folder), "--extend-steps", "4500")
        assert code == 0, text
    assert (old / "result.json").read_bytes() == (new / "result.json").read_bytes()


STAY = """
import gymnasium

class Stay(gymnasium.Env):
    '''Five steps to the goal, where the episode goes on.'''
    observation_space = gymnasium.spaces.Discrete(6)  # a table, which compiles in no time
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, leaves=False):
        self.leaves = leaves

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0
        return 0, {}

    def step(self, action):
        if self.leaves:
            raise SystemExit(3)
        self.x = min(5, self.x + 1)
        there = self.x == 5
        return self.x, float(there), False, False, {"is_success": there}

gymnasium.register("StayThere-v0", Stay, max_episode_steps=30)
"""


@pytest.fixture
def stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "stay_there.py").write_text(STAY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_episode_that_goes_on_after_its_success_has_one(stay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--env-module", "stay_there", "--steps", "600", "--eval-every", "300", "--out", "run")
    code, text = said(capsys, "train", "StayThere-v0", *words)
    assert code == 0, text
    (run,) = json.loads((stay / "run" / "result.json").read_text())["runs"]
    assert run["behaviour_success"] == 1.0 and run["goals"] == 600 // 30
    assert run["success"] == 1.0 and run["steps_to_goal"] == 5.0


OWN_LEARNER = """
import stay_there
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.learners.tabular_q import TabularQ

class Mine(TabularQ):
    pass

LEARNERS.add("mine", Mine)
"""


def test_an_agent_alone_names_the_module_of_its_learner(stay: Path) -> None:
    (stay / "learns_there.py").write_text(OWN_LEARNER)
    config = resolve(parse(["StayThere-v0", "--env-module", "learns_there", "--learner", "mine"]))
    learner, spec = build_parts(config).learner, make_task(config.task, config.task_options, config.host).spec
    policy = learner.policy(learner.init(jax.random.key(0), spec, jnp.zeros(())))
    write_agent(stay / "agent", config, 0, 60, policy)
    del sys.modules["learns_there"], LEARNERS._classes["mine"]  # as in a new process
    (agent,) = find_agents(stay / "agent", None)[2]
    assert type(agent.learner) is LEARNERS["mine"] is not type(learner)
    del sys.modules["learns_there"], LEARNERS._classes["mine"]


def test_an_environment_that_ends_the_program_is_reported(stay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--env-module", "stay_there", "--env.leaves", "true", "--steps", "600", "--out", "run")
    code, text = said(capsys, "train", "StayThere-v0", *words)
    assert code == 2 and "SystemExit" in text

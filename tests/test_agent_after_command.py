"""An agent that the command has trained on: the newest state decides, for whoever reads it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hyper_rl
import toy_envs
from agent_checks import ROOM, TOY, refused, same_policies
from hyper_rl import Hyper
from hyper_rl.agent_store import current_agent, read_saved
from hyper_rl.cli.evaluate import find_agents
from hyper_rl.cli.main import main
from hyper_rl.training.agent_file import read_agent
from hyper_rl.training.run_folder import RunFolder

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")


@pytest.fixture(scope="module", params=["compiled", "gymnasium"])
def extended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(saved by an agent object, the same after the command has gone on with it)."""
    folder = tmp_path_factory.mktemp("extended")
    settings = {"env": "Room", "beta": 0.01, **ROOM} if request.param == "compiled" else {"env": "toy/Steps-v0", **TOY}
    agent = Hyper(**settings, seed=3)
    agent.learn(1_000 if request.param == "compiled" else 100)
    agent.save(folder / "before")
    agent.close()
    shutil.copytree(folder / "before", folder / "after")
    steps = "3000" if request.param == "compiled" else "300"
    assert main(["train", "--resume", str(folder / "after"), "--extend-steps", steps]) == 0
    return folder / "before", folder / "after"


def test_what_the_command_trained_on_is_the_agent_as_it_stands(extended: tuple[Path, Path]) -> None:
    before, after = extended
    newest = read_agent(after / "runs" / "0" / "agent")
    assert newest.meta["step"] == 3 * read_agent(before).meta["step"]
    assert not same_policies(newest.policy, read_agent(after).policy), "the one at the top is left as it was saved"
    assert current_agent(before) == before and current_agent(after) == after / "runs" / "0" / "agent"
    judged = find_agents(after, None)[2][0]
    assert same_policies(judged.policy, newest.policy)

    agent = hyper_rl.load(after)
    assert agent.num_timesteps == newest.meta["step"] == agent.curve[-1]["step"]
    agent.learn(agent.config.eval_every)
    steps = [row["step"] for row in agent.curve]
    assert steps == sorted(set(steps)) and steps[-1] == newest.meta["step"] + agent.config.eval_every
    agent.close()


def test_a_command_that_was_killed_leaves_the_policy_of_its_checkpoint(
    extended: tuple[Path, Path], tmp_path: Path
) -> None:
    """Without an agent file, and with rows in the curve that no checkpoint has seen."""
    newest = read_agent(extended[1] / "runs" / "0" / "agent")
    folder = RunFolder(tmp_path / "killed")
    shutil.copytree(extended[1], folder.path)
    shutil.rmtree(folder.path / "runs")
    folder.result.unlink()
    step = str(newest.meta["step"])
    last = folder.curve.read_text().splitlines()[-1]
    folder.curve.write_text(folder.curve.read_text() + last.replace(step, str(2 * int(step)), 1) + "\n")

    assert current_agent(folder.path) is None
    saved = read_saved(folder.path)
    assert saved.step == saved.agent.meta["step"] == saved.curve[-1]["step"] == newest.meta["step"]
    assert same_policies(saved.agent.policy, newest.policy)


def test_a_damaged_checkpoint_is_told_and_the_one_before_decides(extended: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = extended
    folder = RunFolder(tmp_path / "damaged")
    shutil.copytree(after, folder.path)
    for old in (before / "checkpoint").iterdir():
        shutil.copytree(old, folder.checkpoints / old.name)
    newest = max(folder.checkpoints.glob("step-*"))
    (newest / "state.safetensors").write_bytes(b"")
    agent, saved = hyper_rl.load(folder.path), hyper_rl.load(before)
    with pytest.warns(UserWarning, match="refused"):
        agent.learn(10)
    assert agent.num_timesteps == saved.num_timesteps + 10
    assert [row["step"] for row in agent.curve][:-1] == [row["step"] for row in saved.curve]
    agent.close()


def test_an_agent_does_not_go_on_from_what_it_was_not_loaded_with(extended: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "agent"
    shutil.copytree(extended[0], path)
    agent = hyper_rl.load(path)
    shutil.rmtree(path)
    shutil.copytree(extended[1], path)
    assert "load it again" in refused(lambda: agent.learn(10))


def test_what_the_command_has_added_is_replaced_with_the_agent(extended: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "extended"
    shutil.copytree(extended[1], path)
    agent = hyper_rl.load(path)
    agent.learn(10)
    agent.save(path, overwrite=True)
    assert hyper_rl.load(path).num_timesteps == agent.num_timesteps and not (path / "runs").exists()
    agent.close()


def test_what_the_command_wrote_is_judged_from_python(extended: tuple[Path, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(extended[1] / "runs", run / "runs")
    shutil.copy(extended[1] / "config.json", run / "config.json")
    assert set(hyper_rl.load(run / "runs" / "0" / "agent").evaluate(2)) >= {"success", "return"}
    assert f"a run folder, not an agent; its agents lie inside, that of run 0 in {run}" in refused(
        lambda: hyper_rl.load(run)
    )
    shutil.rmtree(run / "runs")
    assert "a run folder without an agent yet" in refused(lambda: hyper_rl.load(run))

"""What an agent says of itself: what it is, how it is kept, that it was closed."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import gymnasium
import pytest

import hyper_rl
import toy_envs
from agent_checks import TOY, refused
from hyper_rl import Exploit, Hyper
from hyper_rl.callbacks import SaveBest

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")


def test_an_agent_says_what_it_is_and_is_kept_by_save_alone(
    room_agent: Hyper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = (
        f"Hyper('Room', learner='tabular_q', bonus='counts', beta=1, seed=0, num_timesteps={room_agent.num_timesteps})"
    )
    assert repr(room_agent) == says
    assert repr(Exploit("Room")) == "Exploit('Room', learner='tabular_q', seed=0, num_timesteps=0)"
    for keep in (copy.copy, copy.deepcopy, pickle.dumps):
        assert "use save(path) and load(path)" in refused(lambda keep=keep: keep(room_agent))
    monkeypatch.setenv("HOME", str(tmp_path))
    room_agent.save("~/agent", policy_only=True)
    assert (tmp_path / "agent").is_dir() and not Path("~").exists()
    assert repr(hyper_rl.load("~/agent")) == says.replace(" bonus='counts',", "")
    for place in (lambda: room_agent.save(3), lambda: hyper_rl.load(3)):  # type: ignore[arg-type]
        assert "path: got 3, must be a path" in refused(place)
    assert f"folder: {tmp_path / 'agent'} exists already" in refused(lambda: room_agent.learn(10, SaveBest("~/agent")))


def test_a_closed_agent_says_so(tmp_path: Path) -> None:
    agent = Exploit("toy/Steps-v0", **TOY).learn(20)
    agent.close()
    assert "learn: the agent was closed" in refused(lambda: agent.learn(20))
    agent.predict(5)
    agent.save(tmp_path / "agent")
    assert hyper_rl.load(tmp_path / "agent").learn(20).num_timesteps == 40
    assert "eval_env: got 3" in refused(lambda: agent.set_env(gymnasium.make("toy/Steps-v0"), eval_env=3))
    agent.set_env("toy/Steps-v0")
    assert agent.learn(20).num_timesteps == 40
    agent.close()
    assert "eval_env" in refused(lambda: hyper_rl.load(tmp_path / "agent", eval_env=lambda: None))

"""An agent in another environment than it began in, or without any."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import hyper_rl
import toy_envs
from agent_checks import TOY, refused
from hyper_rl import Hyper
from hyper_rl.agent_store import read_saved
from hyper_rl.settings import choose_task
from hyper_rl.training.host_loop import _compiled_step

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")


def limited(steps: int) -> Any:
    return gymnasium.make("toy/Steps-v0", max_episode_steps=steps)


def test_the_episode_limit_is_that_of_the_environment_at_work(tmp_path: Path) -> None:
    agent = Hyper("toy/Steps-v0", eval_every=100, eval_episodes=2, p_start=1e-6, p_end=1e-6).learn(100)
    agent.save(tmp_path / "agent")
    compiled = _compiled_step.cache_info().misses
    agent.set_env(limited(4))
    agent.learn(100)
    assert _compiled_step.cache_info().misses == compiled, "the limit is a number of the program, not a part of it"
    judging: Any = agent._running()
    assert judging._judge._horizon == 4
    # With p this small L is all but uniform on {1..H}.
    assert agent.curve[0]["mean_length"] > 8 and agent.curve[1]["mean_length"] < 4
    assert agent.config.host is not None and agent.config.host["spec"]["horizon"] == 4 and agent.config.host["given"]
    agent.save(tmp_path / "moved")
    assert "give it with load" in refused(lambda: hyper_rl.load(tmp_path / "moved").learn(10))

    loaded = hyper_rl.load(tmp_path / "agent", env=limited(29)).learn(10)
    assert np.asarray(loaded._running().program.task.horizon).tolist() == [29]
    line = refused(lambda: hyper_rl.load(tmp_path / "agent", env=limited(1)).learn(10))
    assert line.startswith("env: toy/Steps-v0 ends its episodes after 1 steps, and the one in progress has ")
    fresh = Hyper("toy/Steps-v0", eval_every=100, eval_episodes=2)
    fresh.set_env(limited(4))
    fresh.learn(10)
    assert np.asarray(fresh._running().program.task.horizon).tolist() == [4], "also before its first step"
    for one in (agent, loaded, fresh):
        one.close()


def test_a_compiled_task_goes_on_as_it_is(room_agent: Hyper, tmp_path: Path) -> None:
    room_agent.save(tmp_path / "room")
    other = dataclasses.replace(choose_task("Room"), horizon=7)
    assert "Room ends its episodes after 7 steps" in refused(lambda: read_saved(tmp_path / "room").require_kind(other))
    loaded = hyper_rl.load(tmp_path / "room", env=gymnasium.make("hyper_rl/Room-v0"))
    assert "is a Gymnasium environment, and the agent's Room is a compiled task" in refused(lambda: loaded.learn(10))


def test_the_policy_of_a_loaded_agent_is_saved_without_its_environment(tmp_path: Path) -> None:
    env = gymnasium.make("toy/Steps-v0")
    Hyper(env, **TOY).save(tmp_path / "agent")
    hyper_rl.load(tmp_path / "agent").save(tmp_path / "policy", policy_only=True)
    assert hyper_rl.load(tmp_path / "policy").predict(6)[0] in (1, 2)

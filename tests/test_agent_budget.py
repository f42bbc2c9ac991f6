"""Budgets of an agent: the first decides warm-up and schedule, later ones let the replay grow."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyper_rl
from agent_checks import refused, same_policies
from hyper_rl import Exploit
from hyper_rl.agent_budget import Asked
from hyper_rl.cli.main import main
from hyper_rl.config import build_program
from hyper_rl.learners.td3 import TD3
from hyper_rl.training import memory

pytestmark = pytest.mark.xdist_group("agent-safety")


def small(**asked: Any) -> Exploit:
    return Exploit("Pendulum-v1", learner=TD3(widths=(8,), batch_size=8), eval_every=100, eval_episodes=1, **asked)


@pytest.mark.parametrize("asked", [{}, {"warmup": 500, "capacity": 50}])
def test_saved_before_it_learned_the_first_budget_still_decides(asked: dict[str, Any], tmp_path: Path) -> None:
    small(**asked).save(tmp_path / "agent")
    # That it ends in warm-up is told at the first budget, not again when the agent learns on.
    ends_in_warmup = pytest.warns(UserWarning, match="warmup: 500 steps of it leave none of these 100")
    with ends_in_warmup if asked else nullcontext():
        loaded, never_saved = hyper_rl.load(tmp_path / "agent").learn(100), small(**asked).learn(100)
    assert loaded.config.to_json() == never_saved.config.to_json() and loaded.config.schedule_steps == 100
    assert loaded.config.warmup == asked.get("warmup", 10) and loaded.config.capacity == asked.get("capacity", 100)
    assert loaded.curve[-1] == pytest.approx(never_saved.curve[-1], rel=0, abs=0, nan_ok=True)
    loaded.save(tmp_path / "later")
    longer = hyper_rl.load(tmp_path / "later").learn(100)
    assert longer.config.schedule_steps == 100 and longer.config.capacity == asked.get("capacity", 400)
    for one in (loaded, never_saved, longer):
        one.close()
    never_saved.save(tmp_path / "policy", policy_only=True)
    assert "a policy alone" in refused(lambda: hyper_rl.load(tmp_path / "policy").learn(100))


def test_how_training_is_cut_into_calls_changes_nothing(tmp_path: Path) -> None:
    """Grown to 400 at once or on the way; that more room than is needed changes no draw, test_replay says."""
    small().learn(100).save(tmp_path / "agent")
    once, cut = hyper_rl.load(tmp_path / "agent").learn(300), hyper_rl.load(tmp_path / "agent")
    for more in (60, 1, 239):
        cut.learn(more)
    assert once.num_timesteps == cut.num_timesteps == 400 and cut.config.to_json() == once.config.to_json()
    assert same_policies(*(agent._running().state.learners for agent in (once, cut)))
    for agent in (once, cut):
        agent.close()


def test_a_replay_that_has_overwritten_something_does_not_grow(tmp_path: Path) -> None:
    """The rows added to it would be zeros, and would be learned from."""
    small().learn(100).save(tmp_path / "agent")
    assert main(["train", "--resume", str(tmp_path / "agent"), "--extend-steps", "150"]) == 0
    agent = hyper_rl.load(tmp_path / "agent").learn(20)
    replay = np.asarray(agent._running().state.replay)[0]
    assert replay.shape[0] == agent.config.capacity == 100 and (replay != 0).any(axis=1).all()
    program = build_program(dataclasses.replace(agent.config, capacity=400))
    assert "capacity: got 400, must be 100 as before: 170 transitions" in refused(
        lambda: agent._running().adopt(program, agent.num_timesteps)
    )
    agent.close()


def test_a_replay_grows_in_a_few_steps_as_far_as_memory_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size is compiled anew."""
    config, sizes = Asked().first_budget(small().config, 1_000), {1_000}
    for step in range(1_000, 1_200_000, 1_000):
        config = Asked().longer_budget(config, step, step + 1_000)
        sizes.add(config.capacity)
        assert config.capacity >= min(config.steps, 1_000_000)
    assert sorted(sizes) == [1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000]

    config = Asked().first_budget(config, 100_000)
    monkeypatch.setattr(memory, "available", lambda devices=1: 20_000_000)
    assert Asked().longer_budget(config, 100_000, 150_000).capacity == 150_000, "there is no room for 400,000"
    line = refused(lambda: Asked().longer_budget(config, 100_000, 400_000))
    assert line.startswith("capacity: 1 run(s) need") and "learn fewer steps" in line

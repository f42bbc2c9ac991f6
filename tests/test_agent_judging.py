"""How agents are judged: whole or as a policy alone, beside an environment in use, with or without a success."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import hyper_rl
import toy_envs
from agent_checks import TOY, contents, refused
from hyper_rl import Exploit, Hyper
from hyper_rl.callbacks import Evaluation
from hyper_rl.envs.registry import has_success
from hyper_rl.learners.dqn import DQN

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")


def test_a_policy_alone_is_judged_as_the_whole_agent_is(room_agent: Hyper, tmp_path: Path) -> None:
    room_agent.save(tmp_path / "whole")
    room_agent.save(tmp_path / "policy", policy_only=True)
    alone = hyper_rl.load(tmp_path / "policy")
    judged = hyper_rl.load(tmp_path / "whole").evaluate(2)
    assert alone.evaluate(2) == pytest.approx(judged, rel=1e-6, nan_ok=True)
    alone.save(tmp_path / "again", policy_only=True)
    assert contents(tmp_path / "again") == contents(tmp_path / "policy")
    for go_on in (lambda: alone.learn(10), lambda: alone.save(tmp_path / "more")):
        assert "holds a policy alone" in refused(go_on)


def test_a_policy_alone_is_judged_beside_the_environment_that_was_given(tmp_path: Path) -> None:
    """One that was trained on an object, by its id's name: the name alone does not lead back to it."""
    Hyper(gymnasium.make("toy/Steps-v0"), **TOY).save(tmp_path / "agent", policy_only=True)
    assert "give it with load(..., env=...)" in refused(lambda: hyper_rl.load(tmp_path / "agent").evaluate(2))
    env = gymnasium.make("toy/Steps-v0")
    assert "success" in hyper_rl.load(tmp_path / "agent", env=env).evaluate(2)
    assert not env.get_wrapper_attr("has_reset"), "its episode in progress is nobody else's business"


def test_a_task_without_success_has_none() -> None:
    """Not 0: nobody failed. An environment of one's own is not ours, whatever its name."""
    assert np.isnan(Exploit("CartPole", learner=DQN(widths=(8,)), eval_episodes=1).evaluate(1)["success"])
    given = {"given": True, "success": "info"}
    assert has_success("CartPole", given) and has_success("Hopper", {**given, "given": False, "success": "reward"})
    assert not has_success("Hopper", {**given, "given": False}) and has_success("SparseHopper", None)


def test_judging_leaves_the_given_environment_to_training() -> None:
    """Also where its environments are closed and to be opened again, as after a `set_env` that failed."""
    env = gymnasium.make("toy/Steps-v0")
    agent = Hyper(env, **TOY).learn(10)
    loop: Any = agent._loop
    loop.close()
    loop._astray = True
    assert "success" in agent.evaluate(1)
    agent.learn(10)
    assert loop._pool._environments[0].env.unwrapped is env.unwrapped
    agent.close()


FAILS_AT: list[int] = []
"""How many more steps go well before one fails, whoever takes it; none: all do."""


class Failing(toy_envs.Steps):
    def step(self, action: Any) -> Any:
        if FAILS_AT:
            FAILS_AT[0] -= 1
            if FAILS_AT[0] < 0:
                FAILS_AT.clear()
                raise RuntimeError("gearbox on fire")
        return super().step(action)


def test_an_evaluation_that_failed_is_owed_by_the_agent_that_was_saved_too(tmp_path: Path) -> None:
    def fail(evaluation: Evaluation) -> None:
        FAILS_AT[:] = [100] if evaluation.step == 100 else []

    agent = Exploit(Failing, **TOY)
    assert "gearbox on fire" in refused(lambda: agent.learn(300, fail))
    assert [row["step"] for row in agent.curve] == [100] and agent.num_timesteps == 200
    agent.save(tmp_path / "agent")
    loaded = hyper_rl.load(tmp_path / "agent", env=Failing)
    agent.learn(100)
    loaded.learn(100)
    assert [row["step"] for row in loaded.curve] == [100, 200, 300]
    for one, other in zip(loaded.curve, agent.curve, strict=True):
        assert one == pytest.approx(other, rel=0, abs=0, nan_ok=True)
    agent.close()
    loaded.close()

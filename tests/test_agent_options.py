"""Options in any form: what a file can hold is kept as plain values, what it cannot is refused or asked for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import numpy as np
import pytest

import hyper_rl
import toy_envs
from agent_checks import ROOM, TOY, refused
from hyper_rl import Hyper
from hyper_rl.cli.main import main
from hyper_rl.config import first_difference
from hyper_rl.learners.tabular_q import TabularQ

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")


@pytest.mark.parametrize(
    ("given", "kept"), [(np.int64(6), 6), (np.float32(0.5), 0.5), (np.bool_(True), True), (np.arange(3), [0, 1, 2])]
)
def test_numpys_options_are_saved_as_plain_ones(given: Any, kept: Any, tmp_path: Path) -> None:
    agent = Hyper("toy/Steps-v0", env_kwargs={"wrong": given}, **TOY)
    assert agent._choice is not None and agent._choice.source is not None
    assert agent._choice.source.kwargs["wrong"] is given, "the environment itself gets what was given"
    agent.save(tmp_path / "whole")
    agent.save(tmp_path / "policy", policy_only=True)
    for name in ("whole", "policy"):
        assert hyper_rl.load(tmp_path / name).config.task_options == {"wrong": kept}
    agent.close()


def test_an_option_that_no_file_can_hold_is_asked_for_when_it_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Hyper("toy/Steps-v0", env_kwargs={"wrong": print}, **TOY)
    agent.save(tmp_path / "agent")
    agent.close()
    loaded = hyper_rl.load(tmp_path / "agent")
    assert loaded.predict(6)[0] in (1, 2)
    line = refused(lambda: loaded.learn(10))
    assert "env_kwargs: wrong" in line and "load(..., env=...)" in line
    assert main(["evaluate", str(tmp_path / "agent")]) == 2
    assert "env_kwargs: wrong" in capsys.readouterr().err
    with_it = hyper_rl.load(tmp_path / "agent", env=gymnasium.make("toy/Steps-v0"))
    assert with_it.learn(10).num_timesteps == 10
    with_it.close()


class Fancy(TabularQ):
    tie: Any = eqx.field(static=True, default=print)


def test_a_part_is_saved_with_numbers_in_any_form_or_refused(tmp_path: Path) -> None:
    agent = Hyper("Room", learner=TabularQ(step_size=np.float32(0.5)), **ROOM)  # type: ignore[arg-type]
    agent.save(tmp_path / "agent")
    assert hyper_rl.load(tmp_path / "agent").config.learner_options["step_size"] == 0.5
    assert "learner: Fancy.tie is <built-in function print>" in refused(lambda: Hyper("Room", learner=Fancy()))


def test_options_of_a_compiled_task_in_any_form() -> None:
    for subgoal in (np.array([16, 17]), [16, 17], (np.int64(16), 17)):
        assert Hyper("Room", env_kwargs={"subgoal": subgoal}).config.task_options == {"subgoal": (16, 17)}
    for wrong in ((17, 17.5), np.array([17, 17.5]), (17,), 17, "ab"):
        line = refused(lambda wrong=wrong: Hyper("Room", env_kwargs={"subgoal": wrong}))
        assert line.startswith("room.subgoal: got") and "a cell of the room (two whole numbers)" in line
    assert "env_kwargs: size of the JAX task Room" in refused(lambda: Hyper("Room", env_kwargs={"size": print}))


def test_what_differs_is_found_beside_options_that_are_absent() -> None:
    one = Hyper("Room", env_kwargs={"subgoal": (16, 17)}, warmup=0).config
    absent = dataclasses.replace(one, task_options={}, warmup=7)
    assert first_difference(one, one) is None
    found = first_difference(one, absent)
    assert found is not None and (found[0], found[2]) == ("task_options.subgoal", "nothing")
    null = dataclasses.replace(one, task_options={"subgoal": None})
    assert first_difference(null, absent) is not None

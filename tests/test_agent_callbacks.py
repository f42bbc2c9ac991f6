"""Callbacks refuse before training what would cost files after it, and any false answer of theirs stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import hyper_rl
from agent_checks import ROOM, contents, refused
from hyper_rl import Hyper
from hyper_rl.callbacks import Evaluation, SaveBest, SaveCheckpoints, combine
from hyper_rl.training.agent_file import read_agent

pytestmark = pytest.mark.xdist_group("agent-safety")


@pytest.mark.parametrize("callback", [SaveBest, SaveCheckpoints])
def test_a_callback_refuses_before_training(callback: Any, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    inside = precious / "step-000000000500" if callback is SaveCheckpoints else precious
    inside.mkdir(parents=True)
    (inside / "thesis.tex").write_text("years of work")
    agent = Hyper("Room", **ROOM)
    assert "exists already" in (line := refused(lambda: agent.learn(500, callback(precious)))) or "holds" in line
    assert "is not an agent" in refused(lambda: agent.learn(500, [callback(precious, overwrite=True)]))
    (tmp_path / "file").write_text("")
    assert "folder: " in refused(lambda: agent.learn(500, callback(tmp_path / "file" / "below")))
    assert agent.num_timesteps == 0 and contents(precious).popitem()[1] == b"years of work"


def test_callbacks_go_on_with_their_own_and_spare_those_of_other_runs(tmp_path: Path) -> None:
    best, saved = SaveBest(tmp_path / "best"), SaveCheckpoints(tmp_path / "all", every=1, keep=1)
    agent = Hyper("Room", **ROOM)
    agent.learn(500, [best, saved]).learn(500, [best, saved])
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["step-000000001000"]

    other = Hyper("Room", **ROOM, seed=1)
    assert "overwrite=True" in refused(lambda: other.learn(500, SaveBest(tmp_path / "best")))
    assert "step-000000001000" in refused(lambda: other.learn(1_000, SaveCheckpoints(tmp_path / "all", every=1)))
    other.learn(500, SaveBest(tmp_path / "best", overwrite=True))
    assert read_agent(tmp_path / "best").meta["seed"] == 1
    again = hyper_rl.load(tmp_path / "all" / "step-000000001000")
    again.learn(500, SaveCheckpoints(tmp_path / "all", every=1))  # goes on from there: nothing in the way
    assert len(list((tmp_path / "all").iterdir())) == 2


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [
        (False, False),
        (np.bool_(False), False),
        (jnp.asarray(False), False),
        (np.bool_(True), True),
        (None, True),
        (0, True),
    ],
)
def test_a_callback_stops_with_any_false(answer: Any, goes_on: bool) -> None:
    assert combine([lambda _: None, lambda _: answer])(Evaluation(0, {}, print)) is goes_on

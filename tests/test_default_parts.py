"""The bonus that is chosen when nobody names one follows the learner, whether that is a name or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hyper_rl import Hyper, sweep
from hyper_rl.config import Config
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3

SMALL = DQN(widths=(8,), batch_size=8)


class Mine(DQN):
    """Nobody gave it a name."""


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> type[Mine]:
    """What is named here is forgotten afterwards."""
    monkeypatch.setattr(LEARNERS, "_classes", dict(LEARNERS._classes))
    monkeypatch.setattr(LEARNERS, "_unnamed", set(LEARNERS._unnamed))
    return Mine


@pytest.mark.parametrize("preset", ["robust", "paper", "minigrid"])
@pytest.mark.parametrize(
    ("task", "name", "learner", "bonus"),
    [
        ("Room", "dqn", DQN(), "rnd"),  # not the counts of the table that Room is learned with by default
        ("Room", "tabular_q", TabularQ(), "counts"),
        ("CartPole", "dqn", SMALL, "rnd"),
        ("Pendulum", "sac", SAC(), "disagreement"),
        ("Pendulum", "td3", TD3(lr=1e-3), "disagreement"),
    ],
)
def test_an_object_has_the_bonus_of_its_name(task: str, name: str, learner: Any, bonus: str, preset: str) -> None:
    by_name, by_object = (Hyper(task, learner=given, preset=preset).config for given in (name, learner))
    assert by_object.learner == name and by_object.bonus == by_name.bonus == bonus
    assert by_object.bonus_options == by_name.bonus_options


def test_a_bonus_by_name_is_set_as_beside_the_learners_name() -> None:
    by_name, by_object = (Hyper("Room", learner=given, bonus="rnd").config for given in ("dqn", SMALL))
    assert by_object.bonus_options == by_name.bonus_options


class Chosen(Exception):
    """Instead of a training."""


def test_a_sweep_chooses_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(config: Config, *_: Any, **__: Any) -> None:
        raise Chosen(config)

    monkeypatch.setattr("hyper_rl.sweeping.train", stop)
    configs: list[Config] = []
    for given in ("dqn", SMALL):
        with pytest.raises(Chosen) as caught:
            sweep("Room", out=tmp_path / "run", learner=given)
        configs.append(caught.value.args[0])
    by_name, by_object = configs
    assert by_object.learner == "dqn" and by_object.bonus == by_name.bonus == "rnd"
    assert by_object.bonus_options == by_name.bonus_options


def test_a_class_without_a_name_leaves_the_choice_to_the_task(mine: type[Mine]) -> None:
    """The second time as well, when the first agent has had to call it something in its configuration."""
    for _ in range(2):
        config = Hyper("Room", learner=mine()).config
        assert (config.learner, config.bonus) == ("Mine", "counts")
    LEARNERS.add("mine", mine)
    assert Hyper("Room", learner=mine()).config.bonus == Hyper("Room", learner="mine").config.bonus == "rnd"


def test_to_add_a_class_under_the_name_it_goes_by_is_to_name_it(mine: type[Mine]) -> None:
    assert LEARNERS.name_of(mine()) == "Mine" and LEARNERS.given_name(mine()) is None
    LEARNERS.add("Mine", mine)
    assert LEARNERS.given_name(mine()) == "Mine"

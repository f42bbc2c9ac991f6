"""Arguments of the wrong kind are refused in one line, and numbers are taken in any form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hyper_rl
import toy_envs
from agent_checks import ROOM, refused
from hyper_rl import Hyper
from hyper_rl.bonuses.icm import ICM
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.td3 import TD3

assert toy_envs  # registers its ids

pytestmark = pytest.mark.xdist_group("agent-safety")

PART = "must be a name, or a configured object"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"learner": SAC}, f"learner: got {SAC!r}, {PART}"),
        ({"learner": 3}, f"learner: got 3, {PART}"),
        ({"learner": {"lr": 1e-3}}, f"learner: got {{'lr': 0.001}}, {PART}"),
        ({"learner": ICM()}, PART),
        ({"learner": ""}, "learner: unknown ''"),
        ({"bonus": ICM}, f"bonus: got {ICM!r}, {PART}"),
        ({"bonus": TD3()}, PART),
        ({"eval_env": 3}, "eval_env: got 3, must be a function"),
        ({"eval_env": lambda: None}, "must be left out unless env is an environment object"),
        ({"env_kwargs": 3}, "env_kwargs: got 3, must be a dictionary"),
        ({"beta": "x"}, "beta: got 'x', must be a number"),
        ({"beta": [1, 2]}, "beta: got [1, 2], must be a number"),
        ({"beta": None}, "beta: got None"),
        ({"beta": float("nan")}, "beta: got nan"),
        ({"seed": None}, "seed: got None, must be a whole number between 0 and 4294967295"),
        ({"seed": "a"}, "seed: got 'a', must be a whole number"),
        ({"seed": 1.5}, "seed: got 1.5, must be a whole number"),
        ({"seed": -1}, "seed: got -1, must be a whole number"),
        ({"bonus_scale": "x"}, "bonus_scale: unknown 'x'"),
        ({"bonus_scale": 3}, "bonus_scale: got 3, must be one of"),
        ({"reward_scale": "x"}, "reward_scale: unknown 'x'"),
        ({"lengths": 3}, "lengths: got 3, must be one of bounded, plain"),
        ({"preset": 3}, "preset: got 3, must be one of"),
        ({"success": 3}, "success: got 3, must be one of"),
        ({"p_start": "x"}, "p_start: got 'x', must be a number"),
        ({"p_end": [1]}, "p_end: got [1], must be a probability"),
        ({"normalise_observations": "no"}, "normalise_observations: got 'no'"),
        (
            {"gamma": 0.9},
            "gamma: belongs to the learner (TD3, SAC, DQN, TabularQ",
        ),
        ({"lr": 0.9}, "learner=TD3(lr=0.9)"),
        ({"models": 3}, "bonus=Disagreement(models=3)"),
        ({"colour": 3}, "there are beta, bonus, bonus_scale, capacity, env, env_kwargs, eval_env, eval_episodes"),
        (
            {"colour": 3},
            "p_end, p_start, preset, reward_scale, seed, success, train_every, warmup",
        ),
    ],
)
def test_the_constructor_refuses_what_is_of_the_wrong_kind(given: dict[str, Any], says: str) -> None:
    assert says in refused(lambda: Hyper("toy/Steps-v0", horizon=12, **given))


def test_a_number_is_a_number_in_any_form(tmp_path: Path) -> None:
    numbers: list[Any] = [np.float32(0.5), np.int64(3), np.int64(20)]
    half, three, twenty = numbers
    agent = Hyper("Room", beta=half, seed=three, **ROOM)
    agent.learn(twenty).learn(2e1)
    agent.save(tmp_path / "agent")
    assert hyper_rl.load(tmp_path / "agent").config.seeds == (3,) and agent.config.betas == (0.5,)
    assert agent.config.capacity == 1, "a table needs no replay, however long it learns"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x",), "total_timesteps: got 'x', must be a number"),
        ((None,), "total_timesteps: got None"),
        (("100",), "total_timesteps: got '100'"),
        ((True,), "total_timesteps: got True"),
        ((float("nan"),), "total_timesteps: got nan"),
        ((10.5,), "total_timesteps: got 10.5, must be a whole number >= 1"),
        ((-5,), "total_timesteps: got -5"),
        ((3e9,), "steps: got 3000000500, must be below 2^31"),
        ((10, 3), "callback: got 3, must be a function that takes an Evaluation"),
        ((10, "abc"), "callback: got 'abc'"),
        ((10, [print, 3]), "callback: got [<built-in function print>, 3]"),
        ((10, None, False, "x"), "log_interval: got 'x'"),
    ],
)
def test_learn_refuses_what_is_of_the_wrong_kind(room_agent: Hyper, arguments: Any, says: str) -> None:
    before = room_agent.num_timesteps, room_agent.config
    assert says in refused(lambda: room_agent.learn(*arguments))
    assert (room_agent.num_timesteps, room_agent.config) == before

"""Parts that do not fit are refused in one sentence that says what does, the same by the command and by the agents."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from gymnasium import spaces

import toy_envs
from hyper_rl import Hyper, Lesson
from hyper_rl.agent import OffPolicyAgent
from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.icm import ICM
from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.cli.main import main
from hyper_rl.errors import UserError
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.td3 import TD3

DISCRETE = "a discrete learner: dqn, tabular_q"
LEARNER_OF_FORCES = ("for continuous actions", "method 'lesson' chooses among finitely many", DISCRETE)
TASK_OF_FORCES = ("method: 'lesson' needs a finite set of actions", "Pendulum", DISCRETE)
NO_CELLS = (
    "bonus: 'counts'",
    "CartPole has continuous observations",
    "counts.bins",
    "4 numbers each",
    "'rnd' or 'icm'",
)

WRONG: list[tuple[str, type[OffPolicyAgent], str, dict[str, Any], tuple[str, ...]]] = [
    # lesson with a learner for continuous actions, on a task whose actions are not
    ("CartPole --method lesson --learner td3", Lesson, "CartPole", {"learner": "td3"}, ("'td3'", *LEARNER_OF_FORCES)),
    ("Room --method lesson --learner sac", Lesson, "Room", {"learner": SAC()}, ("'sac'", *LEARNER_OF_FORCES)),
    # lesson on a task with continuous actions, whoever learns
    ("Pendulum --method lesson", Lesson, "Pendulum", {}, TASK_OF_FORCES),
    ("Pendulum --method lesson --learner td3", Lesson, "Pendulum", {"learner": TD3()}, TASK_OF_FORCES),
    ("Pendulum --method lesson --learner dqn", Lesson, "Pendulum", {"learner": "dqn"}, TASK_OF_FORCES),
    # a discrete learner on continuous actions
    (
        "Pendulum --learner dqn",
        Hyper,
        "Pendulum",
        {"learner": DQN()},
        ("learner: 'dqn' needs a finite set of actions", "Pendulum", "use 'td3' or 'sac'"),
    ),
    (
        "Pendulum --learner tabular_q",
        Hyper,
        "Pendulum",
        {"learner": "tabular_q"},
        ("learner: 'tabular_q' needs discrete observations and actions", "Pendulum", "'td3' or 'sac'"),
    ),
    # counts of vectors without cells to count in
    ("CartPole --bonus counts", Hyper, "CartPole", {"bonus": "counts"}, NO_CELLS),
    ("CartPole --method lesson --bonus counts", Lesson, "CartPole", {"bonus": "counts"}, NO_CELLS),
]


@pytest.mark.parametrize(("words", "agent", "task", "settings", "says"), WRONG)
def test_refused_in_one_sentence_with_what_fits(
    words: str,
    agent: type[OffPolicyAgent],
    task: str,
    settings: dict[str, Any],
    says: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(UserError) as refused:
        agent(task, **settings)
    assert main(["train", *words.split()]) == 2
    told = capsys.readouterr().err
    assert told == f"hyper-rl: error: {refused.value}\n", "the same sentence at either door"
    assert all(part in told for part in says), told


# From Python, where anything can be given


def numbered(states: int, action: Any) -> Any:
    return lambda: toy_envs.Still(spaces.Discrete(states), action)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: TD3(lr="a"), "td3.lr: got 'a', must be a finite number > 0"),  # type: ignore[arg-type]
        (lambda: TD3(gamma=None), "td3.gamma: got None, must be in [0, 1)"),  # type: ignore[arg-type]
        (lambda: TD3(action_noise="a"), "td3.action_noise: got 'a', must be a finite number >= 0"),  # type: ignore[arg-type]
        (lambda: SAC(widths=16), "sac.widths: got 16, must be positive layer sizes"),  # type: ignore[arg-type]
        (lambda: DQN(widths=("a",)), "dqn.widths: got ('a',), must be positive layer sizes"),  # type: ignore[arg-type]
        (lambda: ICM(share="a"), "icm.share: got 'a', must be a share in (0, 1]"),  # type: ignore[arg-type]
        (lambda: Hyper(numbered(3, spaces.Box(-1, 1, (2,))), horizon=5), "gymnasium.wrappers.FlattenObservation"),
        (
            lambda: Hyper(numbered(10**9, spaces.Discrete(2)), horizon=5),
            "bonus: 'counts' makes a table of 1000000000 states x 2 actions",
        ),
        (lambda: Hyper("toy/Walk-v0", horizon=100), "env_kwargs={'max_episode_steps': N}"),
        (lambda: Hyper("TwoRoms-v0"), "Import the module that registers"),
    ],
)
def test_a_value_that_cannot_be_used_is_named_with_what_can(make: Any, says: str) -> None:
    with pytest.raises(UserError) as refused:
        make()
    assert says in str(refused.value)


class Column(Counts):
    """One number for each transition, but in a column."""

    def learn(self, state: Any, batch: Any, key: Any) -> Any:
        paid, state, loss = super().learn(state, batch, key)
        return paid[:, None], state, loss


class Alone(Counts):
    def learn(self, state: Any, batch: Any, key: Any) -> Any:
        return jnp.zeros_like(batch.reward)


@pytest.mark.parametrize(
    ("bonus", "says"),
    [
        (Column(), r"bonus: Column\.learn returned a bonus of shape \(1, 1\), must be \(1,\)"),
        (Alone(), r"bonus: Alone\.learn returned a \w+, must be \(bonus, state, loss\)"),
    ],
)
def test_a_bonus_of_ones_own_is_told_what_it_returned(bonus: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BONUSES, "_classes", dict(BONUSES))  # other tests need not know them
    with pytest.raises(UserError, match=says):
        Hyper("Room", bonus=bonus).learn(10)

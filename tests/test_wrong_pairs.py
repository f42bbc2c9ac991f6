"""Parts that do not fit are refused in one sentence that says what does, the same by the command and by the agents."""

from __future__ import annotations

from typing import Any

import pytest

from hyper_rl import Hyper, Lesson
from hyper_rl.agent import OffPolicyAgent
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

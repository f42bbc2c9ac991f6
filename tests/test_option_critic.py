"""LESSON's option critic and its numbers, worked out by hand: selection, targets, termination, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from hyper_rl.errors import UserError
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.lesson import OPTIONS, LessonOptions, LessonState
from hyper_rl.methods.option_critic import (
    OptionCritic,
    largest_share,
    option_loss,
    option_target,
    sample_in_order,
    selection_probabilities,
    termination_weight,
)
from hyper_rl.networks import MLP
from hyper_rl.optimisers import rmsprop_init
from hyper_rl.types import Transition

RANDOM, STICKY, EXPLORER, TASK = range(4)
SLOPES = jax.jit(jax.grad(option_loss))
LEARN = jax.jit(LessonOptions.learn)
SAMPLE = jax.jit(jax.vmap(sample_in_order, in_axes=(0, None)))


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def numbers(*values: int) -> Int[Array, "..."]:
    return jnp.asarray(values, jnp.int32)


# Choosing


def shares(values: Float[Array, " options"], lesson: LessonOptions) -> np.ndarray:
    """How often each option is chosen, over a fine and even grid of uniform numbers."""
    odds = selection_probabilities(values, lesson.softmax_factor, lesson.select_low, lesson.select_high)
    even = (jnp.arange(20_000, dtype=float) + 0.5) / 20_000
    picks = SAMPLE(even, odds)
    return np.bincount(np.asarray(picks), minlength=len(values)) / 20_000


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (RANDOM, [0.95, 0.05, 0.0, 0.0]),
        (STICKY, [0.05, 0.95, 0.0, 0.0]),
        (EXPLORER, [0.05, 0.05, 0.90, 0.0]),
        (TASK, [0.05, 0.05, 0.05, 0.85]),
    ],
)
def test_the_cap_of_each_option_follows_from_its_place_in_the_order(best: int, expected: list[float]) -> None:
    lesson = LessonOptions()
    assert lesson.options == OPTIONS == ("random", "sticky", "explorer", "task")
    seen = shares(jnp.zeros((4,), float).at[best].set(1.0), lesson)
    np.testing.assert_allclose(seen, expected, atol=1e-4)
    assert seen[best] == pytest.approx(largest_share(best, lesson.select_low, lesson.select_high), abs=1e-4)


def test_the_softmax_is_of_values_relative_to_a_largest_one_above_one() -> None:
    preferred = 1 / (1 + np.exp(-1.0))  # 50 x 0.02 apart
    for values in ([0.50, 0.48], [2.0, 1.96], [-3.0, -3.02]):
        odds = np.asarray(selection_probabilities(array(*values), 50.0, 0.05, 0.95))
        np.testing.assert_allclose(odds, [preferred, 1 - preferred], rtol=1e-4)
    np.testing.assert_allclose(shares(array(1.0, 1.0, 1.0, 1.0), LessonOptions()), 0.25, atol=1e-4)


def test_rounding_leaves_no_draw_without_an_option() -> None:
    assert int(sample_in_order(jnp.asarray(0.9999999, float), array(0.5, 0.4999))) == 1


# Learning, by hand


def test_option_target_by_hand() -> None:
    # r = 1, gamma 0.9, t = 0.25, Q'(s', o) = 2, max Q'(s', .) = 4: 1 + 0.9 (0.75 x 2 + 0.25 x 4) = 3.25; or r alone.
    target = option_target(
        array(1.0, 1.0), jnp.asarray([False, True]), array(0.25, 0.25), array(2.0, 2.0), array(4.0, 4.0), 0.9
    )
    np.testing.assert_allclose(np.asarray(target), [3.25, 1.0], rtol=1e-6)


def test_what_ending_costs_by_hand() -> None:
    # A = -1, 0, -5, mean -2: the first two are better than the average and pay for ending, the third is paid for it.
    weights = termination_weight(array(2.0, 3.0, -2.0), array(3.0, 3.0, 3.0), jnp.asarray([False, True, False]))
    np.testing.assert_allclose(np.asarray(weights), [1.0, 0.0, -3.0], rtol=1e-6)


def fixed_critic(values: Float[Array, " options"], logits: Float[Array, " options"]) -> OptionCritic:
    """Says the same in every state: no weights, so the biases of the heads are its answers."""
    count = values.shape[0]
    below = [MLP((jnp.zeros(size, float),), (jnp.zeros(size[1:], float),), False) for size in ((3, 4), (4, 4))]
    heads = [MLP((jnp.zeros((4, count), float),), (bias,), False) for bias in (values, logits)]
    return OptionCritic(*below, *heads)


def test_the_termination_gradient_has_the_sign_worked_out_by_hand() -> None:
    """Two transitions under options worth 3 (the best) and 1: A = 0 and -2, mean -1, weights +1 and -1.

    t = sigmoid(0) = 0.5 with slope 0.25, and the loss is a mean over two: slopes +0.125 and -0.125. Descending on
    them, the better option ends less often and the worse one more often.
    """
    critic = fixed_critic(array(3.0, 1.0), array(0.0, 0.0))
    options, going = numbers(0, 1), jnp.zeros((2,), bool)
    weights = termination_weight(array(3.0, 1.0), array(3.0, 3.0), going)
    grads = SLOPES(critic, numbers(0, 1), options, array(3.0, 1.0), weights)
    np.testing.assert_allclose(np.asarray(grads.termination.biases[0]), [0.125, -0.125], rtol=1e-6)
    assert not np.asarray(grads.value.biases[0]).any(), "the values are right already"
    # Values off by -2 and +4: half the squared error has the slope error / 2 in a mean over two.
    off = SLOPES(critic, numbers(0, 1), options, array(5.0, -3.0), 0 * weights)
    np.testing.assert_allclose(np.asarray(off.value.biases[0]), [-1.0, 2.0], rtol=1e-6)


def lesson_state(critic: OptionCritic, target: OptionCritic) -> LessonState:
    return LessonState(numbers(0)[0], numbers(0)[0], numbers(0, 0), critic, target, rmsprop_init(critic))


def learn(lesson: LessonOptions, state: LessonState, options: Int[Array, " batch"], index: int = 1) -> LessonState:
    """From plank 0 to plank 1 with r = 1 and b = 2, under the options given."""
    count = options.shape[0]
    here = jnp.zeros((count,), jnp.int32)
    batch = Transition(here, here, jnp.ones((count,), float), here + 1, jnp.zeros((count,), bool), options)
    return LEARN(lesson, state, batch, jnp.full((count,), 2.0, float), 0.9, jnp.asarray(index, jnp.int32))


def test_an_update_moves_values_to_the_target_and_terminations_by_the_advantage() -> None:
    """r = 1 and b = 2 count 10 + 0.5 x 2 = 11; Q' = (2, 5) and t = 0.5: y = 11 + 0.9 (0.5 x 2 + 0.5 x 5) = 14.15.

    The first step of RMSprop is lr / sqrt(0.01) = 10 lr against the sign of the slope.
    """
    lesson = LessonOptions(lr=1e-3, rnd_scale=0.5, options=("random", "task"), target_every=2)
    target = fixed_critic(array(2.0, 5.0), array(0.0, 0.0))
    for start, sign in ((14.10, 1), (14.20, -1)):
        before = fixed_critic(array(start, 5.0), array(0.0, 0.0))
        after = learn(lesson, lesson_state(before, target), numbers(0))
        moved = np.asarray(after.critic.value.biases[0]) - [start, 5.0]
        np.testing.assert_allclose(moved, [sign * 1e-2, 0.0], atol=1e-5)
        assert np.array_equal(after.target.value.biases[0], target.value.biases[0])
    both = learn(lesson, lesson_state(target, target), numbers(0, 1), index=2)
    np.testing.assert_allclose(np.asarray(both.critic.termination.biases[0]), [1e-2, -1e-2], rtol=1e-3)
    assert np.array_equal(both.target.termination.biases[0], both.critic.termination.biases[0]), "the second: copied"


@pytest.mark.parametrize(("logit", "end"), [(20.0, 0.9), (-20.0, 0.1)])
def test_the_termination_probability_in_the_target_is_clipped(logit: float, end: float) -> None:
    lesson = LessonOptions(lr=1e-3, reward_factor=1.0, options=("random", "task"))
    target = fixed_critic(array(2.0, 5.0), array(logit, 0.0))
    y = 1 + 0.9 * ((1 - end) * 2 + end * 5)
    for gap, sign in ((-0.05, 1), (0.05, -1)):
        before = fixed_critic(array(y + gap, 5.0), array(logit, 0.0))
        after = learn(lesson, lesson_state(before, target), numbers(0))
        assert np.sign(float(after.critic.value.biases[0][0]) - (y + gap)) == sign


def test_the_explorer_is_paid_the_bonus_alone() -> None:
    paid = LessonOptions(bonus_factor=10.0).explorer_reward(ExplorerReward(0.5))
    _, batch = paid(paid.init(), array(7.0, 0.0), array(1.0, -2.0), 0.99)
    np.testing.assert_allclose(np.asarray(batch.rewards), [5.0, -10.0], rtol=1e-6)
    assert float(batch.task_share) == 0.0


# What is refused


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"options": ("task", "explorer")}, "lesson.options"),
        ({"options": ("random", "random")}, "lesson.options"),
        ({"options": ("random", "best")}, "lesson.options"),
        ({"select_high": 0.01}, "lesson.select_high"),
        ({"end_low": -0.1}, "lesson.end_low"),
        ({"lr": 0.0}, "lesson.lr"),
        ({"target_every": 0}, "lesson.target_every"),
        ({"widths": ()}, "lesson.widths"),
    ],
)
def test_numbers_that_cannot_work_are_named(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError, match=field):
        dataclasses.replace(LessonOptions(), **wrong)

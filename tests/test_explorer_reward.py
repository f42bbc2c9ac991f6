"""What the explorer is paid, by hand, for every choice of scale."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.errors import UserError
from hyper_rl.methods.explorer_reward import ExplorerBatch, ExplorerReward, ExplorerScales
from hyper_rl.presets import find_preset

GAMMA = 0.9


def array(*values: float) -> Float[Array, " n"]:
    return jnp.asarray(values, float)


def two_batches(paid: ExplorerReward) -> tuple[ExplorerBatch, ExplorerBatch]:
    """r = (1, 0), b = (1, 3), then r = (0, 2), b = (0, 4); beta = 2."""
    scales, first = paid(paid.init(), array(1.0, 0.0), array(1.0, 3.0), GAMMA)
    _, second = paid(scales, array(0.0, 2.0), array(0.0, 4.0), GAMMA)
    return first, second


def near(values: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(values), expected, rtol=1e-5)


def test_no_scale() -> None:
    # (1 + 2*1, 0 + 2*3) = (3, 6) and (0, 2 + 8) = (0, 10).
    # Task share: |r| / (|r| + beta |b|) = 0.5 / (0.5 + 4) and 1 / (1 + 4).
    first, second = two_batches(ExplorerReward(2.0))
    near(first.rewards, [3.0, 6.0])
    near(second.rewards, [0.0, 10.0])
    near([first.bonus_mean, first.bonus_divisor, first.task_share], [2.0, 1.0, 1 / 9])
    near([second.bonus_mean, second.bonus_divisor, second.task_share], [2.0, 1.0, 0.2])


def test_bonus_over_its_running_rms() -> None:
    # rate 0.5: mean squares 5 and 8 -> first divisor sqrt(0.5*5 / 0.5) = sqrt(5),
    # then (0.5*2.5 + 0.5*8) / 0.75 = 7 -> sqrt(7). The batch itself counts before it is divided.
    first, second = two_batches(ExplorerReward(2.0, bonus_scale="running-rms", rate=0.5))
    near(first.rewards, [1 + 2 / 5**0.5, 6 / 5**0.5])
    near(second.rewards, [0.0, 2 + 8 / 7**0.5])
    near([first.bonus_divisor, second.bonus_divisor], [5**0.5, 7**0.5])
    # The mean is that of the raw bonus; the share is taken after the division.
    near([first.bonus_mean, first.task_share], [2.0, 0.5 / (0.5 + 4 / 5**0.5)])


def test_bonus_over_its_running_deviation() -> None:
    # Means 2 and 2, so variances 5 - 4 = 1 and 7 - 4 = 3; nothing is subtracted from the bonus.
    first, second = two_batches(ExplorerReward(2.0, bonus_scale="running-std", rate=0.5))
    near(first.rewards, [3.0, 6.0])
    near(second.rewards, [0.0, 2 + 8 / 3**0.5])
    near([first.bonus_divisor, second.bonus_divisor], [1.0, 3**0.5])


def test_centred_bonus() -> None:
    # As above, with the means 2 and 2 taken away first: (-1, 1) / 1 and (-2, 2) / sqrt(3).
    first, second = two_batches(ExplorerReward(2.0, bonus_scale="centred", rate=0.5))
    near(first.rewards, [1 - 2.0, 2.0])
    near(second.rewards, [-4 / 3**0.5, 2 + 4 / 3**0.5])
    near(second.bonus, [-2 / 3**0.5, 2 / 3**0.5])
    near([first.bonus_mean, first.bonus_divisor, second.bonus_divisor], [2.0, 1.0, 3**0.5])
    near(first.task_share, 0.5 / (0.5 + 2))


def test_reward_brought_to_unit_scale() -> None:
    # Sums (3, 6): mean square 22.5, so times (1 - 0.9) / sqrt(22.5). Sums (0, 10): mean square 50, running
    # (0.5 * 11.25 + 0.5 * 50) / 0.75 = 40.8333.
    first, second = two_batches(ExplorerReward(2.0, reward_scale="running-rms", rate=0.5))
    near(first.rewards, np.array([3.0, 6.0]) * 0.1 / 22.5**0.5)
    near(second.rewards, np.array([0.0, 10.0]) * 0.1 / (122.5 / 3) ** 0.5)
    near([first.bonus_divisor, first.task_share], [1.0, 1 / 9])


def test_both_scales_together() -> None:
    # First batch: sums (1 + 2/sqrt5, 6/sqrt5), then their own scale.
    first, _ = two_batches(ExplorerReward(2.0, bonus_scale="running-rms", reward_scale="running-rms", rate=0.5))
    sums = np.array([1 + 2 / 5**0.5, 6 / 5**0.5])
    near(first.rewards, sums * 0.1 / np.sqrt((sums**2).mean()))


@pytest.mark.parametrize("bonus_scale", ["none", "running-std", "running-rms", "centred"])
def test_beta_zero_pays_the_task_reward_to_the_last_bit(bonus_scale: Any) -> None:
    r = jax.random.normal(jax.random.key(0), (256,), dtype=float)
    b = jax.random.uniform(jax.random.key(1), (256,), dtype=float)
    paid = ExplorerReward(0.0, bonus_scale=bonus_scale)
    _, batch = paid(paid.init(), r, b, GAMMA)
    np.testing.assert_array_equal(np.asarray(batch.rewards), np.asarray(r))
    assert float(batch.task_share) == 1.0


@pytest.mark.parametrize("beta", [1e-4, 1.0, 1e4])
def test_unit_scale_keeps_q_of_order_one_at_every_beta(beta: float) -> None:
    """A steady reward of RMS x for ever is worth x / (1 - gamma) before and 1 after, whatever beta."""
    paid = ExplorerReward(beta, bonus_scale="running-rms", reward_scale="running-rms")
    scales: ExplorerScales = paid.init()
    for seed in range(5):
        b = 1e-3 * jax.random.uniform(jax.random.key(seed), (64,), dtype=float)
        scales, batch = paid(scales, jnp.zeros((64,), float), b, GAMMA)
    worth = np.sqrt((np.asarray(batch.rewards) ** 2).mean()) / (1 - GAMMA)
    assert worth == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("bonus_scale", ["none", "running-std", "running-rms", "centred"])
@pytest.mark.parametrize("reward_scale", ["none", "running-rms"])
def test_finite_when_there_is_nothing_to_scale(bonus_scale: Any, reward_scale: Any) -> None:
    paid = ExplorerReward(1.0, bonus_scale=bonus_scale, reward_scale=reward_scale)
    _, batch = paid(paid.init(), jnp.zeros((4,), float), jnp.zeros((4,), float), GAMMA)
    np.testing.assert_array_equal(np.asarray(batch.rewards), np.zeros(4))
    assert float(batch.task_share) == 0.0


def test_presets_choose_the_scales() -> None:
    paper, robust = find_preset("paper"), find_preset("robust")
    assert (paper.bonus_scale, paper.reward_scale) == ("none", "none")
    assert (robust.bonus_scale, robust.reward_scale) == ("centred", "running-rms")
    assert find_preset("robust", "tabular_q") == paper
    assert find_preset("minigrid").bonus_scale == "centred"


def test_impossible_settings_are_refused() -> None:
    for beta in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="beta"):
            ExplorerReward(beta)
    bad: dict[str, Any] = {"bonus_scale": "max", "reward_scale": "running-std"}
    for name, value in bad.items():
        with pytest.raises(UserError, match=name):
            ExplorerReward(1.0, **{name: value})
    with pytest.raises(UserError, match="scale_rate"):
        ExplorerReward(1.0, rate=0.0)

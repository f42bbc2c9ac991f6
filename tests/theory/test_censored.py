"""Slopes of censored times."""

from __future__ import annotations

import numpy as np
import pytest

from hyper_rl.errors import UserError
from hyper_rl.theory.censored import fit_slope, slope_with_interval


def drawn(slope: float, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.array([2.0, 4, 8, 16, 32])
    noise = np.random.default_rng(3).normal(scale=0.3, size=(5, seeds))
    return sizes, np.exp(1 + slope * np.log(sizes)[:, None] + noise)


def test_uncensored_is_least_squares() -> None:
    sizes, times = drawn(2.0, 40)
    found = slope_with_interval(sizes, times, np.full(5, 1e9), samples=100)
    assert found.slope == pytest.approx(np.polyfit(np.log(np.repeat(sizes, 40)), np.log(times.ravel()), 1)[0])
    assert found.low < 2.0 < found.high
    assert found.censored == 0


def test_censored_runs_do_not_flatten_the_slope() -> None:
    """A budget that cuts off most of the two largest sizes: the naive slope is far off, the fitted one is not."""
    sizes, times = drawn(2.0, 40)
    budget = 700.0
    cut = np.where(times > budget, np.inf, times)
    assert np.isinf(cut).sum() > 50
    naive = np.polyfit(np.log(np.repeat(sizes, 40)), np.log(np.minimum(times, budget).ravel()), 1)[0]
    found = slope_with_interval(sizes, cut, np.full(5, budget), samples=50)
    assert naive < 1.8
    assert found.slope == pytest.approx(2.0, abs=0.1)
    assert found.low < 2.0 < found.high


def test_a_slope_needs_two_sizes() -> None:
    with pytest.raises(UserError, match="two sizes or more"):
        fit_slope(np.array([1.0, 2.0]), np.array([5.0, 10.0]), np.array([False, True]))

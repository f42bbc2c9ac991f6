"""Log-log slopes of times that may be cut off by the budget, with bootstrap intervals.

log T = a + b·log x + σ·noise, T seen only up to its budget: a run that never got there says "T > budget", not
"T = budget". The slope is the maximum-likelihood one (a Tobit regression, by expectation-maximisation): leaving such
runs out, or taking the budget for their time, would flatten it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from hyper_rl.errors import UserError


class Slope(NamedTuple):
    slope: float
    low: float
    high: float
    intercept: float
    censored: int
    runs: int


def fit_slope(
    x: Float[np.ndarray, " n"],
    time: Float[np.ndarray, " n"],
    censored: Bool[np.ndarray, " n"],
    tolerance: float = 1e-5,
    rounds: int = 2000,
) -> tuple[float, float]:
    """Slope and intercept of natural logs; `time` is the budget where `censored`."""
    log_x, log_time = np.log(x), np.log(time)
    if len(np.unique(log_x[~censored])) < 2:
        raise UserError("fit_slope: needs uncensored runs at two sizes or more")
    slope, intercept = np.polyfit(log_x, log_time, 1)
    if not censored.any():
        return float(slope), float(intercept)
    sigma = max(float(np.std(log_time - slope * log_x - intercept)), 0.05)
    full, spare = log_time.copy(), np.zeros_like(log_time)
    for _ in range(rounds):
        centre = (intercept + slope * log_x)[censored]
        z = (log_time[censored] - centre) / sigma
        mills = _mills(z)
        # Mean and variance of a normal known only to exceed its budget.
        full[censored] = centre + sigma * mills
        spare[censored] = sigma**2 * (1 + z * mills - mills**2)
        before = slope
        slope, intercept = np.polyfit(log_x, full, 1)
        moved = (full - slope * log_x - intercept) ** 2 + spare
        sigma = max(float(np.sqrt(moved.mean())), 1e-6)
        if abs(slope - before) < tolerance:
            break
    return float(slope), float(intercept)


def _mills(z: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """density(z) / P(Z > z) of a standard normal; by its expansion where the tail probability is tiny."""

    def one(value: float) -> float:
        if value > 12:
            return value + 1 / value
        return math.sqrt(2 / math.pi) * math.exp(-value * value / 2) / math.erfc(value / math.sqrt(2))

    return np.array([one(float(value)) for value in z])


def slope_with_interval(
    sizes: Float[np.ndarray, " m"],
    times: Float[np.ndarray, "m seeds"],
    budgets: Float[np.ndarray, " m"],
    samples: int = 400,
    level: float = 0.95,
    seed: int = 0,
) -> Slope:
    """`times` is inf for runs that never got there. The interval resamples seeds within each size.

    A resample in which only one size got anywhere has no slope and is left out, as would be the data if they were so.
    """
    count = times.shape[1]
    censored = ~np.isfinite(times)
    seen = np.where(censored, budgets[:, None], times)
    x = np.repeat(sizes, count)
    slope, intercept = fit_slope(x, seen.ravel(), censored.ravel())
    rng = np.random.default_rng(seed)
    rows = np.arange(len(sizes))[:, None]
    resampled = []
    for _ in range(samples):
        pick = rng.integers(count, size=times.shape)
        cut = censored[rows, pick]
        if (~cut).any(-1).sum() >= 2:
            resampled.append(fit_slope(x, seen[rows, pick].ravel(), cut.ravel())[0])
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Slope(slope, float(low), float(high), intercept, int(censored.sum()), int(times.size))

"""What the studies say about runs, in numbers: means with intervals, comparisons, and the robustness score.

Runs come in strata, one array per task, per beta or per both. A stratum is fixed and its runs are a sample, so the
bootstrap resamples runs within each stratum and never moves one to another (Agarwal et al., 2021, "Deep reinforcement
learning at the edge of the statistical precipice"). SciPy's bootstrap does just that when every stratum is a sample of
its own. Intervals are percentile intervals with a fixed seed, so the same results give the same digits.

A bootstrap knows only the runs it is given: runs that all agree give an interval of no width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hyper_rl.errors import UserError, missing_extra

Runs = Float[np.ndarray, " runs"]
"""Final performance of the runs of one stratum."""
Strata = Sequence[Runs]
Statistic = Callable[[list[Float[np.ndarray, "*resamples runs"]]], Float[np.ndarray, "*resamples"]]
"""From the runs of every stratum, in the last axis, to one number; any axes before that are resamples."""

CONFIDENCE = 0.95
RESAMPLES = 5_000
SEED = 0
BATCH = 500
"""Resamples computed at once, which bounds the memory."""
TRIMMED = 0.25
"""Share of the runs that the interquartile mean leaves out at either end."""


@dataclass(frozen=True)
class Estimate:
    """A number and the interval around it."""

    value: float
    low: float
    high: float
    sampled: bool = True
    """False for a number that is computed and has no chance in it."""

    def __str__(self) -> str:
        if not self.sampled:
            return f"{self.value:.3g}"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    strata: Strata, statistic: Statistic, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate:
    """`statistic` of the runs, with its stratified percentile bootstrap interval."""
    samples = _check(strata, needed=2)

    def vectorised(*drawn: np.ndarray, axis: int) -> np.ndarray:
        return statistic([np.moveaxis(sample, axis, -1) for sample in drawn])

    interval = (
        _scipy_stats()
        .bootstrap(
            samples,
            vectorised,
            n_resamples=resamples,
            batch=BATCH,
            vectorized=True,
            confidence_level=confidence,
            method="percentile",
            rng=np.random.default_rng(SEED),
        )
        .confidence_interval
    )
    return Estimate(float(statistic(samples)), float(interval.low), float(interval.high))


def mean_of(strata: Strata) -> Estimate:
    """Mean over strata of the mean of each, so that a task with more runs does not count for more."""
    return bootstrap(strata, mean_over_strata)


def iqm_of(strata: Strata) -> Estimate:
    """Interquartile mean of all runs together."""
    return bootstrap(strata, lambda drawn: iqm(np.concatenate(drawn, axis=-1)))


def mean_over_strata(drawn: list[np.ndarray]) -> np.ndarray:
    return np.mean([runs.mean(axis=-1) for runs in drawn], axis=0)


def iqm(values: Float[np.ndarray, "*resamples runs"]) -> Float[np.ndarray, "*resamples"]:
    """Mean of what is left without the lowest and the highest quarter, whole runs only."""
    return np.asarray(_scipy_stats().trim_mean(values, TRIMMED, axis=-1))


def difference_of(first: Strata, second: Strata) -> Estimate:
    """Mean over strata of `first` minus that of `second`."""
    count = len(first)
    return bootstrap([*first, *second], lambda drawn: mean_over_strata(drawn[:count]) - mean_over_strata(drawn[count:]))


def probability_of_improvement(first: Strata, second: Strata) -> Estimate:
    """P(X > Y) + P(X = Y)/2 for a run X of `first` and Y of `second` in the same stratum, mean over strata."""
    _check_pairs(first, second)
    count = len(first)

    def statistic(drawn: list[np.ndarray]) -> np.ndarray:
        pairs = zip(drawn[:count], drawn[count:], strict=True)
        return np.mean([share_of_wins(x, y) for x, y in pairs], axis=0)

    return bootstrap([*first, *second], statistic)


def share_of_wins(
    x: Float[np.ndarray, "*resamples n"], y: Float[np.ndarray, "*resamples m"]
) -> Float[np.ndarray, "*resamples"]:
    """The Mann-Whitney U of x against y, divided by its largest value n·m; a tie is half a win."""
    return (1 + np.sign(x[..., :, None] - y[..., None, :]).mean(axis=(-2, -1))) / 2


@dataclass(frozen=True)
class Profile:
    """Share of runs above each threshold, mean over strata, with pointwise intervals."""

    thresholds: Float[np.ndarray, " taus"]
    share: Float[np.ndarray, " taus"]
    low: Float[np.ndarray, " taus"]
    high: Float[np.ndarray, " taus"]


def performance_profile(strata: Strata, thresholds: Float[np.ndarray, " taus"]) -> Profile:
    points = [bootstrap([(runs > tau).astype(float) for runs in strata], mean_over_strata) for tau in thresholds]
    columns = np.array([(point.value, point.low, point.high) for point in points]).reshape(-1, 3).T
    return Profile(np.asarray(thresholds, float), *columns)


def log_beta_weights(betas: Sequence[float]) -> Float[np.ndarray, " betas"]:
    """Weights of the trapezoid rule over log10(beta), divided by the width: they sum to one."""
    if len(betas) < 2 or any(not (math.isfinite(beta) and beta > 0) for beta in betas):
        raise UserError(f"betas: got {list(betas)}, must be at least two finite numbers > 0, for a logarithmic axis")
    at = np.log10(np.asarray(betas, float))
    gaps = np.diff(at)
    if (gaps <= 0).any():
        raise UserError(f"betas: got {list(betas)}, must rise")
    return np.asarray((np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / (at[-1] - at[0]))


def robustness_score(betas: Sequence[float], by_beta: Strata) -> Estimate:
    """Area under mean performance against log10(beta), divided by the width.

    One: as good as can be at every beta. For success the score is in [0, 1], and it depends on the range of betas
    swept, so only scores over the same betas compare.
    """
    return bootstrap(by_beta, score_statistic(betas))


def score_difference(betas: Sequence[float], first: Strata, second: Strata) -> Estimate:
    """Robustness score of `first` minus that of `second`."""
    count, score = len(betas), score_statistic(betas)
    return bootstrap([*first, *second], lambda drawn: score(drawn[:count]) - score(drawn[count:]))


def score_statistic(betas: Sequence[float]) -> Statistic:
    weights = log_beta_weights(betas)

    def statistic(drawn: list[np.ndarray]) -> np.ndarray:
        terms = [weight * runs.mean(axis=-1) for weight, runs in zip(weights, drawn, strict=True)]
        return np.sum(terms, axis=0)

    return statistic


def deviation_over_strata(drawn: list[np.ndarray]) -> np.ndarray:
    """Mean over strata of the standard deviation (n-1) of the runs in each."""
    return np.mean([runs.std(axis=-1, ddof=1) for runs in drawn], axis=0)


def deviation_of(strata: Strata) -> Estimate:
    return bootstrap(strata, deviation_over_strata)


def variance_of(strata: Strata) -> Estimate:
    """Mean over strata of the variance (n-1) of the runs in each."""
    return bootstrap(strata, lambda drawn: np.mean([runs.var(axis=-1, ddof=1) for runs in drawn], axis=0))


def share_of_trials(hits: int, trials: int, *, confidence: float = CONFIDENCE) -> Estimate:
    """A share of yes-or-no trials with its exact (Clopper-Pearson) interval, which has width at 0 and 1 too."""
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"{hits} of {trials} trials")
    interval = _scipy_stats().binomtest(hits, trials).proportion_ci(confidence, method="exact")
    return Estimate(hits / trials, float(interval.low), float(interval.high))


def _check(strata: Strata, *, needed: int) -> list[np.ndarray]:
    samples = [np.asarray(runs, float) for runs in strata]
    if not samples:
        raise UserError("runs: none given, must be at least one stratum")
    for index, runs in enumerate(samples):
        if runs.ndim != 1 or runs.size < needed:
            raise UserError(f"runs: stratum {index} has {runs.size}, must be at least {needed} for an interval")
        if not np.isfinite(runs).all():
            raise UserError(f"runs: stratum {index} has a value that is not finite: {runs.tolist()}")
    return samples


def _check_pairs(first: Strata, second: Strata) -> None:
    if len(first) != len(second):
        raise UserError(f"strata: got {len(first)} and {len(second)}, must be as many on either side")


def _scipy_stats() -> Any:
    try:
        from scipy import stats
    except ImportError:
        raise missing_extra("statistics with intervals", "studies") from None
    return stats

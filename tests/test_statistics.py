"""The statistics against numbers worked out by hand, against SciPy, and against the stored results of the room."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from hyper_rl.errors import UserError
from hyper_rl.studies import statistics

ROOM = Path(__file__).parents[1] / "results" / "room"
PAPER_BETAS = (5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1, 5e-1, 1.0, 10.0, 100.0)


def test_the_interquartile_mean_of_eight_numbers() -> None:
    # Two of eight go at either end: (3 + 4 + 5 + 60) / 4.
    assert statistics.iqm(np.array([100.0, 5.0, 3.0, -7.0, 60.0, 4.0, 1.0, 900.0])) == pytest.approx(18.0)


def test_the_interquartile_mean_leaves_out_whole_runs_only() -> None:
    assert statistics.iqm(np.array([0.0, 1.0, 2.0, 3.0, 10.0])) == pytest.approx(2.0)  # int(5/4) = 1 at either end
    assert statistics.iqm(np.array([0.0, 1.0, 5.0])) == pytest.approx(2.0)  # int(3/4) = 0
    assert statistics.iqm_of([np.array([0.0, 10.0]), np.array([1.0, 2.0, 3.0])]).value == pytest.approx(2.0)


def test_means_weigh_strata_and_not_runs() -> None:
    found = statistics.mean_of([np.array([0.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0])])
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_a_bootstrap_interval_whose_distribution_is_known() -> None:
    # Resampled sums of eight runs, half of them 1, are binomial(8, 1/2): its 2.5% and 97.5% points are 1 and 7.
    found = statistics.mean_of([np.array([0.0, 1.0] * 4)])
    assert (found.value, found.low, found.high) == (0.5, 1 / 8, 7 / 8)


def test_resampling_stays_within_a_stratum() -> None:
    # Pooled resampling would mix the two levels and give an interval of width about one.
    found = statistics.mean_of([np.array([0.0, 0.1]), np.array([1.0, 1.1])])
    assert found.value == pytest.approx(0.55)
    assert [found.low, found.high] == pytest.approx([0.5, 0.6])


def test_an_interval_covers_what_it_should() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        strata = [rng.normal(level, 1.0, 10) for level in (0.0, 2.0, 7.0)]
        found = statistics.bootstrap(strata, statistics.mean_over_strata, resamples=400)
        covered += found.low <= 3.0 <= found.high
    # The percentile bootstrap of ten runs is a little short: about 93% here; three standard errors are 5.4 points.
    assert 0.87 <= covered / 200 <= 0.99


def test_the_same_runs_give_the_same_digits() -> None:
    runs = [np.array([0.1, 0.5, 0.7]), np.array([0.0, 0.2])]
    assert statistics.iqm_of(runs) == statistics.iqm_of(runs)


def test_differences_have_the_sign_of_first_minus_second() -> None:
    found = statistics.difference_of([np.array([2.0, 4.0])], [np.array([1.0, 1.0])])
    assert (found.value, found.low, found.high) == (2.0, 1.0, 3.0)


def test_probability_of_improvement_by_hand_and_against_mann_whitney() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.0])
    # Wins: 1>0, 2>0, 3>2, 3>0; one tie 2=2; one loss 1<2: (4 + 1/2) / 6.
    assert statistics.probability_of_improvement([x], [y]).value == pytest.approx(0.75)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, 12).astype(float), rng.integers(1, 6, 9).astype(float)
    u = stats.mannwhitneyu(x, y).statistic
    assert statistics.share_of_wins(x, y) == pytest.approx(u / (12 * 9))


def test_probability_of_improvement_is_a_mean_over_tasks() -> None:
    better, worse = [np.ones(2), np.zeros(5)], [np.zeros(3), np.zeros(2)]
    found = statistics.probability_of_improvement(better, worse)
    assert (found.value, found.low, found.high) == (0.75, 0.75, 0.75)  # always better in one, always equal in one
    with pytest.raises(UserError, match="as many on either side"):
        statistics.probability_of_improvement(better, worse[:1])


def test_a_performance_profile_by_hand() -> None:
    strata = [np.array([0.2, 0.4, 0.6, 0.8]), np.array([1.0, 1.0])]
    profile = statistics.performance_profile(strata, np.array([0.0, 0.4, 0.7, 1.0]))
    assert profile.share == pytest.approx([1.0, 0.75, 0.625, 0.0])  # above, not at
    assert (profile.low <= profile.share).all() and (profile.share <= profile.high).all()


def test_the_score_of_a_step_function() -> None:
    # Decades -1..2. Success 0, 0, 1, 1: the step is climbed within one decade (half of it), then a full one.
    betas, runs = (0.1, 1.0, 10.0, 100.0), [np.zeros(2), np.zeros(2), np.ones(2), np.ones(2)]
    assert statistics.robustness_score(betas, runs).value == pytest.approx(1.5 / 3)


def test_the_score_does_not_depend_on_how_densely_a_flat_part_is_swept() -> None:
    assert statistics.log_beta_weights((0.1, 1.0, 10.0)) == pytest.approx([0.25, 0.5, 0.25])
    for betas in ((0.01, 100.0), (0.01, 0.02, 0.5, 100.0)):
        assert statistics.log_beta_weights(betas).sum() == pytest.approx(1.0)
        assert statistics.robustness_score(betas, [np.full(3, 0.7)] * len(betas)).value == pytest.approx(0.7)


@pytest.mark.parametrize("betas", [(1.0,), (0.0, 1.0), (1.0, 1.0), (1.0, 0.1), (1.0, math.inf), (math.nan, 1.0)])
def test_betas_that_have_no_place_on_a_log_axis(betas: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="betas: got"):
        statistics.log_beta_weights(betas)


def stored_success(method: str) -> list[np.ndarray]:
    runs = json.loads((ROOM / method / "result.json").read_text())["runs"]
    return [np.array([run["success"] for run in runs if run["beta"] == beta]) for beta in PAPER_BETAS]


def test_the_scores_of_the_room_are_those_worked_out_by_hand() -> None:
    # Setting A: UCB-Q succeeds at 0.005 and 0.01 alone. In decades: half of the way from 0.001 up to 0.005, all of
    # 0.005 to 0.01, half of 0.01 to 0.05: log10(5)/2 + log10(2) + log10(5)/2 = 1 of the log10(200000) swept.
    width = math.log10(100 / 5e-4)
    ucbq = statistics.robustness_score(PAPER_BETAS, stored_success("curiosity"))
    assert ucbq.value == pytest.approx(1 / width) == pytest.approx(0.18864, abs=1e-5)
    # Hyper succeeds from 0.005 on: half of log10(5), then log10(100/0.005) in full.
    hyper = statistics.robustness_score(PAPER_BETAS, stored_success("hyper"))
    by_hand = (math.log10(5) / 2 + math.log10(100 / 0.005)) / width
    assert hyper.value == pytest.approx(by_hand) == pytest.approx(0.87729, abs=1e-5)
    between = statistics.score_difference(PAPER_BETAS, stored_success("hyper"), stored_success("curiosity"))
    assert between.value == pytest.approx(by_hand - 1 / width)


def test_deviation_and_variance_by_hand() -> None:
    strata = [np.array([0.0, 2.0]), np.array([1.0, 1.0, 1.0])]
    assert statistics.variance_of(strata).value == pytest.approx(1.0)  # (2 + 0) / 2
    assert statistics.deviation_of(strata).value == pytest.approx(math.sqrt(2) / 2)


def test_exact_intervals_of_trials() -> None:
    # No hit in n trials: the upper limit solves (1 - q)^n = 0.025.
    none = statistics.share_of_trials(0, 10)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 10))
    every = statistics.share_of_trials(10, 10)
    assert every.low == pytest.approx(0.025 ** (1 / 10)) and every.high == 1.0
    with pytest.raises(ValueError, match="11 of 10"):
        statistics.share_of_trials(11, 10)


def test_bad_runs_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="stratum 1 has 1, must be at least 2"):
        statistics.mean_of([np.ones(3), np.ones(1)])
    with pytest.raises(UserError, match="stratum 0 has a value that is not finite"):
        statistics.mean_of([np.array([1.0, math.nan])])
    with pytest.raises(UserError, match="none given"):
        statistics.mean_of([])


def test_without_scipy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(UserError, match=r"hyper-rl\[studies\]"):
        statistics.mean_of([np.ones(3)])

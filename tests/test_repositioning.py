"""The length of the repositioning phase: its law, its decay, and who acts when."""

from __future__ import annotations

from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Float, Int
from scipy import stats

from hyper_rl.errors import UserError
from hyper_rl.methods.policies import METHODS, Policies, make_policies
from hyper_rl.methods.repositioning import (
    bounded_geometric_quantile,
    decayed_probability,
    plain_geometric_quantile,
    sample_length,
    uniform_for_quantile,
)

HORIZONS = (1, 2, 200, 1000)
PROBABILITIES = (1.0, 0.5, 0.01, 0.005, 0.001, 1e-6)
DIGITS = 60
QUANTILES = {True: jax.jit(bounded_geometric_quantile), False: jax.jit(plain_geometric_quantile)}
SAMPLES = jax.jit(jax.vmap(sample_length, in_axes=(0, None, None)))


def exact_cdf(p: Decimal, horizon: int) -> list[Decimal]:
    """F(0), F(1), ..., F(H) = (1 - q^l) / (1 - q^H) to 60 digits."""
    with localcontext() as context:
        context.prec = DIGITS
        q, power, tails = 1 - p, Decimal(1), []
        for _ in range(horizon + 1):
            tails.append(1 - power)
            power *= q
        return [tail / tails[-1] for tail in tails]


def exact_pmf(p: float, horizon: int) -> Float[np.ndarray, " horizon"]:
    cdf = exact_cdf(Decimal(p), horizon)
    return np.array([float(after - before) for before, after in pairwise(cdf)])


def quantiles(u: Float[np.ndarray, " n"], p: float, horizon: int, *, bounded: bool = True) -> Int[np.ndarray, " n"]:
    return np.asarray(QUANTILES[bounded](jnp.asarray(u), jnp.asarray(p, u.dtype), jnp.asarray(horizon, jnp.int32)))


def points_to_ask(cdf: list[Decimal], dtype: type[np.floating]) -> Float[np.ndarray, " n"]:
    """The middle of every step of the CDF, both sides of every edge, an even grid, and the ends of (0, 1)."""
    edges = np.array([float(value) for value in cdf], dtype)
    middles = np.array([float((a + b) / 2) for a, b in pairwise(cdf)], dtype)
    sides = np.concatenate([edges, np.nextafter(edges, dtype(0)), np.nextafter(edges, dtype(1))])
    ends = np.array([np.finfo(dtype).tiny, 1 - np.finfo(dtype).epsneg], dtype)
    return np.clip(np.concatenate([middles, sides, np.linspace(0.001, 0.999, 999, dtype=dtype)]), *ends)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_quantiles_are_the_closed_form_up_to_rounding(horizon: int, p: float, dtype: type[np.floating]) -> None:
    """The answer l must satisfy F(l-1) < u <= F(l) for some u within five roundings of the u asked about."""
    with jax.enable_x64(dtype is np.float64):
        # What the function is given is p rounded to the format; the closed form takes that very number.
        cdf = exact_cdf(Decimal(float(dtype(p))), horizon)
        asked = points_to_ask(cdf, dtype)
        answers = quantiles(asked, p, horizon)
    slack = 5 * Decimal(float(np.finfo(dtype).epsneg))
    for u, length in zip(asked, answers, strict=True):
        exact = Decimal(float(u))
        assert 1 <= length <= horizon
        assert cdf[length - 1] - slack <= exact <= cdf[length] + slack, (u, length)


@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_middles_of_the_steps_give_the_very_length(horizon: int, p: float) -> None:
    """No slack at all in float64, wherever float64 can tell the middle of a step from its edges."""
    cdf = exact_cdf(Decimal(p), horizon)
    pairs = list(pairwise(cdf))
    wide = np.array([b - a > Decimal("1e-14") for a, b in pairs])
    with jax.enable_x64(True):
        answers = quantiles(np.array([float((a + b) / 2) for a, b in pairs]), p, horizon)
    np.testing.assert_array_equal(answers[wide], np.arange(1, horizon + 1)[wide])
    assert wide.all() or p >= 0.5


@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_samples_fit_the_law(horizon: int, p: float) -> None:
    """Chi-square at level 1e-4, neighbouring lengths pooled until each cell expects at least 20."""
    count = 100_000
    keys = jax.random.split(jax.random.key(7), count)
    lengths = np.asarray(SAMPLES(keys, jnp.asarray(p, float), jnp.asarray(horizon, jnp.int32)))
    assert lengths.dtype == np.int32 and lengths.min() >= 1 and lengths.max() <= horizon
    observed = np.bincount(lengths, minlength=horizon + 1)[1:]
    seen, wanted = pool(observed, count * exact_pmf(p, horizon), 20.0)
    if p == 1.0 or horizon == 1:
        assert lengths.max() == 1
        return
    assert len(seen) > 1
    assert stats.chisquare(seen, wanted * (seen.sum() / wanted.sum())).pvalue > 1e-4


def pool(
    observed: Int[np.ndarray, " n"], expected: Float[np.ndarray, " n"], least: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Join neighbours from the left until every cell expects `least`; what is left over joins the last cell."""
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, wanted in zip(observed, expected, strict=True):
        if cells[-1][1] >= least:
            cells.append([0.0, 0.0])
        cells[-1][0] += seen
        cells[-1][1] += wanted
    if len(cells) > 1 and cells[-1][1] < least:
        seen_left, wanted_left = cells.pop()
        cells[-1][0] += seen_left
        cells[-1][1] += wanted_left
    both = np.array(cells)
    return both[:, 0], both[:, 1]


@pytest.mark.parametrize(
    ("horizon", "p", "share"),
    [(200, 0.01, 0.345), (200, 0.005, 0.420), (200, 0.001, 0.486), (300, 0.01, 0.282), (1000, 0.001, 0.418)],
)
def test_mean_share_of_the_episode(horizon: int, p: float, share: float) -> None:
    """mean L / H, three digits, from the law, from the quantile function and from samples."""
    from_law = float(np.arange(1, horizon + 1) @ exact_pmf(p, horizon)) / horizon
    with jax.enable_x64(True):
        even = (np.arange(1_000_000) + 0.5) / 1_000_000
        from_quantiles = float(quantiles(even, p, horizon).mean()) / horizon
    # 4 million samples: the standard error is 0.25 / 2000 = 0.00013.
    u = np.asarray(uniform_for_quantile(jax.random.key(1), (4_000_000,)))
    from_samples = float(quantiles(u, p, horizon).mean()) / horizon
    assert round(from_law, 3) == share
    assert from_quantiles == pytest.approx(from_law, abs=1e-5)
    assert from_samples == pytest.approx(from_law, abs=5e-4)


def test_p_one_always_explores_from_the_first_step() -> None:
    for horizon in (*HORIZONS, 100_000):
        for dtype in (np.float32, np.float64):
            with jax.enable_x64(dtype is np.float64):
                u = np.linspace(np.finfo(dtype).tiny, 1 - np.finfo(dtype).epsneg, 1001, dtype=dtype)
                assert (quantiles(u, 1.0, horizon) == 1).all()
                assert (quantiles(u, 1.0, horizon, bounded=False) == 1).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_stable_for_long_episodes_and_tiny_p(dtype: type[np.floating]) -> None:
    """H = 1e5, p = 1e-6: all but uniform, where float32 rounds 1 - p by more than a hundredth of p."""
    horizon, p = 100_000, 1e-6
    with jax.enable_x64(dtype is np.float64):
        cdf = exact_cdf(Decimal(float(dtype(p))), horizon)
        asked = np.random.default_rng(0).uniform(size=5000).astype(dtype)
        answers = quantiles(asked, p, horizon)
    slack = 5 * Decimal(float(np.finfo(dtype).epsneg))
    for u, length in zip(asked, answers, strict=True):
        assert cdf[length - 1] - slack <= Decimal(float(u)) <= cdf[length] + slack
    # Tilted by a twelfth of H p = 0.1 below one half: mean / H = 1/2 - 0.1 / 12 + O(1e-5).
    even = ((np.arange(1_000_000) + 0.5) / 1_000_000).astype(dtype)
    with jax.enable_x64(dtype is np.float64):
        mean = float(quantiles(even, p, horizon).mean()) / horizon
    assert mean == pytest.approx(0.5 - 0.1 / 12, abs=2e-5)


@pytest.mark.parametrize(
    ("horizon", "p", "piled"),
    [(200, 0.01, 0.135), (200, 0.005, 0.369), (200, 0.001, 0.819), (300, 0.01, 0.050), (500, 0.01, 0.007),
     (1000, 0.01, 0.000), (1000, 0.001, 0.368)],
)  # fmt: skip
def test_plain_geometric_piles_up_at_the_horizon(horizon: int, p: float, piled: float) -> None:
    """P(L = H) = (1-p)^(H-1) is the share of episodes that never explore."""
    even = (np.arange(1_000_000) + 0.5) / 1_000_000
    with jax.enable_x64(True):
        lengths = quantiles(even, p, horizon, bounded=False)
    assert round(float((lengths == horizon).mean()), 3) == piled
    assert float((lengths == horizon).mean()) == pytest.approx((1 - p) ** (horizon - 1), abs=2e-6)
    # Below the horizon it is the geometric distribution itself.
    assert float((lengths == 1).mean()) == pytest.approx(p, abs=2e-6)
    assert float((lengths == 2).mean()) == pytest.approx(p * (1 - p), abs=2e-6)


def test_p_decays_linearly_in_steps_and_stays_at_its_end() -> None:
    # 0.01 -> 0.001 over 1000 steps: 0.01 - 0.009 * step / 1000.
    by_hand = {0: 0.01, 250: 0.00775, 500: 0.0055, 1000: 0.001, 5000: 0.001}
    for step, p in by_hand.items():
        got = decayed_probability(jnp.asarray(step), jnp.asarray(1000), 0.01, 0.001)
        assert float(got) == pytest.approx(p, rel=1e-6)
    rising = decayed_probability(jnp.asarray(500), jnp.asarray(1000), 0.01, 1 / 60)
    assert float(rising) == pytest.approx((0.01 + 1 / 60) / 2, rel=1e-6)


def test_lengths_follow_p_at_the_episodes_start() -> None:
    policies = make_policies("hyper", 1.0, 1e-6)
    keys = jax.random.split(jax.random.key(3), 2000)
    budget, horizon = jnp.asarray(1000), jnp.asarray(100)

    def lengths(step: int) -> Int[np.ndarray, " n"]:
        draw = jax.vmap(policies.draw_length, in_axes=(0, None, None, None))
        return np.asarray(draw(keys, jnp.asarray(step), budget, horizon))

    assert (lengths(0) == 1).all()
    # Standard error of the mean of 1..100 drawn 2000 times: 28.9 / 44.7 = 0.65.
    assert lengths(1000).mean() == pytest.approx(50.5, abs=3)


def test_task_policy_acts_for_exactly_l_minus_one_steps() -> None:
    policies = make_policies("hyper", 0.01, 0.001)
    assert policies.roles == ("task", "explorer")
    for length in (1, 2, 7, 100):
        acting = [int(policies.acting(jnp.asarray(t), jnp.asarray(length))) for t in range(100)]
        assert acting == [0] * (length - 1) + [1] * (100 - length + 1)


@pytest.mark.parametrize(
    ("method", "judged", "explores"), [("exploit", "task", False), ("curiosity", "explorer", True)]
)
def test_single_learner_methods_never_hand_over(method: str, judged: str, explores: bool) -> None:
    policies = make_policies(method, 0.01, 0.001)
    assert policies.roles == (judged,) and policies.judged == 0 and policies.explores == explores
    length = policies.draw_length(jax.random.key(0), jnp.asarray(0), jnp.asarray(10), jnp.asarray(100))
    assert int(length) == 1
    assert {int(policies.acting(jnp.asarray(t), jnp.asarray(50))) for t in range(100)} == {0}


@pytest.mark.parametrize("bounded", [True, False])
def test_decouple_explores_from_the_first_step_whatever_p_is_asked(bounded: bool) -> None:
    policies = make_policies("decouple", 0.01, 0.001, bounded=bounded)
    assert policies.roles == ("task", "explorer") and policies.judged == 0
    keys = jax.random.split(jax.random.key(0), 5000)
    draw = jax.vmap(policies.draw_length, in_axes=(0, None, None, None))
    lengths = draw(keys, jnp.asarray(500), jnp.asarray(1000), jnp.asarray(1000))
    assert (np.asarray(lengths) == 1).all()
    assert {int(policies.acting(jnp.asarray(t), jnp.asarray(1))) for t in range(50)} == {1}


def test_hyper_and_decouple_are_one_program_with_other_data() -> None:
    hyper: Any = jax.tree.structure(make_policies("hyper", 0.01, 0.001))
    decouple: Any = jax.tree.structure(make_policies("decouple", 0.01, 0.001))
    assert hyper == decouple


def test_unknown_methods_and_impossible_probabilities_are_refused() -> None:
    with pytest.raises(UserError, match="hyper"):
        make_policies("hypr", 0.01, 0.001)
    for bad in (0.0, -0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match="p_start"):
            make_policies("hyper", bad, 0.001)
        with pytest.raises(UserError, match="p_end"):
            Policies(0.01, bad, ("task", "explorer"))
    assert METHODS == ("exploit", "curiosity", "decouple", "hyper", "lesson")

"""The families are linear MDPs, the solvers are exact, and bad data is refused with its index."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from hyper_rl.errors import UserError
from hyper_rl.theory import (
    LinearMDP,
    deepsea,
    greedy,
    linear_mdp,
    lock,
    lowrank,
    make_settings,
    one_hot,
    optimal,
    policy_value,
    riverswim,
    room,
    theory_beta,
    timed_lock,
)

STAY = np.eye(2)[:, None, :].repeat(2, axis=1)
"""Two states, two actions, nobody moves."""
NO_PAY = np.zeros((2, 2))
START = [1.0, 0.0]


@pytest.mark.parametrize("make", [riverswim, lock, timed_lock, deepsea, lowrank])
def test_families_pass_the_full_check(make: Callable[[], LinearMDP]) -> None:
    """one_hot takes a short cut; here every family goes through the check that solves for θ and μ."""
    mdp = make()
    again = linear_mdp(mdp.features, mdp.rewards, mdp.transitions, mdp.start, mdp.horizon, mdp.name)
    np.testing.assert_array_equal(again.transitions, mdp.transitions)


def test_known_optima() -> None:
    assert optimal(lock()).value == 1.0
    assert optimal(timed_lock()).value == 1.0
    assert optimal(deepsea(10)).value == 1.0
    assert optimal(riverswim(horizon=1)).value == 0.005


def test_deepsea_is_the_usual_one_up_to_its_shift() -> None:
    """n steps left forgo the treasure and earn n·0.01/N."""
    mdp = deepsea(10)
    left = np.zeros((10, 10, 2))
    left[..., 0] = 1
    assert policy_value(mdp, left).value == pytest.approx(0.01, abs=1e-15)


def test_the_room_at_full_size_is_solved() -> None:
    """28 steps to the goal, 4 to the sub-goal: one step short of 28 only the sub-goal pays."""
    assert optimal(room()).value == 1.0
    assert optimal(room(horizon=27)).value == pytest.approx(0.1)
    assert optimal(room(horizon=3)).value == 0.0


def test_no_policy_beats_the_optimum_and_greedy_reaches_it() -> None:
    mdp = lowrank()
    best = optimal(mdp)
    assert policy_value(mdp, greedy(best.q)).value == pytest.approx(best.value, abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        policy = rng.dirichlet(np.ones(mdp.actions), size=(mdp.horizon, mdp.states))
        assert (policy_value(mdp, policy).q <= best.q + 1e-12).all()


def test_tied_actions_share_the_probability() -> None:
    np.testing.assert_array_equal(greedy(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])), [[0.5, 0.5, 0], [0, 0, 1]])


def test_policy_must_be_probabilities() -> None:
    with pytest.raises(UserError, match=r"policy\[h=3, s=1\]"):
        policy = np.full((8, 9, 4), 0.25)
        policy[3, 1, 0] = 0.5
        policy_value(lock(), policy)


def bad_transition() -> LinearMDP:
    law = STAY.copy()
    law[1, 0, 1] = 0.9
    return one_hot(NO_PAY, law, START, 2, "bad")


def negative_transition() -> LinearMDP:
    law = STAY.copy()
    law[0, 1] = (1.5, -0.5)
    return one_hot(NO_PAY, law, START, 2, "bad")


def long_feature() -> LinearMDP:
    features = np.eye(4).reshape(2, 2, 4)
    features[1, 1, 3] = 1.2
    return linear_mdp(features, NO_PAY, STAY, START, 2, "bad")


def not_linear() -> LinearMDP:
    """One feature for all four pairs cannot tell the two states apart."""
    return linear_mdp(np.ones((2, 2, 1)), NO_PAY, STAY, START, 2, "bad")


def weak_features() -> LinearMDP:
    """φ = 0.1 needs ||μ(S)|| = 10 > sqrt(d) = 1."""
    return linear_mdp(np.full((1, 1, 1), 0.1), np.zeros((1, 1)), np.ones((1, 1, 1)), [1.0], 1, "bad")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bad_transition, r"transitions\[h=0, s=1, a=0\] sums to 0\.9: every row must sum to 1"),
        (negative_transition, r"transitions\[h=0, s=0, a=1, next=1\] = -0\.5: must be >= 0"),
        (long_feature, r"features\[s=1, a=1\] has norm 1\.2: must be at most 1"),
        (not_linear, r"transitions\[h=0, s=0, a=0\] is off by 0\.5 from any linear function"),
        (weak_features, r"transitions\[h=0\] needs \|\|μ\(S\)\|\| = 10: must be at most sqrt\(d\) = 1"),
        (lambda: one_hot(NO_PAY, STAY, START, 0, "bad"), r"horizon = 0: must be at least 1"),
        (lambda: riverswim(horizon=0), r"horizon = 0: must be at least 1"),
        (lambda: lock(horizon=0), r"horizon = 0: must be at least 1"),
        (lambda: one_hot(NO_PAY + 2, STAY, START, 2, "bad"), r"rewards\[h=0, s=0, a=0\] = 2: must lie in \[0, 1\]"),
        (lambda: one_hot(NO_PAY, STAY, [0.5, 0.4], 2, "bad"), r"start sums to 0\.9: must sum to 1"),
        (lambda: one_hot(NO_PAY, STAY * np.nan, START, 2, "bad"), r"transitions\[0, 0, 0\] = nan: must be a finite"),
        (lambda: one_hot(NO_PAY, STAY[:1], START, 2, "bad"), r"transitions: shape \(1, 1, 2, 2\); must be"),
        (lambda: make_settings([1, -0.5], [1, 1], [1, 1]), r"beta\[1\] = -0\.5: must be >= 0"),
        (lambda: make_settings([1], [1], [1], [-1]), r"beta_low\[0\] = -1: must be >= 0"),
        (lambda: make_settings([1, 1], [0.5, 0], [1, 1]), r"p\[1\] = 0: must be in \(0, 1\]"),
        (lambda: make_settings([1], [1.5], [1]), r"p\[0\] = 1\.5: must be in \(0, 1\]"),
        (lambda: make_settings([1], [1], [0]), r"lambda\[0\] = 0: must be > 0"),
        (lambda: make_settings([float("nan")], [1], [1]), r"beta\[0\] = nan: must be >= 0"),
        (lambda: theory_beta(lock(), 10, delta=1.0), r"delta = 1\.0: must lie in \(0, 1\)"),
    ],
)
def test_bad_input_is_refused_with_its_index(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()


def test_theory_beta_at_the_papers_sizes() -> None:
    """c·d·H·sqrt(log(2dT/δ)): 144·sqrt(log(24·36000/0.1)) for RiverSwim, 288·sqrt(log(72·24000/0.1)) for the lock."""
    assert theory_beta(riverswim(), 3000) == pytest.approx(144 * np.sqrt(np.log(8_640_000)))
    assert round(theory_beta(lock(), 3000)) == 1176
    assert round(theory_beta(lowrank(), 3000)) == 185

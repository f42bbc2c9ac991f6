"""Q̂ >= Q* and Q̌ <= Q* at the paper's β, and the same check failing when β is far too small."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hyper_rl.theory import LinearMDP, lock, riverswim, theory_beta
from hyper_rl.theory.study_confidence import confidence_rows, smallest_holding

DELTA, SEEDS, EPISODES = 0.1, 200, 100


@pytest.mark.parametrize("make", [riverswim, lock])
def test_bounds_hold_at_theory_beta_and_fail_far_below(make: Callable[[], LinearMDP]) -> None:
    """All (h,s,a), all episodes, 200 seeds. The study runs the same over 3,000 episodes."""
    mdp = make()
    tiny, theory = confidence_rows(mdp, [0.01, theory_beta(mdp, EPISODES, DELTA)], [0.5], SEEDS, EPISODES)
    assert theory["upper_holds"] >= 1 - DELTA
    assert theory["lower_holds"] >= 1 - DELTA
    assert tiny["upper_holds"] == 0.0
    # At theory β the estimates never leave their clips in so few episodes: the bound holds, and says nothing.
    assert theory["upper_free_last"] == theory["lower_free_last"] == 0.0


def test_the_lower_bound_can_fail_too() -> None:
    """β' = 0 while β explores: a lucky transition puts Q̌ above Q* in most seeds; β' = 10 holds on the same data."""
    mdp = riverswim()
    without, with_malus = confidence_rows(mdp, [10.0, 10.0], [0.5], SEEDS, EPISODES, [0.0, 10.0])
    assert without["lower_holds"] < 0.5
    assert with_malus["lower_holds"] == 1.0


def test_smallest_holding_wants_every_larger_beta_to_hold() -> None:
    rows = [{"beta": b, "share": s} for b, s in ((1, 1.0), (2, 0.5), (3, 0.95), (4, 1.0))]
    assert smallest_holding(rows, "share", 0.9) == 3
    assert smallest_holding(rows[:2], "share", 0.9) is None

"""Sherman-Morrison statistics against sums over the whole history, over 500 episodes of one fixed stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hyper_rl.theory import LinearMDP, deepsea, lock, lowrank, lsvi, riverswim

LOOKED_AT = (1, 2, 3, 10, 30, 100, 250, 500)


@pytest.mark.parametrize("make", [riverswim, lock, deepsea, lowrank])
def test_incremental_equals_resumming(
    make: Callable[[], LinearMDP],
    fixed_stream: Callable[[LinearMDP, int], lsvi.Episode],
    absorb: Callable[..., Any],
    resummed: Callable[..., Any],
) -> None:
    mdp = make()
    stream = fixed_stream(mdp, 500)
    beta, beta_low, ridge = 2.0, 0.7, 0.9
    statistics, estimates = absorb(mdp, stream, beta, beta_low, ridge, every=True)
    for k in LOOKED_AT:
        expected = resummed(mdp, lsvi.Episode(*(x[:k] for x in stream)), beta, beta_low, ridge)
        inverse = np.linalg.inv(expected.gram)
        np.testing.assert_allclose(statistics.inverse_gram[k - 1], inverse, rtol=0, atol=1e-9)
        np.testing.assert_allclose(estimates.weights[k - 1], expected.weights, rtol=0, atol=1e-9)
        np.testing.assert_allclose(estimates.q[k - 1], expected.q, rtol=0, atol=1e-9)
    # Lemma "Bound on ŵ" of the paper, for all three estimates: ||w_h|| <= 2H sqrt(dk/λ).
    norms = np.linalg.norm(estimates.weights, axis=-1).max((1, 2))
    assert (norms <= 2 * mdp.horizon * np.sqrt(mdp.dimension * np.arange(1, 501) / ridge)).all()

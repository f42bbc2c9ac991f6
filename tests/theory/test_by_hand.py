"""Λ, weights and Q after three episodes, against numbers worked out on paper.

Two states, two actions, H = 2, d = 2, λ = 1, β = 1, β' = 1/2. Features: φ(0,0) = (1,0), φ(1,0) = (0,1) and
φ(0,1) = φ(1,1) = (1/2,1/2); μ = ((1/2,1/2), (0,1)), θ = (0,1). Episodes (s,a,s',a',s''):
(0,0,0,1,1), (0,1,1,0,1), (0,0,1,0,1).

h = 1: Λ = I + (1,0)(1,0)' + (1/2,1/2)(1/2,1/2)' + (1,0)(1,0)' = [[13,1],[1,5]]/4, Λ^-1 = [[5,-1],[-1,13]]/16.
h = 2: Λ = [[5,1],[1,13]]/4, Λ^-1 = [[13,-1],[-1,5]]/16, Σφr = (1/4, 9/4), so w = (1/16, 11/16) in all three rows.
With u = V_2(0), v = V_2(1), the targets of h = 1 are u, 1/2+v, v, hence w_1 = ((5u+1+7v)/16, (3-u+5v)/16).
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np

from hyper_rl.theory import LinearMDP, linear_mdp, lsvi, optimal

FEATURES = np.array([[[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]]])
STREAM = lsvi.Episode(
    np.array([[0, 0], [0, 1], [0, 1]]), np.array([[0, 1], [1, 0], [0, 0]]), np.array([[0, 1], [1, 1], [1, 1]])
)


def small() -> LinearMDP:
    measures = np.array([[0.5, 0.5], [0, 1]])
    return linear_mdp(FEATURES, FEATURES @ np.array([0.0, 1.0]), FEATURES @ measures, [1, 0], 2, "small")


def first_step_weights(u: float, v: float) -> list[float]:
    return [(5 * u + 1 + 7 * v) / 16, (3 - u + 5 * v) / 16]


def test_three_episodes_by_hand(absorb: Callable[..., Any]) -> None:
    statistics, estimates = absorb(small(), STREAM, 1.0, 0.5, 1.0)
    gram = np.linalg.inv(statistics.inverse_gram)
    np.testing.assert_allclose(gram[0], np.array([[13, 1], [1, 5]]) / 4, rtol=0, atol=1e-12)
    np.testing.assert_allclose(gram[1], np.array([[5, 1], [1, 13]]) / 4, rtol=0, atol=1e-12)

    wide, narrow = sqrt(13) / 4, sqrt(5) / 4  # widths of the unit features; the mixed one has width 1/2 at both steps
    q2_hat = [[1 / 16 + wide, 7 / 8], [11 / 16 + narrow, 7 / 8]]
    q2 = [[1 / 16, 3 / 8], [11 / 16, 3 / 8]]
    q2_check = [[0, 1 / 8], [11 / 16 - narrow / 2, 1 / 8]]
    np.testing.assert_allclose(estimates.weights[1], [[1 / 16, 11 / 16]] * 3, rtol=0, atol=1e-12)
    np.testing.assert_allclose(estimates.q[1], [q2_hat, q2, q2_check], rtol=0, atol=1e-12)

    w_hat = first_step_weights(1 / 16 + wide, 11 / 16 + narrow)
    w = [123 / 256, 97 / 256]
    w_check = first_step_weights(1 / 8, 11 / 16 - narrow / 2)
    np.testing.assert_allclose(estimates.weights[0], [w_hat, w, w_check], rtol=0, atol=1e-12)
    np.testing.assert_allclose(estimates.q[0, 1], [[123 / 256, 55 / 128], [97 / 256, 55 / 128]], rtol=0, atol=1e-12)
    mixed = sum(w_hat) / 2 + 1 / 2
    np.testing.assert_allclose(
        estimates.q[0, 0], [[w_hat[0] + narrow, mixed], [w_hat[1] + wide, mixed]], rtol=0, atol=1e-12
    )
    low = max(sum(w_check) / 2 - 1 / 4, 0)
    np.testing.assert_allclose(
        estimates.q[0, 2],
        [[max(w_check[0] - narrow / 2, 0), low], [max(w_check[1] - wide / 2, 0), low]],
        rtol=0,
        atol=1e-12,
    )


def test_optimum_by_hand() -> None:
    """Q*_2 = r; V*_2 = (1/2, 1); Q*_1 = r + P V*_2 with rows (1/2,1/2), (1/4,3/4), (0,1), (1/4,3/4)."""
    found = optimal(small())
    np.testing.assert_allclose(found.q[1], [[0, 0.5], [1, 0.5]], atol=1e-15)
    np.testing.assert_allclose(found.q[0], [[3 / 4, 11 / 8], [2, 11 / 8]], atol=1e-15)
    assert found.value == 11 / 8

"""The paper's Lemma (Lower Confidence Bound), "Q̌ <= Q^π for any policy π on the event E", is false.

Its induction needs max_a Q̌_{h+1} <= V^π_{h+1}, which a policy that plays a bad action breaks at once. Both data sets
below satisfy what the event E is used for, |<φ,w̌> - Q^π - P(V̌ - V^π)| <= β'·||φ||, at every (h,s,a): the lemma
before it holds, the lemma itself does not. What the same induction does give is Q̌ <= Q^π for π greedy in Q̌ itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hyper_rl.theory import LinearMDP, greedy, lsvi, one_hot, policy_value, theory_beta
from hyper_rl.theory.lsvi import PESSIMISTIC, PLAIN


def one_step_errors(mdp: LinearMDP, statistics: Any, estimates: Any, policy: np.ndarray) -> np.ndarray:
    """|Δ̃| / ||φ|| of Lemma "Pessimistic Policy Action-Value Estimation Error", per (h,s,a)."""
    value = policy_value(mdp, policy)
    lower = estimates.q[:, PESSIMISTIC].max(-1)
    errors = np.zeros((mdp.horizon, mdp.states, mdp.actions))
    for h in range(mdp.horizon):
        ahead = lower[h + 1] - value.v[h + 1] if h + 1 < mdp.horizon else np.zeros(mdp.states)
        linear = mdp.features @ estimates.weights[h, PESSIMISTIC]
        errors[h] = np.abs(linear - value.q[h] - mdp.transition(h) @ ahead)
    return errors / np.sqrt(statistics.squared_width)


def holds_for_its_own_greedy_policy(mdp: LinearMDP, estimates: Any) -> bool:
    lower = estimates.q[:, PESSIMISTIC]
    return bool((lower <= policy_value(mdp, greedy(lower)).q + 1e-9).all())


def test_a_policy_that_plays_the_bad_action(absorb: Callable[..., Any]) -> None:
    """One state, two actions, H = 2; action 0 pays 1 at the last step. A thousand episodes of action 0, theory β'.

    Nothing is random, so the event holds surely. Q̌_2(0) = 1000/1001 - β'/sqrt(1001) = 0.574 and
    Q̌_1(0) = 1000/1001·0.574 - β'/sqrt(1001) = 0.149; the policy that always plays action 1 has Q^π_1 = 0.
    """
    episodes = 1000
    mdp = one_hot([[[0, 0]], [[1, 0]]], np.ones((1, 2, 1)), [1.0], 2, "one state")
    beta_low = theory_beta(mdp, episodes)
    always_zero = lsvi.Episode(*(np.zeros((episodes, 2), int) for _ in range(3)))
    statistics, estimates = absorb(mdp, always_zero, beta_low, beta_low, 1.0)
    bad = np.tile(np.array([0.0, 1.0]), (2, 1, 1))

    assert (one_step_errors(mdp, statistics, estimates, bad) <= beta_low).all()
    last = 1000 / 1001 - beta_low / np.sqrt(1001)
    expected = 1000 / 1001 * last - beta_low / np.sqrt(1001)
    lower = estimates.q[0, PESSIMISTIC, 0, 0]
    assert abs(lower - expected) < 1e-9
    assert lower > 0.14
    assert policy_value(mdp, bad).q[0, 0, 0] == 0.0  # so Q̌ > Q^π: the lemma fails
    assert holds_for_its_own_greedy_policy(mdp, estimates)


def test_even_the_output_policy_is_not_covered(absorb: Callable[..., Any]) -> None:
    """The proof uses the lemma for π_k, greedy in the plain Q: V̌_1 <= V^{π_k}_1 does not follow from the event either.

    Action 0 reaches the paying state with probability 0.9, action 1 with 0.1. Data: 20,000 times action 0 at its true
    frequency, 50 times action 1, lucky each time. β' forgives that luck, the plain Q believes it, and π_k plays
    action 1.
    """
    law = np.zeros((3, 2, 3))
    law[0] = [[0, 0.9, 0.1], [0, 0.1, 0.9]]
    law[1:, :, 2] = 1.0
    pay = np.zeros((3, 2))
    pay[1] = 1.0
    mdp = one_hot(pay, law, [1.0, 0, 0], 2, "lucky")
    middle = np.concatenate([np.tile([1] * 9 + [2], 2000), np.ones(50, int)])
    first = np.concatenate([np.zeros(20_000, int), np.ones(50, int)])
    zeros = np.zeros_like(middle)
    stream = lsvi.Episode(np.stack([zeros, middle], 1), np.stack([first, zeros], 1), np.stack([middle, zeros + 2], 1))
    beta_low = theory_beta(mdp, len(middle))
    statistics, estimates = absorb(mdp, stream, beta_low, beta_low, 1.0)
    output = greedy(estimates.q[:, PLAIN])

    assert (one_step_errors(mdp, statistics, estimates, output) <= beta_low).all()
    assert output[0, 0].tolist() == [0.0, 1.0]
    value = policy_value(mdp, output).value
    assert abs(value - 0.1) < 1e-12
    assert estimates.q[0, PESSIMISTIC, 0].max() > value + 0.1
    assert holds_for_its_own_greedy_policy(mdp, estimates)

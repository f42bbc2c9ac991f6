"""Exact solvers by backward induction, in numpy float64: V*, Q*, and the value of any policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from hyper_rl.errors import UserError
from hyper_rl.theory.mdp import LinearMDP


class Solution(NamedTuple):
    """Values at every step; `value` is the expected return from the start distribution."""

    q: Float[np.ndarray, "H S A"]
    v: Float[np.ndarray, "H S"]
    value: float


def greedy(q: Float[np.ndarray, "*batch A"]) -> Float[np.ndarray, "*batch A"]:
    """The greedy policy as probabilities, uniform over tied actions, so that its value is exact without sampling."""
    best = q == q.max(-1, keepdims=True)
    return np.asarray(best / best.sum(-1, keepdims=True))


def optimal(mdp: LinearMDP) -> Solution:
    """Q* and V*."""
    return _backward(mdp, lambda _, q: q.max(-1))


def policy_value(mdp: LinearMDP, policy: Float[np.ndarray, "H S A"]) -> Solution:
    """Q^π and V^π of a policy given as action probabilities per step and state."""
    expected = (mdp.horizon, mdp.states, mdp.actions)
    if policy.shape != expected:
        raise UserError(f"policy: shape {policy.shape}; must be {expected}")
    wrong = np.argwhere((np.abs(policy.sum(-1) - 1) > 1e-9) | (policy < 0).any(-1))
    if len(wrong):
        h, s = (int(i) for i in wrong[0])
        raise UserError(f"policy[h={h}, s={s}] = {policy[h, s].tolist()}: must be probabilities that sum to 1")
    return _backward(mdp, lambda h, q: (policy[h] * q).sum(-1))


def reachable(mdp: LinearMDP) -> Bool[np.ndarray, "H S"]:
    """Which states some policy visits at each step with positive probability."""
    seen = np.zeros((mdp.horizon, mdp.states), dtype=bool)
    seen[0] = mdp.start > 0
    for h in range(mdp.horizon - 1):
        seen[h + 1] = (mdp.transition(h)[seen[h]] > 0).any((0, 1))
    return seen


def _backward(mdp: LinearMDP, state_value: Callable[[int, np.ndarray], np.ndarray]) -> Solution:
    """Q_h = r_h + P_h V_{h+1} and V_h = state_value(h, Q_h), from the last step to the first."""
    q = np.zeros((mdp.horizon, mdp.states, mdp.actions))
    v = np.zeros((mdp.horizon + 1, mdp.states))
    for h in reversed(range(mdp.horizon)):
        q[h] = mdp.rewards[h] + mdp.transition(h) @ v[h + 1]
        v[h] = state_value(h, q[h])
    return Solution(q, v[:-1], float(mdp.start @ v[0]))

"""Finite linear MDPs as data, checked against the paper's Assumption (linear MDP) when they are built.

A linear MDP has features φ(s,a) in R^d with P_h(.|s,a) = φ(s,a)·μ_h(.) and r_h(s,a) = φ(s,a)·θ_h, where
||φ|| <= 1 and max(||μ_h(S)||, ||θ_h||) <= sqrt(d). μ and θ are unknown to the algorithms, so they are not stored:
building an MDP solves for the shortest ones and refuses the data when none fits or none is short enough.

Arrays are numpy float64, whatever jax's default precision is: exact solvers and checks happen on the host.
"""

from __future__ import annotations

import equinox as eqx
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from hyper_rl.errors import UserError

SUM_TOLERANCE = 1e-9
NORM_TOLERANCE = 1e-9
FIT_TOLERANCE = 1e-8


class LinearMDP(eqx.Module):
    """Steps are numbered h = 0 .. horizon-1; `transitions` has one leading entry when all steps share one law."""

    features: Float[np.ndarray, "S A d"]
    rewards: Float[np.ndarray, "H S A"]
    transitions: Float[np.ndarray, "T S A S"]
    start: Float[np.ndarray, " S"]
    horizon: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def states(self) -> int:
        return int(self.features.shape[0])

    @property
    def actions(self) -> int:
        return int(self.features.shape[1])

    @property
    def dimension(self) -> int:
        return int(self.features.shape[2])

    def transition(self, h: int) -> Float[np.ndarray, "S A S"]:
        """P_h, whichever way it is stored."""
        return np.asarray(self.transitions[min(h, len(self.transitions) - 1)])


def linear_mdp(
    features: ArrayLike, rewards: ArrayLike, transitions: ArrayLike, start: ArrayLike, horizon: int, name: str
) -> LinearMDP:
    """A checked linear MDP. `rewards` is [S,A] or [H,S,A], `transitions` [S,A,S], [1,S,A,S] or [H,S,A,S]."""
    mdp = _assemble(features, rewards, transitions, start, horizon, name)
    _check_linear(mdp)
    return mdp


def one_hot(rewards: ArrayLike, transitions: ArrayLike, start: ArrayLike, horizon: int, name: str) -> LinearMDP:
    """Any tabular MDP, as the linear MDP with d = S·A: θ is the reward table, μ the transition table."""
    table = np.asarray(rewards, dtype=np.float64)
    if table.ndim < 2:
        raise UserError(f"rewards: shape {table.shape}; must be [S, A] or [H, S, A]")
    states, actions = table.shape[-2:]
    features = np.eye(states * actions).reshape(states, actions, states * actions)
    # Linear by construction, with ||μ(S)|| = sqrt(d) and ||θ|| <= sqrt(d): no system to solve (the room has d = 3604).
    return _assemble(features, table, transitions, start, horizon, name)


def _assemble(
    features: ArrayLike, rewards: ArrayLike, transitions: ArrayLike, start: ArrayLike, horizon: int, name: str
) -> LinearMDP:
    if horizon < 1:
        raise UserError(f"horizon = {horizon}: must be at least 1")
    phi = _array("features", features)
    if phi.ndim != 3 or 0 in phi.shape:
        raise UserError(f"features: shape {phi.shape}; must be [S, A, d] with no empty axis")
    states, actions, _ = phi.shape
    law = _array("transitions", transitions)
    law = law[None] if law.ndim == 3 else law
    if law.shape not in {(1, states, actions, states), (horizon, states, actions, states)}:
        raise UserError(
            f"transitions: shape {law.shape}; must be [S, A, S] or [H, S, A, S], H={horizon}, S={states}, A={actions}"
        )
    pay = _array("rewards", rewards)
    pay = np.broadcast_to(pay, (horizon, *pay.shape)) if pay.ndim == 2 else pay
    if pay.shape != (horizon, states, actions):
        raise UserError(
            f"rewards: shape {pay.shape}; must be [S, A] or [H, S, A] with H={horizon}, S={states}, A={actions}"
        )
    first = _array("start", start)
    if first.shape != (states,):
        raise UserError(f"start: shape {first.shape}; must be [S] with S={states}")
    mdp = LinearMDP(phi, np.ascontiguousarray(pay), law, first, horizon, name)
    _check_probabilities(mdp)
    _check_sizes(mdp)
    return mdp


def _array(field: str, values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        index = tuple(int(i) for i in bad[0])
        raise UserError(f"{field}{list(index)} = {array[index]}: must be a finite number")
    return array


def _first(bad: np.ndarray) -> tuple[int, ...] | None:
    """The first index where `bad` is true, in reading order."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), bad.shape)) if bad.any() else None


def _check_probabilities(mdp: LinearMDP) -> None:
    if (found := _first(mdp.transitions < 0)) is not None:
        h, s, a, nxt = found
        raise UserError(f"transitions[h={h}, s={s}, a={a}, next={nxt}] = {mdp.transitions[found]:g}: must be >= 0")
    sums = mdp.transitions.sum(-1)
    if (found := _first(np.abs(sums - 1) > SUM_TOLERANCE)) is not None:
        h, s, a = found
        raise UserError(f"transitions[h={h}, s={s}, a={a}] sums to {sums[found]:.12g}: every row must sum to 1")
    if (found := _first(mdp.start < 0)) is not None:
        raise UserError(f"start[s={found[0]}] = {mdp.start[found]:g}: must be >= 0")
    if abs(mdp.start.sum() - 1) > SUM_TOLERANCE:
        raise UserError(f"start sums to {mdp.start.sum():.12g}: must sum to 1")


def _check_sizes(mdp: LinearMDP) -> None:
    norms = np.linalg.norm(mdp.features, axis=-1)
    if (found := _first(norms > 1 + NORM_TOLERANCE)) is not None:
        raise UserError(f"features[s={found[0]}, a={found[1]}] has norm {norms[found]:.12g}: must be at most 1")
    if (found := _first((mdp.rewards < 0) | (mdp.rewards > 1))) is not None:
        h, s, a = found
        raise UserError(f"rewards[h={h}, s={s}, a={a}] = {mdp.rewards[found]:g}: must lie in [0, 1]")


def _check_linear(mdp: LinearMDP) -> None:
    """Rewards and transitions must be linear in φ, with the shortest θ_h and μ_h(S) no longer than sqrt(d)."""
    flat = mdp.features.reshape(-1, mdp.dimension)
    # The pseudo-inverse gives the shortest solution, so a norm it exceeds is exceeded by every solution.
    shortest = np.linalg.pinv(flat)
    limit = np.sqrt(mdp.dimension) + NORM_TOLERANCE
    for field, table in (("rewards", mdp.rewards[..., None]), ("transitions", mdp.transitions)):
        for h, target in enumerate(table.reshape(len(table), len(flat), -1)):
            parameters = shortest @ target
            off = np.abs(flat @ parameters - target).max(-1).reshape(mdp.states, mdp.actions)
            if (found := _first(off > FIT_TOLERANCE)) is not None:
                raise UserError(
                    f"{field}[h={h}, s={found[0]}, a={found[1]}] is off by {off[found]:.3g} from any linear function "
                    "of the features: a linear MDP needs an exact one"
                )
            norm = float(np.linalg.norm(parameters.sum(-1)))
            if norm > limit:
                symbol = "θ" if field == "rewards" else "μ(S)"
                raise UserError(
                    f"{field}[h={h}] needs ||{symbol}|| = {norm:.6g}: must be at most sqrt(d) = {limit:.6g}"
                )

"""Families of linear MDPs of any size: RiverSwim, combination locks, DeepSea, random low-rank, the room."""

from __future__ import annotations

import numpy as np

from hyper_rl.errors import UserError
from hyper_rl.theory.mdp import LinearMDP, linear_mdp, one_hot


def riverswim(states: int = 6, horizon: int = 12) -> LinearMDP:
    """Swim right against the current for 1 a step at the far bank, or drift left for 0.005 a step at the near one.

    d = 2·states. Right advances with probability 0.35 in the middle (stay 0.6, back 0.05), 0.6 from the near bank,
    and holds the far bank with probability 0.6. Left always moves left.
    """
    _at_least("states", states, 2)
    left, right, last = 0, 1, states - 1
    law = np.zeros((states, 2, states))
    for s in range(states):
        law[s, left, max(s - 1, 0)] = 1.0
    law[0, right, [0, 1]] = 0.4, 0.6
    for s in range(1, last):
        law[s, right, [s - 1, s, s + 1]] = 0.05, 0.6, 0.35
    law[last, right, [last - 1, last]] = 0.4, 0.6
    pay = np.zeros((states, 2))
    pay[0, left], pay[last, right] = 0.005, 1.0
    return one_hot(pay, law, _at(0, states), horizon, f"riverswim-S{states}-H{horizon}")


def lock(horizon: int = 8, actions: int = 4, trap: float = 0.1, seed: int = 0) -> LinearMDP:
    """A combination lock: one right action per state advances, any other ends in a sink; the last pays 1.

    A wrong first action pays `trap`, which holds a learner that stops exploring. horizon+1 states, d = actions·states.
    """
    _at_least("horizon", horizon, 1)
    _at_least("actions", actions, 2)
    sink = horizon
    code = np.random.default_rng(seed).integers(actions, size=horizon)
    law = np.zeros((horizon + 1, actions, horizon + 1))
    law[:, :, sink] = 1.0
    pay = np.zeros((horizon + 1, actions))
    pay[0] = trap
    for s, right in enumerate(code):
        law[s, right] = _at(min(s + 1, sink), horizon + 1)
        pay[s, right] = float(s == horizon - 1)
    return one_hot(pay, law, _at(0, horizon + 1), horizon, f"lock-S{horizon + 1}-A{actions}-H{horizon}")


def timed_lock(horizon: int = 6, actions: int = 4, trap: float = 0.1, seed: int = 0) -> LinearMDP:
    """The same lock with the step as its only dial: two states (open, shut), so d = 2·actions whatever the horizon.

    Transitions change with h, which the assumption allows. It lets H and d grow one at a time with V* = 1.
    """
    _at_least("horizon", horizon, 1)
    _at_least("actions", actions, 2)
    code = np.random.default_rng(seed).integers(actions, size=horizon)
    law = np.zeros((horizon, 2, actions, 2))
    law[..., 1] = 1.0
    law[np.arange(horizon), 0, code] = (1.0, 0.0)
    pay = np.zeros((horizon, 2, actions))
    pay[0, 0] = trap
    pay[0, 0, code[0]] = 0.0
    pay[-1, 0, code[-1]] = 1.0
    return one_hot(pay, law, _at(0, 2), horizon, f"timed-lock-A{actions}-H{horizon}")


def deepsea(size: int = 8) -> LinearMDP:
    """DeepSea: move right `size` times in a row for 1; a step left pays 0.01/size. Horizon = size, d = 2·size.

    The state is the column alone: the row is the step, and the weights are per step. The usual cost of moving right
    is written as a small pay for moving left, which keeps rewards in [0, 1] and every policy's rank.
    """
    _at_least("size", size, 2)
    left, right = 0, 1
    law = np.zeros((size, 2, size))
    for s in range(size):
        law[s, left, max(s - 1, 0)] = 1.0
        law[s, right, min(s + 1, size - 1)] = 1.0
    pay = np.zeros((size, 2))
    pay[:, left] = 0.01 / size
    pay[size - 1, right] = 1.0
    return one_hot(pay, law, _at(0, size), size, f"deepsea-N{size}")


def lowrank(states: int = 20, actions: int = 4, dimension: int = 6, horizon: int = 8, seed: int = 0) -> LinearMDP:
    """Random low rank: φ(s,a) is a random mixture over `dimension` random next-state laws (nonnegative factors).

    Mixtures have ||φ|| <= 1 and μ(S) = (1,..,1), so the assumption holds exactly. One factor per step pays 1.
    """
    for field, value in (("states", states), ("actions", actions), ("dimension", dimension), ("horizon", horizon)):
        _at_least(field, value, 1)
    rng = np.random.default_rng(seed)
    phi = rng.dirichlet(np.full(dimension, 0.3), size=(states, actions))
    measures = rng.dirichlet(np.full(states, 0.3), size=(horizon, dimension))
    theta = np.eye(dimension)[rng.integers(dimension, size=horizon)]
    pay = np.clip(np.einsum("sad,hd->hsa", phi, theta), 0.0, 1.0)
    law = np.einsum("sad,hdn->hsan", phi, measures)
    law /= law.sum(-1, keepdims=True)  # removes rounding only
    name = f"lowrank-S{states}-A{actions}-d{dimension}-H{horizon}"
    return linear_mdp(phi, pay, law, _at(0, states), horizon, name)


def room(size: int = 30, horizon: int = 100, sub_goal: tuple[int, int] = (17, 17), small: float = 0.1) -> LinearMDP:
    """The paper's warm-up room: four moves on a grid from the centre, goal in the corner pays 1, `sub_goal` `small`.

    Both goals end the episode, which here is a sink. One-hot d = 4·(size² + 1): solved exactly at full size; learn on
    a small one, since Λ takes horizon·d² numbers.
    """
    _at_least("size", size, 2)
    sink, cells = size * size, size * size + 1
    goals = {(size - 1) * size + size - 1: 1.0, sub_goal[0] * size + sub_goal[1]: small}
    law = np.zeros((cells, 4, cells))
    law[sink, :, sink] = 1.0
    pay = np.zeros((cells, 4))
    for s in range(sink):
        for a, (down, right) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1))):
            row = min(max(s // size + down, 0), size - 1)
            column = min(max(s % size + right, 0), size - 1)
            reached = row * size + column
            pay[s, a] = goals.get(reached, 0.0)
            law[s, a, sink if reached in goals else reached] = 1.0
    centre = (size // 2) * size + size // 2
    return one_hot(pay, law, _at(centre, cells), horizon, f"room-{size}-H{horizon}")


def _at(state: int, states: int) -> np.ndarray:
    return np.asarray(np.eye(states)[state])


def _at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise UserError(f"{field} = {value}: must be at least {least}")

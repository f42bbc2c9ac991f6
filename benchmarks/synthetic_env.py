"""A Gymnasium environment with HalfCheetah's dimensions and next to no cost of its own.

The speed benchmarks compare how fast training loops turn, so the environment must not be what is measured. This one
keeps HalfCheetah's interface (17 observations, 6 actions in [-1, 1], episodes cut after 1000 steps, never terminated)
and replaces the physics by a leaky chain of a few dozen additions:

    torques -> six velocities -> six positions -> five more lagged copies

Every link forgets 5 % of itself per step and takes in 10 % of the link before it, so the state stays bounded without
clipping (|x| <= 2, 4, 8 along the chain when actions keep to their bounds) and the reward, the first velocity, can be
learnt. It imports NumPy and Gymnasium alone: both sides of a comparison can load it in their own environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

if TYPE_CHECKING:
    # The peers' environment does not hold jaxtyping, and annotations are never evaluated.
    from jaxtyping import Float, Float32

    Observation = Float32[np.ndarray, "17"]
    Action = Float[np.ndarray, "6"]

OBSERVATIONS = 17
ACTIONS = 6
HORIZON = 1000

_KEPT = np.float32(0.95)
_TAKEN_IN = np.float32(0.1)
_START_RANGE = 0.1


class SyntheticCheetah(gymnasium.Env[np.ndarray, np.ndarray]):
    """A bounded linear chain driven by six torques; the reward is the first velocity."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012  Gymnasium declares it as an instance field

    def __init__(self, horizon: int = HORIZON) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATIONS,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)
        self._horizon = horizon
        self._steps_taken = 0
        self._state = np.zeros(OBSERVATIONS, np.float32)
        self._inflow = np.zeros(OBSERVATIONS, np.float32)
        # Views made once: slicing in every step would cost as much as the arithmetic.
        self._inflow_from_action = self._inflow[:ACTIONS]
        self._inflow_from_chain = self._inflow[ACTIONS:]
        self._chain_before = self._state[: OBSERVATIONS - ACTIONS]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps_taken = 0
        self._state[:] = self.np_random.uniform(-_START_RANGE, _START_RANGE, OBSERVATIONS)
        return self._state.copy(), {}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        np.multiply(action, _TAKEN_IN, out=self._inflow_from_action, casting="same_kind")
        np.multiply(self._chain_before, _TAKEN_IN, out=self._inflow_from_chain)
        self._state *= _KEPT
        self._state += self._inflow
        self._steps_taken += 1
        # A copy, not the state itself: callers keep the last observation of an episode past the reset.
        return self._state.copy(), float(self._state[0]), False, self._steps_taken >= self._horizon, {}

"""Any action space as the learners see it: numbers in [-1, 1], or one of n choices counted from 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hyper_rl.errors import UserError

if TYPE_CHECKING:
    from gymnasium import Space

ALLOWED = "Box with finite bounds, or Discrete"


class Writer(Protocol):
    """From the learner's action to the environment's."""

    size: int
    """Numbers in an action or, with `one_of`, the number of choices."""
    one_of: bool

    def write(self, action: Any) -> Any: ...


def write_actions(space: Space[Any]) -> Writer:
    """How to write this space; refuses what cannot be acted in."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return ChoiceWriter(int(space.n), int(space.start))
    if isinstance(space, spaces.Box):
        return VectorWriter(space)
    raise UserError(f"action space: got {type(space).__name__}, must be {ALLOWED}")


class ChoiceWriter:
    """`Discrete`: counted from 0, whatever `start` is."""

    one_of = True

    def __init__(self, n: int, start: int) -> None:
        self.size = n
        self._start = start

    def write(self, action: Any) -> np.int64:
        # NumPy's integer, as `action_space.sample()` gives it.
        return np.int64(self._start + int(action))


class VectorWriter:
    """`Box`: from [-1, 1] per dimension to the bounds, in the dtype and shape of the space, fresh in every step."""

    one_of = False

    def __init__(self, space: Any) -> None:
        low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
        for name, bounds in (("lower", low), ("upper", high)):
            if not np.isfinite(bounds).all():
                index = int(np.flatnonzero(~np.isfinite(bounds))[0])
                raise UserError(
                    f"action space: dimension {index} has {name} bound {bounds[index]}, must be finite; [-1, 1] is "
                    "mapped on the bounds, so declare some in the environment or in a wrapper around it"
                )
        self.size = low.size
        if self.size == 0:
            raise UserError(f"action space: {space} holds no numbers, must hold at least one")
        self._centre, self._half = low / 2 + high / 2, high / 2 - low / 2
        self._as_it_is = bool((self._centre == 0).all() and (self._half == 1).all())
        # Rounding may carry the very ends one bit too far; what lies between cannot be further out than they are.
        ends = self._centre - self._half, self._centre + self._half
        self._bounds = (low, high) if (ends[0] < low).any() or (ends[1] > high).any() else None
        self._round = space.dtype.kind not in "f"
        self._dtype, self._shape = space.dtype, space.shape
        self._flat = self._shape == (self.size,)

    def write(self, action: Any) -> np.ndarray:
        if self._as_it_is:
            value = np.array(action, self._dtype) if not self._round else np.rint(action).astype(self._dtype)
        else:
            exact = self._centre + self._half * action
            if self._bounds is not None:
                exact = np.minimum(np.maximum(exact, self._bounds[0]), self._bounds[1])
            value = (np.rint(exact) if self._round else exact).astype(self._dtype)
        return value if self._flat else value.reshape(self._shape)

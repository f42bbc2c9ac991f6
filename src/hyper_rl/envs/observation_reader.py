"""Any observation space as the learners see it: one vector, one of n choices counted from 0, or an image.

`read_observations` looks at a space once and returns an object that converts a value as cheaply as it can, because it
does so in every step. What an environment hands over is checked on the way: a value that is not what the space
declares raises `Unfit`, whose words name the number that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hyper_rl.errors import UserError

if TYPE_CHECKING:  # worker processes import this file, and need none of it
    from gymnasium import Space
    from jaxtyping import Float, Int

NUMBERS = "fiub"
"""Kinds of NumPy's dtypes that are real numbers."""
ALLOWED = "Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of them"
FEW = 64
"""Up to here Python's own functions of its floats are the quickest test of them all; beyond, NumPy is."""
LARGEST = float(np.finfo(np.float32).max)
"""What learners can be shown."""


class Unfit(Exception):
    """A value is not what its space declares; the words say which and how."""


class Reader(Protocol):
    """From an environment's observation to the learner's."""

    size: int
    """Length of the vector or, with `one_of`, the number of choices."""
    one_of: bool
    """Whether the learner sees one of `size` choices and not a vector."""
    image: tuple[int, int, int] | None
    """Height, width and channels where the vector is an image's bytes."""

    def read(self, raw: Any) -> np.ndarray: ...

    def split(self, raw: Any) -> list[Any] | None:
        """The observations of a batch, each to be read; None for what is no batch."""
        ...


def read_observations(space: Space[Any]) -> Reader:
    """How to read this space; refuses what cannot be learnt from."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return ChoiceReader(int(space.n), int(space.start))
    picture = isinstance(space, spaces.Box) and is_image(space)
    if not picture:
        _refuse_unusable(space, "observation space")
    reader: Reader
    if isinstance(space, spaces.Box):
        reader = read_box(space.shape, image=picture)
    else:
        nest = dict if isinstance(space, spaces.Dict) else tuple if isinstance(space, spaces.Tuple) else None
        reader = PartsReader(list(_parts(space, "observation", 0)), nest)
    if reader.size == 0:
        raise UserError(f"observation space: {space} holds no numbers, must hold at least one")
    return reader


def read_box(shape: tuple[int, ...], *, image: bool) -> Reader:
    """Numbers in these axes as a vector or, where they are an image's bytes and enough of them, as an image."""
    from hyper_rl.envs.image_reader import read_image  # which is written with what is below

    return (read_image(shape) if image else None) or VectorReader(shape)


class ChoiceReader:
    """`Discrete`: counted from 0, whatever `start` is."""

    one_of = True
    image: tuple[int, int, int] | None = None

    def __init__(self, n: int, start: int) -> None:
        self.size = n
        self._start = start

    def read(self, raw: Any) -> Int[np.ndarray, ""]:
        return np.array(_choice(raw, self.size, self._start, "observation"), dtype=np.int64)

    def split(self, raw: Any) -> list[Any] | None:
        return rows_of(raw, ())


class VectorReader:
    """`Box`: flattened, a fresh float64 vector in every step, since environments reuse their own arrays."""

    one_of = False
    image: tuple[int, int, int] | None = None

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.size = math.prod(shape)
        self._shape = shape

    def read(self, raw: Any) -> Float[np.ndarray, " size"]:
        if type(raw) is not np.ndarray:
            raw = as_array(raw, "observation")
        if raw.shape != self._shape:
            raise Unfit(f"observation has shape {raw.shape}, declared {self._shape}")
        if raw.dtype.kind not in NUMBERS:
            raise Unfit(f"observation has dtype {raw.dtype}, must be real numbers")
        vector = np.array(raw, np.float64).reshape(-1)
        if not all_fit(vector):
            raise Unfit(_first_bad(vector, "observation", self._shape))
        return vector

    def split(self, raw: Any) -> list[Any] | None:
        return rows_of(raw, self._shape)


class PartsReader:
    """`Dict`, `Tuple`, `MultiDiscrete`, `MultiBinary`: one vector, the one that Gymnasium's `flatten` makes.

    Written out here because `flatten` takes ten times as long and lets pass what the parts must be checked for.
    """

    one_of = False
    image: tuple[int, int, int] | None = None

    def __init__(self, parts: list[Part], nest: type[dict[Any, Any]] | type[tuple[Any, ...]] | None) -> None:
        """`nest`: what one observation is, where it is no array."""
        self.size = sum(part.size for part in parts)
        self._parts, self._nest = parts, nest

    def read(self, raw: Any) -> Float[np.ndarray, " size"]:
        vector = np.zeros(self.size, np.float64)
        for part in self._parts:
            part.write(raw, vector)
        if not all_fit(vector):
            for part in self._parts:
                part.name_bad(vector)
        return vector

    def split(self, raw: Any) -> list[Any] | None:
        """A list of observations, or one whose parts all have an axis in front of what is declared."""
        lists = (list, tuple, np.ndarray) if self._nest is dict else list
        if self._nest is not None and isinstance(raw, lists) and all(isinstance(one, self._nest) for one in raw):
            return list(raw)
        values = {part.path: rows for part in self._parts if (rows := part.rows(raw)) is not None}
        counts = {len(rows) for rows in values.values()}
        if len(values) < len(self._parts) or len(counts) != 1:  # read as a single one, it says what is wrong
            return None
        return [_nested({path: rows[i] for path, rows in values.items()}) for i in range(counts.pop())]


class Part:
    """One leaf of a nest of spaces: where to find it, what it must be, where it goes in the vector."""

    def __init__(self, space: Space[Any], label: str, path: tuple[Any, ...], offset: int) -> None:
        from gymnasium import spaces

        self.label, self.path = label, path
        self._shape: tuple[int, ...] = space.shape or ()
        self._start: Any = 0
        self._choices: Any = None
        """How many there are to choose from; None for real numbers."""
        self._first_of_each: Int[np.ndarray, " choices"] | None = None
        """Where the ones of each choice begin; None where numbers are taken as they are."""
        self.size = math.prod(self._shape)
        if isinstance(space, spaces.Discrete):
            self._start, self._choices = int(space.start), int(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            self._start, self._choices = np.asarray(space.start), np.asarray(space.nvec)
        elif isinstance(space, spaces.MultiBinary):
            self._choices = 2
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            counts = np.broadcast_to(self._choices, self._shape).reshape(-1)
            self.size = int(counts.sum())
            self._first_of_each = offset + np.cumsum(counts, dtype=np.int64) - counts
        self._place = slice(offset, offset + self.size)

    def _find(self, raw: Any) -> Any:
        for key in self.path:
            try:
                raw = raw[key]
            except (KeyError, IndexError, TypeError):
                raise Unfit(f"{self.label} is missing from the observation") from None
        return raw

    def rows(self, raw: Any) -> np.ndarray | None:
        """Its values in a batch of observations; None where it is no batch."""
        value = as_array(self._find(raw), self.label)
        return value if value.ndim == len(self._shape) + 1 and value.shape[1:] == self._shape else None

    def write(self, raw: Any, vector: Float[np.ndarray, " all"]) -> None:
        raw = self._find(raw)
        value = raw if type(raw) is np.ndarray else as_array(raw, self.label)
        if value.shape != self._shape:
            raise Unfit(f"{self.label} has shape {value.shape}, declared {self._shape}")
        whole = self._choices is not None
        if value.dtype.kind not in ("iub" if whole else NUMBERS):
            raise Unfit(f"{self.label} has dtype {value.dtype}, must be {'whole' if whole else 'real'} numbers")
        if whole:
            value = value.astype(np.int64) - self._start
            if ((value < 0) | (value >= self._choices)).any():
                raise Unfit(f"{self.label} is {brief(raw)}, outside the declared choices")
        if self._first_of_each is not None:
            vector[self._first_of_each + value.reshape(-1)] = 1.0
        else:
            vector[self._place] = value.reshape(-1)

    def name_bad(self, vector: Float[np.ndarray, " all"]) -> None:
        mine = vector[self._place]
        if not all_fit(mine):
            raise Unfit(_first_bad(mine, self.label, self._shape))


def _parts(space: Space[Any], label: str, offset: int, path: tuple[Any, ...] = ()) -> Iterator[Part]:
    """The leaves in the order of Gymnasium's `flatten`."""
    from gymnasium import spaces

    nested: list[tuple[Any, Space[Any]]] | None = None
    if isinstance(space, spaces.Dict):
        nested = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        nested = list(enumerate(space.spaces))
    if nested is None:
        yield Part(space, label, path, offset)
        return
    for key, inner in nested:
        for part in _parts(inner, f"{label}[{key!r}]", offset, (*path, key)):
            yield part
            offset += part.size


def rows_of(raw: Any, shape: tuple[int, ...]) -> list[Any] | None:
    value = raw if type(raw) is np.ndarray else as_array(raw, "observation")
    if value.ndim != len(shape) + 1:
        return None
    if value.shape[1:] != shape:
        raise Unfit(f"observation has shape {value.shape}, declared {shape} for each one of a batch")
    return list(value)


def _nested(leaves: Mapping[tuple[Any, ...], Any]) -> Any:
    """Leaves by path as one observation; a dictionary does for a tuple, too, because it is only looked into."""
    if () in leaves:
        return leaves[()]
    top: dict[Any, Any] = {}
    for (*above, last), leaf in leaves.items():
        inside = top
        for key in above:
            inside = inside.setdefault(key, {})
        inside[last] = leaf
    return top


def _refuse_unusable(space: Space[Any], label: str) -> None:
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        if is_image(space):
            raise UserError(
                f"{label}: an image (uint8 of shape {space.shape}) among other things; an image is learned from where "
                "it is the whole observation, so give the environment a wrapper that returns it alone"
            )
        if space.dtype is None or space.dtype.kind not in NUMBERS:
            raise UserError(f"{label}: Box of dtype {space.dtype}, must be real numbers")
    elif isinstance(space, spaces.Dict):
        for key, inner in space.spaces.items():
            _refuse_unusable(inner, f"{label}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, inner in enumerate(space.spaces):
            _refuse_unusable(inner, f"{label}[{index}]")
    elif not isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise UserError(f"{label}: got {type(space).__name__}, must be {ALLOWED}")


def is_image(space: Any) -> bool:
    """As Gymnasium's users declare them: bytes in two axes or more, the fourth for stacked frames.

    Bytes in a row (Atari's memory) are no image.
    """
    bytes_in_axes = space.dtype == np.uint8 and len(space.shape) >= 2
    return bool(bytes_in_axes and (space.low == 0).all() and (space.high == 255).all())


def all_finite(vector: Float[np.ndarray, " n"]) -> bool:
    if vector.size <= FEW and math.isfinite(sum(vector.tolist())):
        return True  # a sum that overflows is settled below
    return bool(np.isfinite(vector).all())


def all_fit(vector: Float[np.ndarray, " n"]) -> bool:
    """Whether every number stays one in float32, in which is learned: neither NaN nor too large."""
    if vector.size <= FEW and math.hypot(*vector.tolist()) <= LARGEST:
        return True  # a length that is too long is settled below
    return bool((np.abs(vector) <= LARGEST).all())


def say_number(value: float) -> str:
    """A number that does not fit, and why where that is not plain to see."""
    return f"{value}, beyond the {LARGEST:.3g} that float32 holds" if math.isfinite(value) else str(value)


def _first_bad(vector: Float[np.ndarray, " n"], label: str, shape: tuple[int, ...]) -> str:
    index = int(np.flatnonzero(~(np.abs(vector) <= LARGEST))[0])
    where = ", ".join(str(i) for i in np.unravel_index(index, shape))
    number = say_number(float(vector[index]))
    return f"{label}[{where}] is {number}" if shape else f"{label} is {number}"


def as_array(value: Any, label: str) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception:
        raise Unfit(f"{label} is {brief(value)}, which is no array of numbers") from None


def _choice(raw: Any, n: int, start: int, label: str) -> int:
    value = as_array(raw, label)
    if value.shape != () or value.dtype.kind not in "iu":
        raise Unfit(f"{label} is {brief(raw)}, must be a whole number")
    if not start <= int(value) < start + n:
        raise Unfit(f"{label} is {int(value)}, must be between {start} and {start + n - 1}")
    return int(value) - start


def brief(value: Any, longest: int = 80) -> str:
    """A value in an error's one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= longest else text[: longest - 3] + "..."

"""Images as learners see them: one flat vector of bytes, row by row, the channels of a pixel side by side.

Which axes are which is told from the shape alone:

    (height, width)                       grey
    (height, width, channels)             the shorter of the two ends is the channels, the last one where both are
    (channels, height, width)             equal; the latter is also how stacked grey frames come
    (frames, height, width, channels)     stacked frames, each as above: frames x channels of them, frame by frame
    (frames, channels, height, width)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hyper_rl.envs.observation_reader import Unfit, as_array, rows_of
from hyper_rl.errors import UserError

if TYPE_CHECKING:  # worker processes import this file, and need none of it
    from jaxtyping import UInt8

SMALLEST_SIDE = 8
"""What is smaller is read as a vector: nothing would be left of it to convolve."""


class ImageAxes(NamedTuple):
    order: tuple[int, ...]
    """The axes as learners have them: height, width, then what makes up the channels."""
    image: tuple[int, int, int]
    """Height, width, channels."""


def axes_of(shape: tuple[int, ...]) -> ImageAxes | None:
    """How to read an image of this shape; None for what has too many axes."""
    if len(shape) not in (2, 3, 4):
        return None
    if len(shape) == 2:
        return ImageAxes((0, 1), (*shape, 1))
    frames = tuple(range(len(shape) - 3))
    first, middle, last = range(len(shape) - 3, len(shape))
    rows, columns, channels = (first, middle, last) if shape[last] <= shape[first] else (middle, last, first)
    count = shape[channels] * math.prod(shape[:-3])
    return ImageAxes((rows, columns, *frames, channels), (shape[rows], shape[columns], count))


def read_image(shape: tuple[int, ...]) -> ImageReader | None:
    """The reader for images of this shape; None where they are so small that they are read as vectors."""
    axes = axes_of(shape)
    if axes is None:
        raise UserError(
            f"observation space: an image (uint8) of shape {shape}, must have two axes (height, width), three (with "
            "channels) or four (with stacked frames before them)"
        )
    small = min(axes.image[:2]) < SMALLEST_SIDE
    if small and len(shape) == 4 and min(shape[:2]) >= SMALLEST_SIDE:
        height, width, channels, frames = shape
        raise UserError(
            f"observation space: an image (uint8) of shape {shape}, must have its frames first, such as "
            f"{(frames, height, width, channels)}"
        )
    return None if small or 0 in shape else ImageReader(shape, axes)


class ImageReader:
    """`Box` of bytes in two axes or more: a fresh vector in every step, since environments reuse their own arrays."""

    one_of = False

    def __init__(self, shape: tuple[int, ...], axes: ImageAxes) -> None:
        self.size = math.prod(shape)
        self.image: tuple[int, int, int] | None = axes.image
        self._shape, self._order = shape, axes.order
        self._as_it_is = axes.order == tuple(range(len(shape)))

    def read(self, raw: Any) -> UInt8[np.ndarray, " size"]:
        if type(raw) is not np.ndarray:
            raw = as_array(raw, "observation")
        if raw.shape != self._shape:
            raise Unfit(f"observation has shape {raw.shape}, declared {self._shape}")
        if raw.dtype != np.uint8:
            raw = _as_bytes(raw)
        ordered = raw if self._as_it_is else raw.transpose(self._order)
        return np.array(ordered, order="C").reshape(-1)

    def split(self, raw: Any) -> list[Any] | None:
        return rows_of(raw, self._shape)


def _as_bytes(raw: np.ndarray) -> UInt8[np.ndarray, "..."]:
    """Whole numbers that are bytes, such as those of a list: what has been through JSON is one."""
    if raw.dtype.kind not in "iu":
        raise Unfit(f"observation has dtype {raw.dtype}, declared uint8")
    if raw.min() < 0 or raw.max() > 255:
        raise Unfit(f"observation has numbers from {raw.min()} to {raw.max()}, declared from 0 to 255")
    return raw.astype(np.uint8)

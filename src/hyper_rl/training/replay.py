"""One replay ring per run, shared by both learners.

A transition is one row of numbers, so that storing is one slice and sampling one gather. The write position is the
environment step, which all runs share: it stays outside the run axis and the write stays a contiguous slice.
Sampling is uniform with replacement, O(batch).

Images stay the bytes they are, in an array of their own beside the rows: as floats they would take four times as much.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped, UInt8

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.observations import image_of
from hyper_rl.types import Transition


class ImageRows(NamedTuple):
    """Transitions whose observations are images."""

    numbers: Float[Array, "capacity width"]
    """All but the images."""
    images: UInt8[Array, "capacity both"]
    """The observation and, behind it, the next one."""


Rows: TypeAlias = Float[Array, "capacity width"] | ImageRows
"""The replay, or some rows of it: an array, but for images."""


@dataclass(frozen=True)
class ReplayLayout:
    """How a transition becomes a row: observation, action, next observation, reward, terminated.

    Where the method has options, the one taken stands before the reward. Discrete values are stored as floats, exact
    up to 2^24. Where observations are images they are not among the numbers.
    """

    observation: Box | Discrete
    action: Box | Discrete
    capacity: int
    with_option: bool = False

    @staticmethod
    def of(spec: TaskSpec, capacity: int, *, with_option: bool = False) -> ReplayLayout:
        return ReplayLayout(spec.observation, spec.action, capacity, with_option)

    @property
    def with_images(self) -> bool:
        return image_of(self.observation) is not None

    @property
    def width(self) -> int:
        """Numbers of a row."""
        seen = 0 if self.with_images else _size(self.observation)
        return 2 * seen + _size(self.action) + self.with_option + 2

    @property
    def row_bytes(self) -> int:
        """Of one transition."""
        images = 2 * _size(self.observation) if self.with_images else 0
        return self.width * jnp.zeros((), float).dtype.itemsize + images

    def init(self) -> Rows:
        numbers = jnp.zeros((self.capacity, self.width), float)
        if not self.with_images:
            return numbers
        return ImageRows(numbers, jnp.zeros((self.capacity, 2 * _size(self.observation)), jnp.uint8))

    def pack(self, one: Transition) -> Rows:
        """A transition as the replay holds it, without the axis of the rows."""
        assert (one.option is not None) == self.with_option
        option = () if one.option is None else (one.option,)
        before, after = ((), ()) if self.with_images else ((one.observation,), (one.next_observation,))
        parts = (*before, one.action, *after, *option, one.reward, one.terminated)
        numbers = jnp.concatenate([part.astype(float).reshape(-1) for part in parts])
        if not self.with_images:
            return numbers
        return ImageRows(numbers, jnp.concatenate([one.observation, one.next_observation]))

    def unpack(self, rows: Rows) -> Transition:
        if isinstance(rows, ImageRows):
            size = _size(self.observation)
            # The numbers are laid out as those of observations of size 0.
            bare = dataclasses.replace(self, observation=Box(0, 0.0, 0.0)).unpack(rows.numbers)
            return bare._replace(observation=rows.images[:, :size], next_observation=rows.images[:, size:])
        obs, act = _size(self.observation), _size(self.action)
        ends = (obs, obs + act, 2 * obs + act)
        return Transition(
            observation=_decode(self.observation, rows[:, : ends[0]]),
            action=_decode(self.action, rows[:, ends[0] : ends[1]]),
            reward=rows[:, -2],
            next_observation=_decode(self.observation, rows[:, ends[1] : ends[2]]),
            terminated=rows[:, -1] > 0.5,
            option=rows[:, ends[2]].astype(jnp.int32) if self.with_option else None,
        )

    def add(self, rows: Rows, one: Transition, step: Int[Array, ""]) -> Rows:
        def write(ring: Array, row: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(ring, row[None, :], step % self.capacity, axis=0)

        return jax.tree.map(write, rows, self.pack(one))

    def sample(self, rows: Rows, key: PRNGKeyArray, batch: int, filled: Int[Array, ""]) -> Transition:
        """`filled`: how many transitions have been stored so far (may exceed the capacity)."""
        picks = jax.random.randint(key, (batch,), 0, jnp.minimum(filled, self.capacity))
        return self.unpack(jax.tree.map(lambda ring: ring[picks], rows))


def _size(space: Box | Discrete) -> int:
    return space.size if isinstance(space, Box) else 1


def _decode(space: Box | Discrete, columns: Float[Array, "batch n"]) -> Shaped[Array, "..."]:
    return columns if isinstance(space, Box) else columns[:, 0].astype(jnp.int32)


def join(newest: Transition, sampled: Transition | None) -> Transition:
    """The newest transition first, then the sampled ones."""
    alone = jax.tree.map(lambda leaf: leaf[None], newest)
    if sampled is None:
        return alone
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), alone, sampled)


def human_bytes(count: float) -> str:
    if count < 1:
        return "0 B"
    power = min(int(math.log(count, 1024)), 4)
    return f"{count / 1024**power:.1f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"

"""One replay ring per run, shared by both learners.

A transition is one row of numbers, so that storing is one slice and sampling one gather. The write position is the
environment step, which all runs share: it stays outside the run axis and the write stays a contiguous slice.
Sampling is uniform with replacement, O(batch).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.types import Transition

Rows = Float[Array, "capacity width"]


@dataclass(frozen=True)
class ReplayLayout:
    """How a transition becomes a row: observation, action, next observation, reward, terminated.

    Where the method has options, the one taken stands before the reward. Discrete values are stored as floats, exact
    up to 2^24.
    """

    observation: Box | Discrete
    action: Box | Discrete
    capacity: int
    with_option: bool = False

    @staticmethod
    def of(spec: TaskSpec, capacity: int, *, with_option: bool = False) -> ReplayLayout:
        return ReplayLayout(spec.observation, spec.action, capacity, with_option)

    @property
    def width(self) -> int:
        return 2 * _size(self.observation) + _size(self.action) + self.with_option + 2

    def init(self) -> Rows:
        return jnp.zeros((self.capacity, self.width), float)

    def pack(self, one: Transition) -> Float[Array, " width"]:
        assert (one.option is not None) == self.with_option
        option = () if one.option is None else (one.option,)
        parts = (one.observation, one.action, one.next_observation, *option, one.reward, one.terminated)
        return jnp.concatenate([part.astype(float).reshape(-1) for part in parts])

    def unpack(self, rows: Float[Array, "batch width"]) -> Transition:
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
        return jax.lax.dynamic_update_slice_in_dim(rows, self.pack(one)[None, :], step % self.capacity, axis=0)

    def sample(self, rows: Rows, key: PRNGKeyArray, batch: int, filled: Int[Array, ""]) -> Transition:
        """`filled`: how many transitions have been stored so far (may exceed the capacity)."""
        picks = jax.random.randint(key, (batch,), 0, jnp.minimum(filled, self.capacity))
        return self.unpack(rows[picks])


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

"""What the environments answered to one step, as it goes to the device: one array, because a transfer has its price.

Images go beside it as the bytes they are: as floats they would be four times as much to send.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped, UInt8

from hyper_rl.envs.base import Discrete, TaskSpec
from hyper_rl.envs.host_pool import PoolStep
from hyper_rl.observations import image_of

FLAGS = 5
"""Columns of a message after the two observations: reward, terminated, truncated, success, cell."""


class ImageMessage(NamedTuple):
    flags: Float[Any, "*runs flags"]
    next_observation: UInt8[Any, "*runs size"]
    observation: UInt8[Any, "*runs size"]


Message: TypeAlias = Float[Any, "*runs width"] | ImageMessage


def pack_step(spec: TaskSpec, answer: PoolStep, dtype: Any) -> Message:
    """Of all runs; the observations first, then the flags."""
    flags = (answer.reward, answer.terminated, answer.truncated, answer.success, answer.cell)
    if image_of(spec.observation) is not None:
        return ImageMessage(np.stack(flags, axis=1).astype(dtype), answer.next_observation, answer.observation)
    columns = [answer.next_observation, answer.observation, *flags]
    width = 1 if isinstance(spec.observation, Discrete) else spec.observation.size
    message = np.empty((len(answer.reward), 2 * width + FLAGS), dtype)
    used = 0
    for column in columns:
        block = column.reshape(len(column), -1)
        message[:, used : used + block.shape[1]] = block
        used += block.shape[1]
    return message


def unpack_step(
    spec: TaskSpec, message: Message
) -> tuple[Shaped[Array, "..."], Shaped[Array, "..."], Float[Array, " flags"]]:
    """(next observation, observation to act on, flags) of one run."""
    if isinstance(message, ImageMessage):
        return message.next_observation, message.observation, message.flags
    width = (message.shape[0] - FLAGS) // 2
    before, after = message[:width], message[width : 2 * width]
    if isinstance(spec.observation, Discrete):
        before, after = before[0].astype(jnp.int32), after[0].astype(jnp.int32)
    return before, after, message[2 * width :]

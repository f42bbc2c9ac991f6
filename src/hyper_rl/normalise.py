"""Running statistics as small pytrees: state in, state out."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class RunningMoments(NamedTuple):
    """Mean and variance of everything seen so far (Welford), one value at a time."""

    seen: Int[Array, ""]
    mean: Float[Array, " n"]
    squares: Float[Array, " n"]


def moments_init(size: int) -> RunningMoments:
    zeros = jnp.zeros((size,), float)
    return RunningMoments(jnp.zeros((), jnp.int32), zeros, jnp.zeros((size,), float))


def moments_add(moments: RunningMoments, value: Float[Array, " n"]) -> RunningMoments:
    seen = moments.seen + 1
    delta = value - moments.mean
    mean = moments.mean + delta / seen.astype(delta.dtype)
    return RunningMoments(seen, mean, moments.squares + delta * (value - mean))


def moments_deviation(moments: RunningMoments, floor: float = 1e-6) -> Float[Array, " n"]:
    """Standard deviation, 1 until there is anything to measure, never below `floor`.

    The floor keeps a coordinate that has not moved yet from being blown up to infinity the moment it does.
    """
    seen = moments.seen.astype(moments.squares.dtype)
    deviation = jnp.sqrt(moments.squares / jnp.maximum(seen, 1.0))
    return jnp.where(moments.seen > 1, jnp.maximum(deviation, floor), jnp.ones_like(deviation))


class RunningScale(NamedTuple):
    """First and second moment of a scalar as bias-corrected exponential averages over batches.

    Exponential, because what a bonus is worth changes as the models learn and old values must be forgotten.
    """

    weight: Float[Array, ""]
    first: Float[Array, ""]
    second: Float[Array, ""]


def scale_init() -> RunningScale:
    return RunningScale(jnp.zeros((), float), jnp.zeros((), float), jnp.zeros((), float))


def scale_add(scale: RunningScale, values: Float[Array, " batch"], rate: Float[Array, ""] | float) -> RunningScale:
    keep = 1 - rate
    return RunningScale(
        keep * scale.weight + rate,
        keep * scale.first + rate * values.mean(),
        keep * scale.second + rate * jnp.square(values).mean(),
    )


def scale_rms(scale: RunningScale, floor: float = 1e-8) -> Float[Array, ""]:
    return jnp.maximum(jnp.sqrt(scale.second / jnp.maximum(scale.weight, floor)), floor)


def scale_mean(scale: RunningScale, floor: float = 1e-8) -> Float[Array, ""]:
    """Of values that are not negative: a bonus that is centred has no use for it."""
    return jnp.maximum(scale_centre(scale, floor), floor)


def scale_centre(scale: RunningScale, floor: float = 1e-8) -> Float[Array, ""]:
    """The mean of values of either sign."""
    return scale.first / jnp.maximum(scale.weight, floor)


def scale_std(scale: RunningScale, floor: float = 1e-8) -> Float[Array, ""]:
    weight = jnp.maximum(scale.weight, floor)
    variance = scale.second / weight - jnp.square(scale.first / weight)
    # A bonus that is all but constant (the first count is 1 everywhere) must not be blown up by its lack of spread.
    return jnp.maximum(jnp.sqrt(jnp.maximum(variance, 0.0)), 0.01 * scale_rms(scale, floor))

"""What a person should know of an environment's observations before training on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from hyper_rl.envs.env_trial import Scale, Trial, observation_scales
from hyper_rl.envs.finding import Finding, Status

FAR_FROM_ONE = 10.0
"""Observations beyond this, in mean or spread, are better normalised."""
UNEVEN = 30.0
"""So are dimensions whose spreads are this many times apart."""
NARROW = 0.05
"""And one that moves so little that a network hardly sees it."""
FINE_STEPS = 16
"""A dimension that moves by fewer of float32's steps than this has lost what it says."""
DARK = 25
"""An image without a byte above this is hardly a picture."""
MANY = 1_000
"""Numbers from which on an observation is more than a handful of features."""


def flattened(space: Any) -> Iterator[Finding]:
    """A note where an observation is a picture in all but name: several axes, or very many numbers."""
    shape = getattr(space, "shape", None) or ()
    size = int(np.prod(shape))
    if len(shape) < 2 and size < MANY:
        return
    what = "x".join(map(str, shape))
    says = (
        f"{what} numbers are taken as one flat vector: convolutions are for bytes (uint8 from 0 to 255) of at least "
        "8 x 8 pixels, and a replay holds every number"
    )
    advice = (
        "a wrapper that returns the numbers that matter learns faster" if size >= MANY else "neighbours mean nothing"
    )
    yield Finding("shape", "note", f"{says}; {advice}", {"shape": list(shape)})


def image_finding(trials: list[Trial]) -> Finding:
    low = np.min([trial.observations[0] for trial in trials], axis=0)
    high = np.max([trial.observations[1] for trial in trials], axis=0)
    share, least, most = float((low < high).mean()), int(low.min()), int(high.max())
    data = {"low": least, "high": most, "changing": share}
    if share == 0:
        return Finding("observations", "note", "nothing ever changed: is there anything to learn from?", data)
    says = f"images of bytes from {least} to {most}, of which {share:.0%} ever changed"
    if most <= DARK:
        advice = (
            "is it a grid of symbols? Then return float32, which is taken as a vector, or one-hot planes of 0 and 255"
        )
        return Finding("observations", "note", f"{says}: next to nothing where 255 is taken for 1; {advice}", data)
    return Finding("observations", "ok", says, data)


def observation_finding(trials: list[Trial]) -> Finding:
    scales = observation_scales(np.stack([row for trial in trials for row in trial.observations]))
    data = {"dimensions": [asdict(scale) for scale in scales]}
    still = [index for index, scale in enumerate(scales) if scale.still]
    if len(still) == len(scales):
        return Finding("observations", "note", "nothing ever changed: is there anything to learn from?", data)
    moving = {index: scale for index, scale in enumerate(scales) if not scale.still}
    lost = {index: scale for index, scale in moving.items() if scale.deviation < FINE_STEPS * _float32_step(scale)}
    told = [_lost(lost)] if lost else []
    reasons = _uneven({index: scale for index, scale in moving.items() if index not in lost and not scale.switch})
    if reasons:
        told.append(f"{', '.join(reasons)}: --normalise-observations is advised (on under robust, except in mazes)")
    if still:
        told.append(f"never changed: dimension{'s' if len(still) > 1 else ''} {_shortly(still)}")
    status: Status = "problem" if len(lost) == len(moving) else "note" if told else "ok"
    return Finding("observations", status, "; ".join(told) or "all dimensions are of a fair size", data)


def _lost(scales: dict[int, Scale]) -> str:
    """Learners compute in float32, and the cast comes before anything that could bring the numbers near 0."""
    index = min(scales, key=lambda one: scales[one].deviation / _float32_step(scales[one]))
    scale, more = scales[index], f", as do {len(scales) - 1} more" if len(scales) > 1 else ""
    return (
        f"dimension {index} moves by {scale.deviation:.3g} around {scale.mean:.3g}{more}, where float32, in which is "
        f"learned, has steps of {_float32_step(scale):.3g}: subtract the offset in the environment (to normalise comes "
        "too late)"
    )


def _float32_step(scale: Scale) -> float:
    return float(np.spacing(np.float32(max(abs(scale.low), abs(scale.high)))))


def _uneven(scales: dict[int, Scale]) -> list[str]:
    """What speaks for normalising these dimensions; switches between 0 and 1 are best left as they are."""
    if not scales:
        return []
    spread = {index: scale.deviation for index, scale in scales.items()}
    widest, narrowest = max(spread, key=spread.__getitem__), min(spread, key=spread.__getitem__)
    largest = max(scales, key=lambda index: _largest(scales[index]))
    reasons = []
    if spread[widest] > UNEVEN * spread[narrowest]:
        reasons.append(
            f"dimension {widest} spreads by {spread[widest]:.3g}, dimension {narrowest} by {spread[narrowest]:.3g}"
        )
    elif spread[narrowest] < NARROW:
        reasons.append(f"dimension {narrowest} spreads by {spread[narrowest]:.3g} only")
    if _largest(scales[largest]) > FAR_FROM_ONE:
        reasons.append(f"dimension {largest} is {scales[largest].mean:.3g} +- {scales[largest].deviation:.3g}")
    return reasons


def _largest(scale: Scale) -> float:
    return max(abs(scale.mean), scale.deviation)


def _shortly(indices: list[int], longest: int = 8) -> str:
    text = ", ".join(str(index) for index in indices[:longest])
    return f"{text} and {len(indices) - longest} more" if len(indices) > longest else text

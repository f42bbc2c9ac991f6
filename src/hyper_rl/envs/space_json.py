"""An environment's own spaces as plain data, so that a saved agent can take its observations and give its actions
without the environment, or Gymnasium, being there."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from hyper_rl.envs.action_writer import ChoiceWriter, VectorWriter, Writer
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.envs.observation_reader import ChoiceReader, Reader, VectorReader, brief, is_image, read_box

if TYPE_CHECKING:
    from gymnasium import Space


def spaces_to_json(observation: Space[Any], action: Space[Any]) -> dict[str, Any]:
    """A nest of spaces has no short description: its agents take the flattened vector."""
    from gymnasium import spaces

    seen: dict[str, Any] | None = None
    if isinstance(observation, spaces.Box):
        seen = {"shape": list(observation.shape), **({"image": True} if is_image(observation) else {})}
    elif isinstance(observation, spaces.Discrete):
        seen = {"n": int(observation.n), "start": int(observation.start)}
    if isinstance(action, spaces.Discrete):
        return {"observation": seen, "action": {"n": int(action.n), "start": int(action.start)}}
    assert isinstance(action, spaces.Box)
    low, high = (np.asarray(bound, np.float64).ravel().tolist() for bound in (action.low, action.high))
    done = {"low": low, "high": high, "shape": list(action.shape), "dtype": str(action.dtype)}
    return {"observation": seen, "action": done}


def spaces_of_task(spec: TaskSpec) -> dict[str, Any]:
    """The same for a JAX task."""
    seen: dict[str, Any] = {"shape": [spec.observation.size]} if isinstance(spec.observation, Box) else {}
    if isinstance(spec.observation, Discrete):
        seen = {"n": spec.observation.n, "start": 0}
    if isinstance(spec.action, Discrete):
        return {"observation": seen, "action": {"n": spec.action.n, "start": 0}}
    size = spec.action.size
    low, high = [spec.action.low] * size, [spec.action.high] * size
    return {"observation": seen, "action": {"low": low, "high": high, "shape": [size], "dtype": "float32"}}


def reader_from_json(data: Mapping[str, Any] | None, size: int) -> Reader:
    """How to read one observation; of a nest of spaces, the flattened vector."""
    if data is None:
        return VectorReader((size,))
    if "n" in data:
        return ChoiceReader(data["n"], data["start"])
    return read_box(tuple(data["shape"]), image=data.get("image", False))


def writer_from_json(data: Mapping[str, Any]) -> Writer:
    if "n" in data:
        return ChoiceWriter(data["n"], data["start"])
    shape = tuple(data["shape"])
    bounds = {name: np.array(data[name], np.float64).reshape(shape) for name in ("low", "high")}
    return VectorWriter(SimpleNamespace(**bounds, shape=shape, dtype=np.dtype(data["dtype"])))


def same_actions(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a learner's action means the same in both; rounded bounds, as in another dtype, are the same."""
    mine, theirs = one["action"], other["action"]
    if "n" in mine or "n" in theirs:
        return bool(mine == theirs)
    same_shape = mine["shape"] == theirs["shape"]
    return same_shape and all(np.allclose(mine[name], theirs[name], rtol=1e-5) for name in ("low", "high"))


def spaces_in_words(spec: TaskSpec, data: Mapping[str, Any] | None) -> str:
    """Both spaces, for messages; `data` as `spaces_to_json` makes it, None for a JAX task."""
    data = spaces_of_task(spec) if data is None else data
    seen = data["observation"]
    if seen is None:
        assert isinstance(spec.observation, Box)
        observed = f"a nest of spaces, {spec.observation.size} numbers in all"
    else:
        observed = _in_words(seen)
    return f"observations {observed} and actions {_in_words(data['action'])}"


def _in_words(space: Mapping[str, Any]) -> str:
    if "n" in space:
        return f"Discrete({space['n']}, start={space['start']})" if space["start"] else f"Discrete({space['n']})"
    bounds = ""
    if "low" in space:
        bounds = f" from {_numbers(space['low'])} to {_numbers(space['high'])}"
    return f"{'bytes' if space.get('image') else 'Box'} of shape {tuple(space['shape'])}{bounds}"


def _numbers(values: list[float]) -> str:
    """One for all where they are equal."""
    return f"{values[0]:g}" if len(set(values)) == 1 else brief([float(f"{value:g}") for value in values])

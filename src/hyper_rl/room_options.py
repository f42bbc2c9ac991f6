"""The Room's options in a run folder are all written out, whoever made it: the command, a study or a sweep.

An agent object keeps those that it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hyper_rl.config import options_of
from hyper_rl.envs.room import Room

NO_SYMBOLS: Mapping[str, str] = MappingProxyType({})


def write_out_room(
    task: str,
    backend: str | None,
    options: Mapping[str, Any],
    *,
    room: Room | None = None,
    symbols: Mapping[str, str] = NO_SYMBOLS,
) -> dict[str, Any]:
    """The options of any task; for the compiled Room with the rest of `room`'s, its defaults if not given.

    `symbols`: other names that its options may go by.
    """
    if task != "Room" or backend not in (None, "jax"):
        return dict(options)
    return {**options_of(room or Room()), **{symbols.get(name, name): value for name, value in options.items()}}

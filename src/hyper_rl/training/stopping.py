"""Ctrl-C between steps and not inside one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def watch_for_stop() -> Iterator[Callable[[], bool]]:
    """Ctrl-C (or a polite kill) asks to stop after the current chunk; a second Ctrl-C stops at once."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    try:
        previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: nobody can interrupt it from the keyboard
        yield lambda: False
        return
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

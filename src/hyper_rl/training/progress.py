"""Progress a person can watch: a bar with speed and time left in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

LINE_EVERY_SECONDS = 10.0
WINDOW_SECONDS = 60.0
"""Speed and time left are told from what was done in about this time."""


class Progress(Protocol):
    def update(self, step: int, note: str) -> None: ...

    def say(self, line: str) -> None: ...


class Silent:
    """For tests and for use as a library."""

    def update(self, step: int, note: str) -> None:
        pass

    def say(self, line: str) -> None:
        pass


class Pace:
    """Steps per second of late.

    The first call only starts the clock, and what is older than the window is forgotten: compiling, which comes before
    the first steps and again when learning begins, says nothing about the steps to come.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, step: int) -> float | None:
        """The speed at `step`, or None while it is unknown."""
        now = time.monotonic()
        self._seen.append((now, step))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_SECONDS:
            self._seen.popleft()
        begun, first = self._seen[0]
        return (step - first) / max(now - begun, 1e-9) if step > first else None


class PlainLines:
    """One line every ten seconds and at the end: fit for a log file."""

    def __init__(self, label: str, total: int, stream: TextIO) -> None:
        self._label, self._total, self._stream = label, total, stream
        self._said, self._pace = time.monotonic(), Pace()

    def update(self, step: int, note: str) -> None:
        now, speed = time.monotonic(), self._pace.at(step)
        if step < self._total and now - self._said < LINE_EVERY_SECONDS:
            return
        self._said = now
        known = ""
        if speed is not None:
            known = f", {speed:.0f} steps/s, {format_seconds((self._total - step) / speed)} left"
        self.say(f"{self._label} {step}/{self._total} steps{known}{note}")

    def say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


class RichBar:
    """A bar drawn by rich."""

    def __init__(self, label: str, total: int, first: int, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bar = RichProgress(*columns, console=Console(file=stream), transient=False)
        self._task = self._bar.add_task(label, total=total, completed=first, speed="", note="")
        self._pace = Pace()
        self._bar.start()

    def update(self, step: int, note: str) -> None:
        speed = self._pace.at(step)
        known = "" if speed is None else f"{speed:,.0f} steps/s"
        self._bar.update(self._task, completed=step, speed=known, note=note.lstrip(", "))

    def say(self, line: str) -> None:
        self._bar.console.print(line, highlight=False, markup=False)

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def show_progress(label: str, total: int, first: int = 0, stream: TextIO | None = None) -> Iterator[Progress]:
    """On standard error, so that what a command prints on standard output stays clean."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield PlainLines(label, total, stream)
        return
    bar = RichBar(label, total, first, stream)
    try:
        yield bar
    finally:
        bar.stop()


def format_seconds(seconds: float) -> str:
    whole = int(min(max(seconds, 0.0), 99 * 3600))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"

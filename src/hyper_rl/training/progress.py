"""Progress a person can watch: a bar with speed and time left in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

LINE_EVERY_SECONDS = 10.0


class Progress(Protocol):
    def update(self, step: int, note: str) -> None: ...

    def say(self, line: str) -> None: ...


class Silent:
    """For tests and for use as a library."""

    def update(self, step: int, note: str) -> None:
        pass

    def say(self, line: str) -> None:
        pass


class PlainLines:
    """One line every ten seconds and at the end: fit for a log file."""

    def __init__(self, label: str, total: int, first: int, stream: TextIO) -> None:
        self._label, self._total, self._first, self._stream = label, total, first, stream
        self._begun = self._said = time.monotonic()

    def update(self, step: int, note: str) -> None:
        now = time.monotonic()
        if step < self._total and now - self._said < LINE_EVERY_SECONDS:
            return
        self._said = now
        speed = (step - self._first) / max(now - self._begun, 1e-9)
        left = (self._total - step) / max(speed, 1e-9)
        self.say(f"{self._label} {step}/{self._total} steps, {speed:.0f} steps/s, {format_seconds(left)} left{note}")

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
        self._first, self._begun = first, time.monotonic()
        self._bar.start()

    def update(self, step: int, note: str) -> None:
        speed = (step - self._first) / max(time.monotonic() - self._begun, 1e-9)
        self._bar.update(self._task, completed=step, speed=f"{speed:,.0f} steps/s", note=note.lstrip(", "))

    def say(self, line: str) -> None:
        self._bar.console.print(line, highlight=False, markup=False)

    def stop(self) -> None:
        self._bar.stop()


@contextmanager
def show_progress(label: str, total: int, first: int = 0, stream: TextIO | None = None) -> Iterator[Progress]:
    """On standard error, so that what a command prints on standard output stays clean."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield PlainLines(label, total, first, stream)
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

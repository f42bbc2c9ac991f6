"""Speed and time left are those of the steps to come: compiling is no part of them."""

from __future__ import annotations

import io
import time

import pytest

from hyper_rl.training.progress import WINDOW_SECONDS, Pace, show_progress


class Clock:
    """Stands in for `time.monotonic`."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def test_the_first_call_is_left_out(clock: Clock) -> None:
    stream = io.StringIO()
    with show_progress("hyper on Room", 1016, stream=stream) as progress:
        clock.now = 40.0  # 16 steps and a long time of compiling
        progress.update(16, "")
        clock.now = 55.0
        progress.update(316, ", success 0.50")
    first, second = stream.getvalue().splitlines()
    assert first == "hyper on Room 16/1016 steps"
    assert second == "hyper on Room 316/1016 steps, 20 steps/s, 0:00:35 left, success 0.50"


def test_what_is_long_past_is_forgotten(clock: Clock) -> None:
    pace = Pace()
    assert pace.at(0) is None
    clock.now = 1000.0  # something was compiled again
    assert pace.at(100) == pytest.approx(0.1)
    for second in range(1, int(WINDOW_SECONDS) + 1):
        clock.now = 1000.0 + second
        speed = pace.at(100 + 50 * second)
    assert speed == pytest.approx(50.0)

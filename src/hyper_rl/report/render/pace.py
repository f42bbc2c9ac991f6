"""How fast an episode is shown: few enough frames for a small file, and a rest at its beginning and its end."""

from __future__ import annotations

import math

LONGEST_EPISODE = 150
"""Frames; an episode with more steps is shown several steps at a time."""
HOLD_FIRST, HOLD_LAST = 8, 30
"""Frames for which an episode stands still at its start and at its end."""


def steps_per_frame(steps: int) -> int:
    return max(1, math.ceil(steps / LONGEST_EPISODE))

"""Episodes in a Room or a maze seen from above: an animation, or one still picture of all paths.

A path is drawn once: each frame adds to the one before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hyper_rl.report.render.pace import HOLD_FIRST, HOLD_LAST, steps_per_frame
from hyper_rl.report.render.paths import Walk
from hyper_rl.report.render.scene import Scene, Trail
from hyper_rl.report.render.sheet import Captions, Frame, Sheet

FADED = 0.72
"""How far the path of an earlier episode has gone towards the floor's colour."""


def animate(scene: Scene, trails: Sequence[Trail], captions: Captions, width: int) -> Iterator[Frame]:
    """One episode after another; the paths of earlier ones stay, faded."""
    names = [episode_name(captions.kind, number, len(trails), trail.walk) for number, trail in enumerate(trails)]
    ends = [f"{name}: {outcome(trail.walk)}" for name, trail in zip(names, trails, strict=True)]
    sheet = Sheet(scene, captions, width, max(ends, key=len))
    faded = sheet.ground.copy()
    for name, end, trail in zip(names, ends, trails, strict=True):
        canvas = faded.copy()
        sheet.draw_goal_area(canvas, trail.goal)
        sheet.draw_goal(canvas, trail.goal)
        steps = trail.walk.steps
        stride = steps_per_frame(steps)
        drawn = 0
        for now in (0, *range(stride, steps, stride), steps):
            _draw_path(sheet, canvas, trail, drawn, now)
            drawn = now
            sheet.draw_start(canvas, trail.points[0])
            shown = canvas.copy()
            _draw_agent(sheet, shown, trail, now)
            frame = sheet.finish(shown, end if now == steps else f"{name}: step {now} of {scene.horizon}")
            for _ in range({0: HOLD_FIRST, steps: HOLD_LAST}.get(now, 1)):
                yield frame
        _draw_path(sheet, faded, trail, 0, steps, fade=FADED)


def still(scene: Scene, trails: Sequence[Trail], captions: Captions, width: int) -> Frame:
    """All paths in one picture."""
    reached = sum(trail.walk.success for trail in trails)
    status = f"{captions.kind} episodes: {len(trails)}, goal reached in {reached}"
    sheet = Sheet(scene, captions, width, status)
    canvas = sheet.ground.copy()
    for trail in trails:
        sheet.draw_goal_area(canvas, trail.goal)
    for trail in trails:
        _draw_path(sheet, canvas, trail, 0, trail.walk.steps)
    for trail in trails:
        sheet.draw_start(canvas, trail.points[0])
        if not trail.walk.success:  # at the goal there is the star
            _draw_agent(sheet, canvas, trail, trail.walk.steps)
    sheet.draw_goal(canvas, np.mean([trail.goal for trail in trails], axis=0))
    return sheet.finish(canvas, status)


def outcome(walk: Walk) -> str:
    steps = f"{walk.steps} step{'s' if walk.steps > 1 else ''}"
    if walk.success:
        return f"goal reached in {steps}"
    return f"ended after {steps}, return {walk.total:g}" if walk.terminated else f"goal not reached in {steps}"


def episode_name(kind: str, number: int, total: int, walk: Walk) -> str:
    length = "" if walk.length is None else f" (L = {walk.length})"
    return f"{kind} episode {number + 1} of {total}{length}"


def _draw_path(sheet: Sheet, canvas: Any, trail: Trail, begin: int, end: int, fade: float = 0.0) -> None:
    explorer = trail.walk.explorer
    for step in range(begin, end):
        sheet.draw_step(canvas, trail.points[step], trail.points[step + 1], explorer=explorer[step], fade=fade)
    if explorer.any() and not explorer.all() and (handover := int(explorer.argmax())) <= end:
        sheet.draw_handover(canvas, trail.points[handover], fade)


def _draw_agent(sheet: Sheet, canvas: Any, trail: Trail, step: int) -> None:
    """In the colour of who acts next, or who acted last."""
    sheet.draw_agent(canvas, trail.points[step], explorer=trail.walk.explorer[min(step, trail.walk.steps - 1)])

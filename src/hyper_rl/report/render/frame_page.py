"""Frames of a Gymnasium environment on a page of their own: title, what is happening, who acts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hyper_rl.report.render.gymnasium_frames import Play, Shot
from hyper_rl.report.render.pace import HOLD_FIRST, HOLD_LAST
from hyper_rl.report.render.sheet import (
    EXPLORER,
    INK,
    MUTED,
    PAPER,
    SMOOTH,
    TASK_POLICY,
    Captions,
    Frame,
    load_font,
    require_pillow,
)


def caption_shots(shots: Iterable[Shot], plays: Sequence[Play], captions: Captions, width: int) -> Iterator[Frame]:
    """Every shot, `width` wide, with its words; an episode rests at its beginning and its end."""
    width += width % 2  # movie formats want even numbers
    for shot in shots:
        frame = _page(shot, plays, captions, width)
        for _ in range(HOLD_LAST if shot.moment.ended else HOLD_FIRST if shot.moment.step == 0 else 1):
            yield frame


def _page(shot: Shot, plays: Sequence[Play], captions: Captions, width: int) -> Frame:
    image, drawing = require_pillow()
    margin, font = max(8, round(width * 0.03)), load_font(max(9, round(width / 36)))
    line = round(font.size * 1.7)
    shown = width - 2 * margin
    height = round(shown * shot.frame.shape[0] / shot.frame.shape[1])
    picture = image.fromarray(shot.frame).resize((shown, height), image.Resampling.LANCZOS)
    top = margin // 2 + 2 * line
    bottom = top + height + (line + margin // 2 if captions.explorer else margin)
    page = image.new("RGB", (width, bottom + bottom % 2), PAPER)
    page.paste(picture, (margin, top))
    pen = drawing(page)
    bold = load_font(font.size, bold=True, fits=(captions.title, shown))
    pen.text((margin, margin // 2 + line // 2), captions.title, font=bold, fill=INK, anchor="lm")
    status = status_of(shot, plays, captions)
    smaller = load_font(font.size, fits=(status, shown))
    pen.text((margin, margin // 2 + line + line // 2), status, font=smaller, fill=MUTED, anchor="lm")
    who = captions.explorer if shot.moment.explorer else captions.task_policy
    if captions.explorer and who:
        middle = top + height + line // 2 + margin // 4
        _dot(page, margin, middle, font.size, EXPLORER if shot.moment.explorer else TASK_POLICY)
        pen.text((margin + round(font.size * 1.3), middle), who, font=font, fill=INK, anchor="lm")
    return np.asarray(page)


def status_of(shot: Shot, plays: Sequence[Play], captions: Captions) -> str:
    length = plays[shot.episode].length
    name = f"{captions.kind} episode {shot.episode + 1} of {len(plays)}" + (f" (L = {length})" if length else "")
    told = f"{name}: step {shot.moment.step}, return {shot.moment.total:.4g}"
    return told + (", success" if shot.moment.success else ", ended") if shot.moment.ended else told


def _dot(page: Any, x: int, middle: int, size: int, colour: tuple[int, int, int]) -> None:
    image, drawing = require_pillow()
    patch = image.new("RGB", (size * SMOOTH, size * SMOOTH), PAPER)
    drawing(patch).ellipse([SMOOTH, SMOOTH, (size - 1) * SMOOTH, (size - 1) * SMOOTH], fill=colour)
    page.paste(patch.reduce(SMOOTH), (x, middle - size // 2))

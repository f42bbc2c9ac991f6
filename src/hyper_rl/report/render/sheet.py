"""One page of a picture seen from above: title, a line that changes, the map, the legend.

Drawn with Pillow at three times the size and reduced, which smooths every edge and is quick enough for hundreds of
frames. Colours are told apart by every kind of colour vision and in grey; marks differ in shape too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from hyper_rl.errors import missing_extra
from hyper_rl.report.render.scene import Scene

Frame = UInt8[np.ndarray, "height width 3"]
Colour = tuple[int, int, int]
Spot = tuple[float, float]

# Blue and orange of Okabe and Ito, and their green.
TASK_POLICY: Colour = (0, 114, 178)
EXPLORER: Colour = (230, 140, 0)
GOAL: Colour = (0, 158, 115)
INK: Colour = (34, 39, 46)
MUTED: Colour = (96, 104, 114)
WALL: Colour = (70, 78, 90)
FLOOR: Colour = (250, 249, 246)
GRID: Colour = (228, 225, 217)
PAPER: Colour = (255, 255, 255)

SMOOTH = 3
"""Drawn this many times larger than shown."""
BORDER = 0.35
"""Thickness of the outer wall, in cells."""


@dataclass(frozen=True)
class Captions:
    """The words around the map."""

    title: str
    kind: str
    """What the episodes are: 'judged' or 'training'."""
    task_policy: str | None
    """The legend's name for a path of the task policy; None where there is none."""
    explorer: str | None


class Sheet:
    """Draws on canvases, which are the map alone, enlarged; `finish` puts one on the page."""

    def __init__(self, scene: Scene, captions: Captions, width: int, longest_status: str) -> None:
        self._image, self._drawing = require_pillow()
        self._scene = scene
        self._margin = max(8, round(width * 0.045))
        rows, columns = scene.walls.shape
        # Of walls that are cells only a rim is shown; a lattice, which has none, gets the same rim around it.
        self._origin = BORDER if scene.lattice else BORDER - 1
        across, down = columns + 2 * self._origin, rows + 2 * self._origin
        map_width = width - 2 * self._margin
        self._cell = map_width * SMOOTH / across
        self._map_size = (map_width, round(map_width * down / across))
        self._line = max(1.0, width / 220) * SMOOTH
        self._font = load_font(max(9, round(width / 36)))
        self._status_font = load_font(self._font.size, fits=(longest_status, map_width))
        self._floor = self._draw_floor()
        self.ground = self._draw_ground()
        self._page, self._status_at, self._map_at = self._draw_page(captions, width)

    def finish(self, canvas: Any, status: str) -> Frame:
        """The page with this map and this line."""
        page = self._page.copy()
        page.paste(canvas.reduce(SMOOTH), self._map_at)
        self._drawing(page).text(self._status_at, status, font=self._status_font, fill=MUTED, anchor="lm")
        return np.asarray(page)

    def draw_step(self, canvas: Any, begin: Any, end: Any, *, explorer: bool, fade: float = 0.0) -> None:
        pen, colour = self._drawing(canvas), blend(_who(explorer), FLOOR, fade)
        a, b = self._at(begin), self._at(end)
        pen.line([a, b], fill=colour, width=round(self._line))
        pen.ellipse(_around(b, self._line / 2), fill=colour)

    def draw_goal_area(self, canvas: Any, goal: Any) -> None:
        """Where the goal counts as reached; walls cover what they cover."""
        painted, radius = canvas.copy(), self._scene.goal_radius * self._cell
        self._drawing(painted).ellipse(
            _around(self._at(goal), radius), fill=blend(GOAL, FLOOR, 0.78), outline=GOAL, width=round(self._line * 0.5)
        )
        canvas.paste(painted, mask=self._floor)

    def draw_goal(self, canvas: Any, goal: Any) -> None:
        self._star(self._drawing(canvas), self._at(goal), max(0.3 * self._cell, self._line * 3.8))

    def draw_start(self, canvas: Any, start: Any) -> None:
        self._ring(self._drawing(canvas), self._at(start), self._line * 1.8, INK)

    def draw_handover(self, canvas: Any, point: Any, fade: float = 0.0) -> None:
        self._diamond(self._drawing(canvas), self._at(point), self._line * 2.0, blend(INK, FLOOR, fade))

    def draw_agent(self, canvas: Any, point: Any, *, explorer: bool) -> None:
        pen, middle = self._drawing(canvas), self._at(point)
        for reach, colour in ((2.3, INK), (1.9, PAPER), (1.4, _who(explorer))):
            pen.ellipse(_around(middle, self._line * reach), fill=colour)

    def _at(self, point: Any) -> Spot:
        return (float(point[0]) + self._origin) * self._cell, (float(point[1]) + self._origin) * self._cell

    def _ring(self, pen: Any, middle: Spot, radius: float, colour: Colour) -> None:
        pen.ellipse(_around(middle, radius), fill=PAPER, outline=colour, width=round(self._line * 0.7))

    def _diamond(self, pen: Any, middle: Spot, radius: float, colour: Colour) -> None:
        x, y = middle
        for reach, fill in ((radius, colour), (radius - self._line * 0.8, PAPER)):
            pen.polygon([(x, y - reach), (x + reach, y), (x, y + reach), (x - reach, y)], fill=fill)

    def _star(self, pen: Any, middle: Spot, radius: float) -> None:
        for reach, colour in ((radius * 1.3, PAPER), (radius, GOAL)):
            turns = [(math.pi * (i / 5 - 0.5), reach if i % 2 == 0 else reach * 0.45) for i in range(10)]
            pen.polygon([(middle[0] + r * math.cos(a), middle[1] + r * math.sin(a)) for a, r in turns], fill=colour)

    def _draw_floor(self) -> Any:
        """A mask of the free cells."""
        mask = self._image.new("L", (self._map_size[0] * SMOOTH, self._map_size[1] * SMOOTH), 0)
        pen = self._drawing(mask)
        for row, column in zip(*np.nonzero(~self._scene.walls), strict=True):
            pen.rectangle([self._at((column, row)), self._at((column + 1, row + 1))], fill=255)
        return mask

    def _draw_ground(self) -> Any:
        scene, (rows, columns) = self._scene, self._scene.walls.shape
        tiles = self._image.new("RGB", self._floor.size, FLOOR)
        pen = self._drawing(tiles)
        for x in range(1, columns):
            pen.line([self._at((x, 0)), self._at((x, rows))], fill=GRID, width=SMOOTH - 1)
        for y in range(1, rows):
            pen.line([self._at((0, y)), self._at((columns, y))], fill=GRID, width=SMOOTH - 1)
        if scene.subgoal is not None:
            self._ring(pen, self._at(scene.subgoal), max(self._cell * 0.42, self._line * 1.8), GOAL)
        ground = self._image.new("RGB", self._floor.size, WALL)
        ground.paste(tiles, mask=self._floor)
        return ground

    def _draw_page(self, captions: Captions, width: int) -> tuple[Any, tuple[int, int], tuple[int, int]]:
        """The page without map and status."""
        margin, line = self._margin, round(self._font.size * 1.7)
        rows = self._legend_rows(captions, width - 2 * margin)
        map_at = (margin, margin // 2 + 2 * line)
        legend_at = map_at[1] + self._map_size[1] + line // 3
        height = legend_at + len(rows) * line + margin // 2
        # Movie formats want even numbers.
        page = self._image.new("RGB", (width + width % 2, height + height % 2), PAPER)
        pen = self._drawing(page)
        bold = load_font(self._font.size, bold=True, fits=(captions.title, width - 2 * margin))
        pen.text((margin, margin // 2 + line // 2), captions.title, font=bold, fill=INK, anchor="lm")
        for number, row in enumerate(rows):
            x, middle = float(margin), legend_at + number * line + line // 2
            for mark, text in row:
                self._draw_mark(page, mark, round(x), middle)
                pen.text((x + self._mark_width(mark), middle), text, font=self._font, fill=INK, anchor="lm")
                x += self._entry_width(mark, text)
        return page, (margin, margin // 2 + line + line // 2), map_at

    def _legend_rows(self, captions: Captions, room: int) -> list[list[tuple[str, str]]]:
        """In one row if it fits; else paths and marks apart."""
        paths = [("task", captions.task_policy), ("explorer", captions.explorer)]
        named = [(mark, text) for mark, text in paths if text is not None]
        marks = [("start", "start"), ("goal", "goal")]
        if self._scene.subgoal is not None:
            marks.append(("subgoal", "small goal"))
        if len(named) > 1:
            marks.append(("handover", "hand-over"))
        gap = self._font.size * 1.3
        if sum(self._entry_width(*entry) for entry in named + marks) - gap <= room:
            return [named + marks]
        rows: list[list[tuple[str, str]]] = []
        for group in (named, marks):
            rows.append([])
            used = 0.0
            for entry in group:
                if rows[-1] and used + self._entry_width(*entry) - gap > room:
                    rows.append([])
                    used = 0.0
                rows[-1].append(entry)
                used += self._entry_width(*entry)
        return rows

    def _mark_width(self, mark: str) -> float:
        return float(self._font.size * (2.0 if mark in ("task", "explorer") else 1.3))

    def _entry_width(self, mark: str, text: str) -> float:
        return self._mark_width(mark) + float(self._font.getlength(text)) + self._font.size * 1.3

    def _draw_mark(self, page: Any, mark: str, x: int, middle: int) -> None:
        """A legend's mark, drawn like the thing itself."""
        size, em = (round(self._mark_width(mark)), round(self._font.size * 1.4)), self._font.size * SMOOTH
        patch = self._image.new("RGB", (size[0] * SMOOTH, size[1] * SMOOTH), PAPER)
        pen, height = self._drawing(patch), size[1] * SMOOTH
        spot = (em * 0.5, height / 2)
        if mark in ("task", "explorer"):
            pen.line([(0, height / 2), (em * 1.6, height / 2)], fill=_who(mark == "explorer"), width=round(self._line))
        elif mark == "goal":
            self._star(pen, spot, em * 0.5)
        elif mark == "handover":
            self._diamond(pen, spot, min(self._line * 2.0, em * 0.45), INK)
        else:
            self._ring(pen, spot, min(self._line * 1.8, em * 0.42), INK if mark == "start" else GOAL)
        page.paste(patch.reduce(SMOOTH), (x, middle - size[1] // 2))


def require_pillow() -> tuple[Any, Any]:
    """Pillow's Image module and its pen."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise missing_extra("drawing pictures", "plots") from None
    return Image, ImageDraw.Draw


def blend(colour: Colour, towards: Colour, share: float) -> Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(colour, towards, strict=True))
    return red, green, blue


@lru_cache(maxsize=64)
def load_font(size: int, *, bold: bool = False, fits: tuple[str, int] | None = None) -> Any:
    """DejaVu, which comes with matplotlib and knows Greek; smaller where the text would not fit the width."""
    try:
        import matplotlib
    except ImportError:
        raise missing_extra("drawing pictures", "plots") from None
    from PIL import ImageFont

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    path = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name)
    font = ImageFont.truetype(path, size)
    while fits is not None and size > 6 and font.getlength(fits[0]) > fits[1]:
        size -= 1
        font = ImageFont.truetype(path, size)
    return font


def _who(explorer: bool) -> Colour:
    return EXPLORER if explorer else TASK_POLICY


def _around(middle: Spot, radius: float) -> list[float]:
    x, y = middle
    return [x - radius, y - radius, x + radius, y + radius]

"""Frames into files: what was put in comes out, and nothing is replaced or left half written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hyper_rl.errors import UserError
from hyper_rl.report.render import movie
from hyper_rl.report.render.movie import write_movie


def moving(count: int = 12) -> Iterator[np.ndarray]:
    """A blue square that moves over white paper with a smooth shade."""
    for i in range(count):
        frame = np.full((40, 60, 3), 255, np.uint8)
        frame[30:, :, 0] = np.linspace(0, 250, 60)
        frame[10:20, 3 * i : 3 * i + 10] = (0, 114, 178)
        yield frame


def test_a_gif_gives_its_frames_back(tmp_path: Path) -> None:
    from PIL import Image, ImageSequence

    out = tmp_path / "new" / "movie.gif"
    held = [*moving(), *list(moving())[-1:] * 5]
    assert write_movie(iter(held), out, 25) == 17
    with Image.open(out) as gif:
        assert gif.info["loop"] == 0
        shown = [(np.array(f.convert("RGB")), f.info["duration"]) for f in ImageSequence.Iterator(gif)]
    assert [duration for _, duration in shown] == [40] * 11 + [240]  # equal frames are one that lasts
    for (frame, _), original in zip(shown, moving(), strict=True):
        assert np.abs(frame.astype(int) - original).max() <= 6
        flat = (original == 255).all(axis=2) | (original == (0, 114, 178)).all(axis=2)
        np.testing.assert_array_equal(frame[flat], original[flat])
    assert [path.name for path in out.parent.iterdir()] == ["movie.gif"]


def test_no_file_is_replaced_unless_asked_for(tmp_path: Path) -> None:
    out = tmp_path / "movie.gif"
    out.write_text("mine")
    with pytest.raises(UserError, match=r"movie\.gif exists already; .*--overwrite"):
        write_movie(moving(), out, 25)
    assert out.read_text() == "mine"
    write_movie(moving(), out, 25, overwrite=True)
    assert out.read_bytes()[:6] == b"GIF89a"


def test_frames_that_fail_leave_no_file(tmp_path: Path) -> None:
    def failing() -> Iterator[np.ndarray]:
        yield from moving(3)
        raise RuntimeError("the environment broke")

    with pytest.raises(RuntimeError, match="broke"):
        write_movie(failing(), tmp_path / "movie.gif", 25)
    for bad in (np.zeros((4, 4, 3), float), np.zeros((4, 4), np.uint8), np.zeros((5, 4, 3), np.uint8)):
        with pytest.raises(UserError, match=r"frames: got .* must be uint8"):
            write_movie([np.zeros((4, 4, 3), np.uint8), bad], tmp_path / "movie.gif", 25)
    with pytest.raises(UserError, match="frames: got 0, must be at least one"):
        write_movie([], tmp_path / "movie.gif", 25)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "fps", "said"),
    [
        ("movie.avi", 25, r"out: .* ends in \.gif, \.mp4, \.png"),
        ("movie", 25, "out: "),
        ("movie.gif", 0, "fps: got 0, must be between 1 and 50"),
        ("movie.gif", 51, "fps: got 51"),
    ],
)
def test_what_cannot_be_written_is_refused(name: str, fps: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        write_movie(moving(), tmp_path / name, fps)


def test_an_mp4_is_written_where_ffmpeg_is(tmp_path: Path) -> None:
    try:
        movie.find_ffmpeg()
    except UserError:
        pytest.skip("needs ffmpeg")
    out = tmp_path / "movie.mp4"
    assert write_movie(moving(), out, 25) == 12
    assert out.read_bytes()[4:8] == b"ftyp"


def test_without_ffmpeg_a_gif_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"needs ffmpeg, which is not here; .* choose a \.gif"):
        write_movie(moving(), tmp_path / "movie.mp4", 25)


def test_an_ffmpeg_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho 'Unknown encoder libx264' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(movie, "find_ffmpeg", lambda: str(program))
    with pytest.raises(UserError, match=r"ffmpeg could not write \.mp4 \(Unknown encoder libx264\)"):
        write_movie(moving(), tmp_path / "movie.mp4", 25)
    assert not (tmp_path / "movie.mp4").exists()

"""Frames into a file: an animated GIF through Pillow, an MP4 through ffmpeg, a PNG of one frame.

It does not matter who made the frames. A file appears under its name only when it is whole, and none is replaced
unless that was asked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.errors import UserError, require
from hyper_rl.report.render.sheet import Frame, require_pillow

SUFFIXES = (".gif", ".mp4", ".png")
COLOURS = 255
"""Of a GIF; the 256th stands for "as in the frame before"."""
EXACT_COLOURS = 24
PALETTE_FRAMES = 16
"""Frames looked at to choose the colours."""
FASTEST = 50
"""Frames a second: a GIF counts in hundredths, and players slow down what claims to take less than two."""


def check_movie(out: Path, fps: int, *, overwrite: bool) -> None:
    """Refuse what cannot be written, before anything is computed."""
    require(out.suffix.lower() in SUFFIXES, "out", str(out), f"a file name that ends in {', '.join(SUFFIXES)}")
    require(1 <= fps <= FASTEST, "fps", fps, f"between 1 and {FASTEST}")
    require(not out.is_dir(), "out", str(out), "a file, not a folder")
    if out.exists() and not overwrite:
        raise UserError(f"out: {out} exists already; choose another name, or replace it with --overwrite")
    require_pillow()
    if out.suffix.lower() == ".mp4":
        find_ffmpeg()


def write_movie(frames: Iterable[Frame], out: Path, fps: int, *, overwrite: bool = False) -> int:
    """Write all frames, or the last one as a PNG, and return how many there were."""
    check_movie(out, fps, overwrite=overwrite)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f".{out.stem}.writing{out.suffix.lower()}")
        write = {".gif": _write_gif, ".mp4": _write_mp4, ".png": _write_png}[out.suffix.lower()]
        try:
            count = write(frames, temporary, fps)
            # `replace` would also replace a file that somebody else made in the meantime.
            temporary.replace(out) if overwrite else os.link(temporary, out)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"out: {out} cannot be written ({error.strerror or error})") from None
    return count


def _write_png(frames: Iterable[Frame], out: Path, fps: int) -> int:
    image, _ = require_pillow()
    every = list(frames)
    require(bool(every), "frames", 0, "at least one")
    image.fromarray(every[-1]).save(out, optimize=True)
    return len(every)


def _write_gif(frames: Iterable[Frame], out: Path, fps: int) -> int:
    """One palette for all frames: a palette of its own for each would make the background flicker."""
    image, _ = require_pillow()
    packed, shape = _pack(frames)
    require(bool(packed), "frames", len(packed), "at least one")
    chosen = [packed[i] for i in np.linspace(0, len(packed) - 1, min(len(packed), PALETTE_FRAMES)).astype(int)]
    palette = _palette(image.fromarray(np.concatenate([_unpack(data, shape) for data in chosen])))

    def coloured() -> Iterator[Any]:
        for data in packed:
            yield image.fromarray(_unpack(data, shape)).quantize(palette=palette, dither=image.Dither.NONE)

    pictures = coloured()
    # `optimize` lets a frame hold only what changed; equal frames in a row become one that lasts longer.
    next(pictures).save(
        out, save_all=True, append_images=pictures, duration=round(1000 / fps), loop=0, optimize=True, disposal=1
    )
    return len(packed)


def _palette(sample: Any) -> Any:
    """Colours for `sample`; the most frequent ones exactly, since a white page should be white and stay so."""
    image, _ = require_pillow()
    counted = sorted(sample.getcolors(sample.width * sample.height), reverse=True)
    others = sample.quantize(COLOURS - EXACT_COLOURS, method=image.Quantize.MEDIANCUT, dither=image.Dither.NONE)
    frequent = np.array([colour for _, colour in counted[:EXACT_COLOURS]])
    chosen = np.zeros((0, 3), int)
    for colour in np.concatenate([frequent, np.array(others.getpalette()).reshape(-1, 3)]):
        # Pillow looks a colour up by its channels rounded down to fours; no later colour may be nearer to that.
        looked_up = chosen[:EXACT_COLOURS] // 4 * 4
        own = ((chosen[:EXACT_COLOURS] - looked_up) ** 2).sum(axis=1)
        if (((colour - looked_up) ** 2).sum(axis=1) > own).all():
            chosen = np.vstack([chosen, colour])
    palette = image.new("P", (1, 1))
    palette.putpalette(chosen.ravel().tolist())
    return palette


def _pack(frames: Iterable[Frame]) -> tuple[list[bytes], tuple[int, ...]]:
    """The palette wants to see the end before the beginning is written; deflated, hundreds of frames fit in memory."""
    packed: list[bytes] = []
    shape: tuple[int, ...] = ()
    before, same = None, b""
    for frame in frames:
        _check_frame(frame, shape or frame.shape)
        shape = frame.shape
        if frame is not before:  # a frame that is held
            before, same = frame, zlib.compress(np.ascontiguousarray(frame).tobytes(), 1)
        packed.append(same)
    return packed, shape


def _unpack(data: bytes, shape: tuple[int, ...]) -> Frame:
    return np.frombuffer(zlib.decompress(data), np.uint8).reshape(shape)


def _check_frame(frame: Frame, shape: tuple[int, ...]) -> None:
    fits = frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3 and frame.shape == shape
    if not fits:
        raise UserError(f"frames: got {frame.dtype}{list(frame.shape)}, must be uint8[height, width, 3], all alike")


def find_ffmpeg() -> str:
    """The program that writes MP4: the one of the package imageio-ffmpeg, or the system's."""
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # RuntimeError: the package came without the program
        pass
    found = shutil.which("ffmpeg")
    if found is None:
        raise UserError(
            "out: writing .mp4 needs ffmpeg, which is not here; pip install imageio-ffmpeg, or choose a .gif, "
            "which needs nothing more"
        )
    return found


def _write_mp4(frames: Iterable[Frame], out: Path, fps: int) -> int:
    count, process = 0, None
    shape: tuple[int, ...] = ()
    with tempfile.TemporaryFile() as said:
        try:
            for frame in frames:
                _check_frame(frame, shape or frame.shape)
                if process is None:
                    shape = frame.shape
                    command = _mp4_command(out, fps, width=shape[1], height=shape[0])
                    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said)
                assert process.stdin is not None
                process.stdin.write(np.ascontiguousarray(frame).tobytes())
                count += 1
        except BrokenPipeError:
            pass  # ffmpeg has given up, and says below why
        finally:
            if process is not None:
                process.communicate()
        require(process is not None, "frames", count, "at least one")
        if process is not None and process.returncode != 0:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise UserError(f"out: ffmpeg could not write {out.suffix} ({lines[-1]}); choose a .gif instead")
    return count


def _mp4_command(out: Path, fps: int, *, width: int, height: int) -> list[str]:
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", str(fps), "-i", "-"]
    # H.264 with halved colour resolution is what every player knows; it needs even sizes.
    wanted = ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18"]
    return [find_ffmpeg(), "-loglevel", "error", "-y", *given, *wanted, "-movflags", "+faststart", str(out)]

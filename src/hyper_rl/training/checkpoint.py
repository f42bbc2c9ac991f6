"""Checkpoints: the whole state of all runs, in safetensors and JSON, never half written.

    checkpoint/step-000000050000/state.safetensors   every array of every run
                                 checkpoint.json     step, format version, check sums

A checkpoint is written under a temporary name, flushed, and renamed, so a folder with a final name is complete. Check
sums of both files are verified on reading: one that was cut short or changed is refused by name and the one before it
is used. The curve lives beside it and only grows; the checkpoint knows how long it was and what it contained.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from hyper_rl.errors import UserError

FORMAT_VERSION = 2
"""Version 1 did not know who had succeeded in the episode in progress."""
STATE_FILE, META_FILE = "state.safetensors", "checkpoint.json"
EXTRA = "extra/"
"""Prefix of the arrays whose shapes nobody knows beforehand."""


@dataclass(frozen=True)
class Position:
    """Where in the run the checkpoint stands."""

    step: int
    evaluations: int
    curve_bytes: int
    curve_sha256: str
    contained_bytes: int | None = None
    """The same of the curve in the run folder inside this one, where there is one (`contained`, which checks it)."""
    contained_sha256: str | None = None


class DamagedCheckpoint(Exception):
    """A checkpoint that cannot be trusted; the message names the file."""


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """Leaves by path, to be written at once: on a CPU they are the tree's own memory, as there may be much of it.

    Leaves that are views of one buffer are copied: the file format wants its own bytes.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    arrays: dict[str, np.ndarray] = {}
    taken: set[int] = set()
    for path, leaf in leaves:
        array = np.asarray(jax.device_get(leaf), order="C")
        buffer = array.__array_interface__["data"][0]
        arrays[jax.tree_util.keystr(path)] = array.copy() if buffer in taken else array
        taken.add(buffer)
    return arrays


def unflatten(template: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """Arrays back into the shape of `template` (arrays or `jax.eval_shape` results); every leaf must fit exactly."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    paths = [jax.tree_util.keystr(path) for path, _ in leaves]
    if set(paths) != set(arrays):
        odd = sorted(set(paths) ^ set(arrays))[:3]
        raise DamagedCheckpoint(f"{name}: holds other arrays than this configuration needs, e.g. {odd}")
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        stored = arrays[path]
        if stored.shape != leaf.shape or stored.dtype != leaf.dtype:
            raise DamagedCheckpoint(
                f"{name}: {path} is {stored.dtype}{list(stored.shape)}, expected {leaf.dtype}{list(leaf.shape)}"
            )
    return jax.tree_util.tree_unflatten(structure, [arrays[path] for path in paths])


def write_checkpoint(
    folder: Path, tree: Any, position: Position, keep: int, extra: Mapping[str, np.ndarray] = MappingProxyType({})
) -> Path:
    """Write, flush, rename, then drop all but the newest `keep`.

    A checkpoint of the same step is the same checkpoint: it is kept, not written again, so that there is no moment
    without a whole one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{position.step:012d}"
    if not final.is_dir():
        _write(folder, final, {**flatten(tree), **{EXTRA + name: array for name, array in extra.items()}}, position)
    for old in list_checkpoints(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    for leftover in folder.glob(".writing-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    return final


def _write(folder: Path, final: Path, arrays: dict[str, np.ndarray], position: Position) -> None:
    temporary = folder / f".writing-{final.name}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        save_file(arrays, temporary / STATE_FILE)
    except SafetensorError as error:  # a full disk, which it does not call by its name
        shutil.rmtree(temporary, ignore_errors=True)
        raise OSError(f"{temporary / STATE_FILE}: cannot be written ({error})") from None
    known = {name: value for name, value in asdict(position).items() if value is not None}
    body = {"format_version": FORMAT_VERSION, **known, "state_sha256": file_sha256(temporary / STATE_FILE)}
    (temporary / META_FILE).write_text(json.dumps({"body": body, "sha256": _body_sha256(body)}, indent=2) + "\n")
    for path in (temporary / STATE_FILE, temporary / META_FILE, temporary):
        flush(path)
    temporary.rename(final)
    flush(folder)


def list_checkpoints(folder: Path) -> list[Path]:
    """Newest first."""
    return sorted(folder.glob("step-*"), reverse=True)


def read_newest(
    folder: Path, template: Callable[[int], Any], curve: Path, warn: Callable[[str], None]
) -> tuple[Any, dict[str, np.ndarray], Position] | None:
    """(tree, extra arrays, position) of the newest checkpoint that is whole, or None when there is none at all.

    `template(step)` gives the shapes to expect. Damaged ones are reported through `warn` and set aside under another
    name once a whole one is found; if only damaged ones exist, that is an error, because silently starting over would
    throw the run away.
    """
    problems: dict[Path, str] = {}
    for path in list_checkpoints(folder):
        try:
            loaded = _read(path, template, curve)
        except DamagedCheckpoint as problem:
            problems[path] = str(problem)
            warn(f"refused {problem}")
            continue
        for damaged in problems:
            damaged.rename(_free_name(damaged.with_name(f"damaged-{damaged.name}")))
        return loaded
    if problems:
        raise UserError(f"{folder}: no checkpoint can be used: {'; '.join(problems.values())}")
    return None


def _free_name(path: Path) -> Path:
    count = 1
    while path.exists():
        path, count = path.with_name(f"{path.name}-{count}"), count + 1
    return path


def _read(path: Path, template: Callable[[int], Any], curve: Path) -> tuple[Any, dict[str, np.ndarray], Position]:
    meta, state = path / META_FILE, path / STATE_FILE
    try:
        document = json.loads(meta.read_text())
        body = document["body"]
        intact = document["sha256"] == _body_sha256(body)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpoint(f"{meta}: cannot be read ({error})") from None
    if not intact:
        raise DamagedCheckpoint(f"{meta}: altered (check sum differs)")
    version = body["format_version"]
    if version not in (1, FORMAT_VERSION):
        raise DamagedCheckpoint(f"{meta}: format version {version}, this program reads 1 to {FORMAT_VERSION}")
    if not state.is_file() or file_sha256(state) != body["state_sha256"]:
        raise DamagedCheckpoint(f"{state}: missing, truncated or altered (check sum differs)")
    position = Position(body["step"], body["evaluations"], body["curve_bytes"], body["curve_sha256"],
                        body.get("contained_bytes"), body.get("contained_sha256"))  # fmt: skip
    if head_sha256(curve, position.curve_bytes) != position.curve_sha256:
        raise DamagedCheckpoint(f"{curve}: missing, truncated or altered before step {position.step}")
    try:
        arrays = load_file(state)
    except (SafetensorError, OSError) as error:
        raise DamagedCheckpoint(f"{state}: cannot be read ({error})") from None
    if version == 1:
        in_progress = [path for path in arrays if path.endswith(".episode.step")]
        arrays |= {path.removesuffix("step") + "winner": np.zeros_like(arrays[path]) for path in in_progress}
    extra = {name.removeprefix(EXTRA): arrays.pop(name) for name in list(arrays) if name.startswith(EXTRA)}
    return unflatten(template(position.step), arrays, str(state)), extra, position


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def head_sha256(path: Path, count: int) -> str:
    """Check sum of the first `count` bytes; of nothing where the file is shorter or missing."""
    data = path.read_bytes()[:count] if path.is_file() else b""
    return hashlib.sha256(data).hexdigest()


def flush(path: Path) -> None:
    """Make the file or folder itself durable, not only the process's view of it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _body_sha256(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()

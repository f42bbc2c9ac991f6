"""Checkpoints: exact, never half written, and refused by name when they were cut short or changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import hyper_rl.training.checkpoint as checkpoint
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import build_program
from hyper_rl.errors import UserError
from hyper_rl.training.checkpoint import (
    META_FILE,
    STATE_FILE,
    Position,
    head_sha256,
    list_checkpoints,
    read_newest,
    write_checkpoint,
)
from hyper_rl.training.device_loop import init_runs


class Small(NamedTuple):
    weights: tuple[np.ndarray, np.ndarray]
    number: np.ndarray
    flags: np.ndarray
    absent: None = None


def small(seed: int) -> Small:
    draw = np.random.default_rng(seed)
    numbers = draw.standard_normal((3, 4)).astype(np.float32)
    numbers[0, :3] = [-0.0, np.nan, np.inf]
    return Small((numbers, draw.standard_normal(2)), np.asarray([seed], np.int32), draw.random(5) > 0.5)


def assert_same_bits(one: Any, other: Any) -> None:
    for (path, a), (other_path, b) in zip(
        jax.tree_util.tree_leaves_with_path(one), jax.tree_util.tree_leaves_with_path(other), strict=True
    ):
        assert path == other_path
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), jax.tree_util.keystr(path)


class Folder:
    """A checkpoint folder beside a growing curve, as in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path, self.curve = path / "checkpoint", path / "curve.csv"
        self.curve.write_text("step,success\n")
        self.warnings: list[str] = []

    def save(self, step: int, tree: Any, keep: int = 5) -> Path:
        """`keep` is generous, so that there is something to fall back on."""
        with self.curve.open("a") as file:
            file.write(f"{step},0.5\n")
        size = self.curve.stat().st_size
        return write_checkpoint(self.path, tree, Position(step, step // 100, size, head_sha256(self.curve, size)), keep)

    def load(self, template: Any = None) -> tuple[Any, Position] | None:
        shapes = small(0) if template is None else template
        loaded = read_newest(self.path, lambda step: shapes, self.curve, self.warnings.append)
        return None if loaded is None else (loaded[0], loaded[2])

    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def two(folder: Folder) -> Folder:
    """Checkpoints of steps 100 and 200."""
    folder.save(100, small(100))
    folder.save(200, small(200))
    return folder


def step_of(loaded: tuple[Any, Position] | None) -> int:
    assert loaded is not None
    assert_same_bits(loaded[0], small(loaded[1].step))
    return loaded[1].step


# Round trips


def test_a_round_trip_is_exact(folder: Folder) -> None:
    folder.save(700, small(700))
    loaded = folder.load()
    assert loaded is not None
    state, position = loaded
    assert_same_bits(state, small(700))
    assert (position.step, position.evaluations) == (700, 7)
    assert folder.warnings == []


def test_a_single_number_comes_back_as_a_single_number(folder: Folder) -> None:
    one = {"value": np.asarray(1.5, np.float32)}
    folder.save(100, one)
    loaded = folder.load(one)
    assert loaded is not None
    assert_same_bits(loaded[0], one)


@pytest.mark.parametrize(
    "words",
    [
        "Room --beta 0.1 1 --seeds 2 --tabular-q.step-rule visits --tabular-q.replay 2 --capacity 10",
        "MediumMaze-Easy --method exploit --capacity 10",
        "MediumMaze-Easy --preset robust --beta 0.1 1 --capacity 10 --td3.widths 16 16 --disagreement.widths 16 16",
    ],
)
def test_every_array_of_a_run_comes_back_exactly(words: str, folder: Folder) -> None:
    """Shapes from the program, contents at random: every bit pattern of every leaf must survive."""
    shapes = jax.eval_shape(init_runs, build_program(resolve(parse(words.split()))))
    draw = np.random.default_rng(0)

    def scramble(leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        if leaf.dtype == bool:
            return np.asarray(draw.random(leaf.shape) > 0.5)
        return np.frombuffer(draw.bytes(leaf.size * leaf.dtype.itemsize), leaf.dtype).reshape(leaf.shape)

    state = jax.tree.map(scramble, shapes)
    folder.save(100, state)
    loaded = folder.load(shapes)
    assert loaded is not None
    assert type(loaded[0]) is type(state)
    assert_same_bits(loaded[0], state)


def test_no_checkpoint_at_all_is_no_error(folder: Folder) -> None:
    assert folder.load() is None
    folder.path.mkdir()
    assert folder.load() is None


def test_only_safetensors_and_json_readable_without_the_package(two: Folder) -> None:
    for path in list_checkpoints(two.path):
        assert sorted(file.name for file in path.iterdir()) == [META_FILE, STATE_FILE]
        step = json.loads((path / META_FILE).read_text())["body"]["step"]
        arrays = load_file(path / STATE_FILE).values()
        assert {array.tobytes() for array in arrays} == {leaf.tobytes() for leaf in jax.tree.leaves(small(step))}


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_last_k_are_kept(keep: int, folder: Folder) -> None:
    for step in (100, 900, 1000, 20_000):
        folder.save(step, small(step), keep)
    steps = [int(path.name.removeprefix("step-")) for path in list_checkpoints(folder.path)]
    assert steps == [20_000, 1000, 900][:keep]
    assert len(folder.names()) == keep
    assert step_of(folder.load()) == 20_000


# Damage


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def change_the_step(path: Path) -> None:
    path.write_text(path.read_text().replace('"step": 200', '"step": 300'))


def not_an_object(path: Path) -> None:
    path.write_text("[1, 2]\n")


def other_format(path: Path) -> None:
    """A newer program's file, whole in itself."""
    body = json.loads(path.read_text())["body"]
    body["format_version"] = 99
    sha256 = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"body": body, "sha256": sha256}))


DAMAGES = [
    *((STATE_FILE, damage) for damage in (cut_short, flip_a_bit, empty, remove)),
    *((META_FILE, damage) for damage in (cut_short, change_the_step, not_an_object, empty, remove, other_format)),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_used(
    name: str, damage: Callable[[Path], None], two: Folder
) -> None:
    newest = list_checkpoints(two.path)[0]
    damage(newest / name)
    assert step_of(two.load()) == 100
    assert len(two.warnings) == 1
    assert str(newest / name) in two.warnings[0]
    assert two.names() == ["damaged-step-000000000200", "step-000000000100"]
    if damage is other_format:
        assert "format version 99, this program reads 1" in two.warnings[0]
    two.warnings.clear()
    assert step_of(two.load()) == 100
    assert two.warnings == [], "set aside, a damaged one is not tried again"


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit])
def test_a_changed_curve_is_refused_by_name(damage: Callable[[Path], None], folder: Folder) -> None:
    """The checkpoint before the change still fits what stands before it."""
    folder.save(100, small(100))
    kept = folder.curve.read_bytes()
    folder.save(200, small(200))
    if damage is cut_short:
        folder.curve.write_bytes(kept + b"20")
    else:
        flip_a_bit(folder.curve)
    assert step_of(folder.load()) == 100
    assert len(folder.warnings) == 1 and str(folder.curve) in folder.warnings[0]


def test_a_longer_curve_is_no_damage(two: Folder) -> None:
    """Rows written after the checkpoint are computed again."""
    with two.curve.open("a") as file:
        file.write("250,0.7\n")
    assert step_of(two.load()) == 200


def test_a_missing_curve_is_an_error(two: Folder) -> None:
    two.curve.unlink()
    with pytest.raises(UserError, match=r"curve\.csv"):
        two.load()


def test_a_damaged_one_set_aside_twice_overwrites_nothing(two: Folder) -> None:
    cut_short(list_checkpoints(two.path)[0] / STATE_FILE)
    two.load()
    two.save(200, small(200))
    cut_short(list_checkpoints(two.path)[0] / STATE_FILE)
    assert step_of(two.load()) == 100
    assert two.names() == ["damaged-step-000000000200", "damaged-step-000000000200-1", "step-000000000100"]


def test_only_damaged_ones_are_an_error_that_names_each(two: Folder) -> None:
    newest, oldest = list_checkpoints(two.path)
    cut_short(newest / STATE_FILE)
    flip_a_bit(oldest / STATE_FILE)
    before = two.names()
    with pytest.raises(UserError) as error:
        two.load()
    assert str(newest / STATE_FILE) in str(error.value) and str(oldest / STATE_FILE) in str(error.value)
    assert two.names() == before, "nothing is moved where nothing can be used"


def test_the_state_of_another_configuration_is_refused_with_the_array_that_differs(folder: Folder) -> None:
    folder.save(100, small(100))
    other = small(0)._replace(number=np.zeros((2,), np.int32))
    with pytest.raises(UserError, match=rf"{STATE_FILE}.*\.number is int32\[1\], expected int32\[2\]"):
        folder.load(other)
    with pytest.raises(UserError, match="holds other arrays"):
        folder.load((np.zeros(3),))


# Half-written folders


class Crash(BaseException):
    """As good as `kill -9`: nobody catches it."""


def crash(*args: Any, **kwargs: Any) -> None:
    raise Crash


def half_a_file(arrays: Any, path: Path) -> None:
    path.write_bytes(b"\x10\x00\x00")
    raise Crash


@pytest.mark.parametrize(
    ("where", "what", "how"),
    [
        (checkpoint, "save_file", half_a_file),
        (checkpoint, "save_file", crash),
        (checkpoint, "file_sha256", crash),
        (checkpoint, "flush", crash),
        (Path, "rename", crash),
    ],
)
def test_a_crash_while_writing_leaves_the_one_before(
    where: Any, what: str, how: Callable[..., None], folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.save(100, small(100))
    with monkeypatch.context() as patch:
        patch.setattr(where, what, how)
        with pytest.raises(Crash):
            folder.save(200, small(200))
    assert step_of(folder.load()) == 100
    assert folder.warnings == []
    folder.save(300, small(300))
    assert folder.names() == ["step-000000000100", "step-000000000300"], "leftovers are swept away"


def test_a_crash_while_writing_the_same_step_again_leaves_a_whole_one(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was killed after its last checkpoint and before its result writes that checkpoint again."""
    position = Position(100, 1, 0, head_sha256(folder.curve, 0))
    write_checkpoint(folder.path, small(100), position, keep=1)
    with monkeypatch.context() as patch, suppress(Crash):
        patch.setattr(Path, "rename", crash)
        write_checkpoint(folder.path, small(100), position, keep=1)
    assert step_of(folder.load()) == 100

"""The run axis over four devices gives what one device gives, also where training changes over in between.

The tests' own process has one device. What four compute, a second process does (this file as a program, with four CPU
devices forced upon it), in the folder that both share.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from safetensors.numpy import load_file

from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import Config, build_program
from hyper_rl.training.device_loop import DeviceLoop, advance
from hyper_rl.training.memory import check_fits
from hyper_rl.training.progress import Silent
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.sharding import describe, place, run_mesh, share_evenly
from hyper_rl.training.trainer import Interrupted, resume, train
from kill_and_resume import differing

# One process, so that the folder is made once; that of test_same_numbers, which has compiled the deep program already.
pytestmark = pytest.mark.xdist_group("same-numbers")

CLOSE = 1e-9
STUDY = """
title = "a small room"
task = "Room"
preset = "paper"
betas = [0.005, 1.0]
seeds = 4
steps = 2000
eval_every = 500
eval_episodes = 3
env = { size = 8, subgoal = [5, 5] }

[[group]]
methods = ["hyper", "decouple"]  # one program for both
"""
HYPER = "groups/Room-hyper"
ROOM_STOP, DEEP_STOP = 700, 150
DEEP = (
    "Pendulum --preset paper --method hyper --beta 0.1 10 --seeds 2 --steps 350 --warmup 50 --eval-every 100 "
    "--eval-episodes 1 --td3.widths 32 32 --td3.batch-size 32 --disagreement.widths 32 32"
)  # 300 updates
SIX = "Room --preset paper --method hyper --beta 0.1 1 --seeds 3 --steps 100"
COLLECTIVE = re.compile(r"all-(reduce|gather|to-all)|collective-|reduce-scatter")


def train_stopped(config: Config, out: Path, at: int) -> None:
    """Ctrl-C once training has come to step `at`."""

    class Stops(Silent):
        def update(self, step: int, note: str) -> None:
            if step >= at:
                signal.raise_signal(signal.SIGINT)

    @contextmanager
    def stopping(first: int) -> Iterator[Silent]:
        yield Stops()

    with pytest.raises(Interrupted):
        train(config, out, open_progress=stopping)


def deep_config() -> Config:
    return resolve(parse(DEEP.split()))


def compute(folder: Path, name: str, other: str) -> None:
    """All that is to be compared, into folders called `...-NAME`; what `other` has stopped already is finished."""
    (folder / name).mkdir()
    (folder / name / "small.toml").write_text(STUDY)
    study = folder / f"study-{name}"
    assert main(["study", str(folder / name / "small.toml"), "--out", str(study), "--no-figures"]) == 0
    _, room = RunFolder.open(study / HYPER)
    train_stopped(room, folder / f"room-stopped-{name}", ROOM_STOP)
    with jax.enable_x64(True):
        train(deep_config(), folder / f"deep-{name}")
        train_stopped(deep_config(), folder / f"deep-stopped-{name}", DEEP_STOP)
    finish(folder, other)


def finish(folder: Path, other: str) -> None:
    if (folder / f"room-stopped-{other}").is_dir():
        resume(folder / f"room-stopped-{other}")
        with jax.enable_x64(True):
            resume(folder / f"deep-stopped-{other}")


def look(folder: Path) -> dict[str, Any]:
    """What only the process with the devices can say."""
    _, config = RunFolder.open(folder / "study-four" / HYPER)
    loop = DeviceLoop(build_program(config), config.warmup)
    loop.advance(0, 16)
    before = loop.state
    loop.advance(16, 32)
    loop.judge(0, 1)
    leaves = [*jax.tree.leaves(loop.program), *jax.tree.leaves(loop.state)]
    mesh, number = run_mesh(8), jnp.asarray(0, jnp.int32)
    compiled = advance.jitted.lower(loop.program, loop.state, number, number, number, learn=True, mesh=mesh).compile()
    text = compiled.as_text() or ""
    six = build_program(resolve(parse(SIX.split())))
    with jax.default_device(jax.devices()[1]):
        chosen = run_mesh(8)
    return {
        "devices": len(jax.local_devices()),
        "on every device": all(len(leaf.sharding.device_set) == 4 for leaf in leaves),
        "by runs": all(leaf.sharding.spec == PartitionSpec("runs") for leaf in leaves),
        "donated": all(leaf.is_deleted() for leaf in jax.tree.leaves(before)),
        "in place": "input_output_alias" in text,
        "collectives": [found[0] for found in COLLECTIVE.finditer(text)],
        "eight": check_fits(build_program(config), 8),
        "six": check_fits(six, 6),
        "six on": len(DeviceLoop(six, 0).state.totals.goals.sharding.device_set),
        "one": describe(1),
        "chosen device alone": chosen is None,
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("devices")
    compute(out, "one", other="four")
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    command = [sys.executable, "-W", "error", __file__, str(out)]
    done = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    finish(out, "four")
    return out


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / "said.json").read_text())
    assert loaded["devices"] == 4
    return loaded


def test_a_room_run_folder_has_the_same_bytes(folder: Path) -> None:
    """Curve, result, visits, agents and the checkpoint itself."""
    one, four = folder / "study-one" / HYPER, folder / "study-four" / HYPER
    assert {"curve.csv", "result.json", "visits.csv"} <= {path.name for path in four.iterdir()}
    assert len(list(four.glob("runs/*/agent"))) == 8
    assert differing(one, four) == []


def test_a_room_study_has_the_same_bytes(folder: Path) -> None:
    one, four = ((folder / f"study-{name}" / "results.csv").read_bytes() for name in ("one", "four"))
    assert one == four and one.count(b"\n") == 1 + 16
    # The command, which names the folder, stands in study.json.
    assert differing(folder / "study-one", folder / "study-four") == ["study.json"]


@pytest.mark.parametrize("stopped_on", ["one", "four"])
def test_stopped_on_some_devices_and_resumed_on_others_it_ends_in_the_same_bytes(folder: Path, stopped_on: str) -> None:
    assert differing(folder / "study-one" / HYPER, folder / f"room-stopped-{stopped_on}") == []


@pytest.mark.parametrize("other", ["deep-four", "deep-stopped-one", "deep-stopped-four"])
def test_a_deep_run_is_the_same_to_rounding(folder: Path, other: str) -> None:
    """Each device multiplies smaller stacks than one alone, so this is equality to rounding, seen in float64."""
    one, four = (load_state(folder / name) for name in ("deep-one", other))
    assert one.keys() == four.keys() and any(path.startswith(".learners.actor") for path in one)
    for path, array in one.items():
        assert array.dtype == four[path].dtype and array.shape == four[path].shape, path
        if path.startswith((".learners", ".bonus", ".replay")):
            assert difference(array, four[path]) < CLOSE, path


def test_two_deep_betas_do_differ(folder: Path) -> None:
    """Equality above would be empty if every run were the same run."""
    (weights, *_) = (array for path, array in load_state(folder / "deep-four").items() if ".actor.weights" in path)
    assert len({run.tobytes() for run in weights}) == 4


def test_devices_exchange_nothing_and_write_in_place(said: dict[str, Any]) -> None:
    assert said["on every device"] and said["by runs"]
    assert said["donated"] and said["in place"]
    assert said["collectives"] == []


def test_every_device_gets_as_many_runs_as_every_other(said: dict[str, Any]) -> None:
    assert said["eight"].endswith(" free, on 4 devices")
    assert said["six"].endswith(" free, on 3 of 4 devices (the most that can share 6 runs evenly)")
    assert said["six on"] == 3
    assert said["one"] == "on 1 of 4 devices (the most that can share 1 run evenly)"
    assert said["chosen device alone"], "jax.default_device is obeyed"
    shares = {(8, 4): 4, (6, 4): 3, (7, 4): 1, (2, 4): 2, (1, 4): 1, (9, 8): 3, (5, 1): 1}
    assert {given: share_evenly(*given) for given in shares} == shares


def test_one_device_is_left_alone() -> None:
    """No mesh, no placing, and the memory line says nothing of devices."""
    program = build_program(resolve(parse(SIX.split())))
    assert run_mesh(6) is None and place(program, None) is program and DeviceLoop(program, 0).program is program
    assert check_fits(program, 6).endswith(" free")


def load_state(folder: Path) -> dict[str, np.ndarray]:
    (file,) = folder.glob("checkpoint/step-*/state.safetensors")
    loaded: dict[str, np.ndarray] = load_file(file)
    return loaded


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """|a - b| / |a|, in the Euclidean norm."""
    size, off = (float(np.linalg.norm(np.asarray(x, np.float64))) for x in (one, one - other))
    return off / size if size > 0 else off


if __name__ == "__main__":
    import conftest  # noqa: F401  # strict arithmetic here too

    compute(Path(sys.argv[1]), "four", other="one")
    (Path(sys.argv[1]) / "said.json").write_text(json.dumps(look(Path(sys.argv[1]))))

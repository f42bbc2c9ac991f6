"""A study on a Ray cluster comes to the same bytes as in one process, also where workers are killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hyper_rl.errors import UserError
from hyper_rl.studies.group_lock import try_lock
from hyper_rl.studies.ray_runner import Cluster, run_study_on_ray
from hyper_rl.studies.ray_worker import Answer, Job, begin_study, compute_group
from hyper_rl.studies.runner import run_study
from hyper_rl.studies.study_folder import StudyFolder, open_study
from hyper_rl.training.trainer import Saving
from kill_and_resume import SHARED_PROGRAMS, differing
from test_several_devices import CLOSE, difference, load_state
from test_study_runner import NAMES, STUDY, TEXT

pytestmark = pytest.mark.xdist_group("study")  # one process, so that each program compiles once

DEEP = """
title = "a small pendulum"
task = "Pendulum"
preset = "paper"
betas = [0.1, 10.0]
seeds = 2
steps = 350
warmup = 50
eval_every = 100
eval_episodes = 1
td3 = { widths = [[32, 32]], batch_size = 32 }
disagreement = { widths = [[32, 32]] }

[[group]]
methods = ["hyper", "curiosity"]
"""
TWO_WORKERS = ["--ray", "local", "--ray-cpus", str(max(1, (os.cpu_count() or 1) // 2))]
PATIENCE_SECONDS = 300.0


# Without a cluster


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(**cluster: Any) -> None:
        run_study_on_ray(STUDY, "paper", tmp_path / "out", cluster=Cluster(**cluster), stream=io.StringIO())

    with pytest.raises(UserError, match=r"ray_cpus: got 0, must be a whole number >= 1"):
        run(address="local", cpus=0)
    with pytest.raises(UserError, match=r"ray_gpus: got -1"):
        run(address="local", gpus=-1)
    with pytest.raises(UserError, match=r"ray: got 'here', must be 'local', 'auto', HOST:PORT or ray://HOST:PORT"):
        run(address="here")
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with pytest.raises(UserError, match=rf"ray: no cluster at '{address}' \(.*refused\)"):
            run(address=address)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'hyper-rl\[ray\]'"):
        run(address="local")
    assert not (tmp_path / "out").exists()


def test_what_to_type_to_go_on() -> None:
    assert Cluster("auto").options == ["--ray", "auto"]
    assert Cluster("a:1", 4, 0).options == ["--ray", "a:1", "--ray-cpus", "4", "--ray-gpus", "0"]


def test_what_a_worker_answers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert begin_study(STUDY, "quick", out, beside=2, x64=False) is None
    folder, groups, begun = open_study(STUDY, "quick", out)
    assert begun
    refused = begin_study(STUDY, "paper", out, beside=2, x64=False)
    assert refused is not None and refused.startswith("scale: got 'custom'")
    job = Job(out, groups[0], Saving(), env_workers=0, x64=False)
    with try_lock(folder.group_lock(NAMES[0])):
        assert compute_group(job) == Answer("held", (f"process {os.getpid()} on {os.uname().nodename}",))
    computed = compute_group(job)
    assert computed.state == "computed" and computed.said[0].startswith("memory: ")
    assert compute_group(job) == Answer("done")
    config = folder.group(NAMES[0]).config
    config.write_text(config.read_text().replace('"p_end": 0.01', '"p_end": 0.5'))
    wrong = compute_group(job)
    assert wrong.state == "refused" and wrong.said[-1].startswith("p_end: ")


# With one


class Started:
    """`hyper-rl study` in a process of its own."""

    def __init__(self, scratch: Path, text: str, *options: str, out: str = "out", **environment: str) -> None:
        (scratch / "small.toml").write_text(text)
        self.out = scratch / out
        command = [sys.executable, "-m", "hyper_rl.cli.main", "study", str(scratch / "small.toml")]
        command += ["--out", str(self.out), "--no-figures", "--json", *options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **SHARED_PROGRAMS, "JAX_COMPILATION_CACHE_DIR": str(scratch / "cache"), **environment},
            start_new_session=True,
        )

    def wait_for_checkpoint(self) -> StudyFolder:
        begun = time.monotonic()
        while not any(self.out.glob("groups/*/checkpoint/step-*")):
            assert self.process.poll() is None and time.monotonic() - begun < PATIENCE_SECONDS
            time.sleep(0.005)
        return StudyFolder(self.out)

    def end(self) -> tuple[int, str, str]:
        said, shown = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, said, shown


@pytest.mark.long
def test_a_killed_workers_group_is_gone_on_with(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed" / "out"
    run_study(STUDY, "paper", undisturbed, stream=io.StringIO())
    started = Started(tmp_path, TEXT, *TWO_WORKERS, "--checkpoint-seconds", "1e-9")
    folder = started.wait_for_checkpoint()
    (name, *_) = (path.parent.parent.name for path in folder.path.glob("groups/*/checkpoint/step-*"))
    worker = int(folder.group_lock(name).read_text().split()[1])
    assert worker != started.process.pid
    os.kill(worker, signal.SIGKILL)
    code, said, shown = started.end()
    assert code == 0, shown
    assert sorted(json.loads(said)["groups_computed"]) == sorted(NAMES), "Ray's own words are not for standard output"
    assert f"{name}: resuming {folder.group(name).path} at step " in shown
    assert "24000/24000 steps" in shown and "raylet" not in shown
    assert differing(undisturbed, folder.path) == []


@pytest.mark.long
def test_ctrl_c_saves_on_the_workers_and_any_process_goes_on(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed" / "out"
    run_study(STUDY, "paper", undisturbed, stream=io.StringIO())
    started = Started(tmp_path, TEXT, *TWO_WORKERS, "--checkpoint-seconds", "1e-9")
    folder = started.wait_for_checkpoint()
    os.killpg(started.process.pid, signal.SIGINT)
    code, _, shown = started.end()
    assert code == 130
    (line,) = [line for line in shown.splitlines() if line.startswith("hyper-rl: ")]
    assert "groups done; continue with: hyper-rl study" in line and line.endswith(" ".join(TWO_WORKERS[:2]))
    assert any(folder.path.glob("groups/*/checkpoint/step-*"))
    run_study(STUDY, "paper", folder.path, stream=io.StringIO())
    assert differing(undisturbed, folder.path) == []


@pytest.mark.long
def test_a_deep_study_is_the_same_to_rounding_on_ray_and_on_four_devices(tmp_path: Path) -> None:
    ways: dict[str, tuple[list[str], dict[str, str]]] = {
        "one": ([], {}),
        "ray": (TWO_WORKERS, {}),
        "four": ([], {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}),
    }
    for way, (options, environment) in ways.items():
        code, _, shown = Started(tmp_path, DEEP, *options, out=way, JAX_ENABLE_X64="1", **environment).end()
        assert code == 0, shown
    for group in ("Pendulum-hyper", "Pendulum-curiosity"):
        states = {way: load_state(tmp_path / way / "groups" / group) for way in ways}
        counts = {way: json.loads((tmp_path / way / "groups" / group / "timing.json").read_text()) for way in ways}
        assert [counts[way]["devices"]["count"] for way in ways] == [1, 1, 4]
        learned = [path for path in states["one"] if path.startswith((".learners", ".bonus", ".replay"))]
        assert any(path.startswith(".learners.actor") for path in learned)
        for way in ("ray", "four"):
            worst = max(difference(states["one"][path], states[way][path]) for path in learned)
            print(group, way, worst)
            assert worst < CLOSE

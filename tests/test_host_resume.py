"""Runs of real environments: killed, stopped, extended or saved by an agent object, they go on to the same bytes.

And what is not the same environment any more is refused in one line, with the folder left as it was.
"""

from __future__ import annotations

import dataclasses
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import toy_envs
from hyper_rl import Exploit
from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.training.progress import Silent, show_progress
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.trainer import train
from kill_and_resume import SHARED_PROGRAMS, differing, run_undisturbed, start

pytestmark = pytest.mark.xdist_group("host-resume")

STAIRS = "toy/Steps-v0 --env-module toy_envs --method exploit --seeds 2 --horizon 12 --eval-every 100 --eval-episodes 3"
SMALL = "--eval-episodes 1 --td3.widths 8 8 --td3.batch-size 8"


def test_killed_with_its_workers_it_ends_in_the_bytes_of_one_process(tmp_path: Path) -> None:
    """`kill -9` for training and its workers alike; the reference knows no workers."""
    words = f"Pendulum-v1 --method exploit --seeds 2 --steps 800 --warmup 0 --eval-every 300 {SMALL}".split()
    compiled = {**SHARED_PROGRAMS, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled")}
    reference, out = tmp_path / "undisturbed", tmp_path / "killed"
    run_undisturbed(words, reference, compiled)
    moment = random.uniform(0.0, 0.1)
    with_workers = [*words, "--out", str(out), "--env-workers", "2"]
    killed = start(with_workers, out, compiled, kill_after=moment, late=True)
    assert killed.code == -signal.SIGKILL, killed.said
    finished = start(["--resume", str(out)], out, compiled)
    assert finished.code == 0 and finished.resumed_at, finished.said
    assert differing(reference, out) == [], f"killed {moment} s after the first checkpoint"


class StopsAt(Silent):
    def __init__(self, at: int) -> None:
        self.at = at

    def update(self, step: int, note: str) -> None:
        if step >= self.at:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """From now on the command is stopped at a step; None: not any more."""

    def arrange(at: int | None) -> None:
        @contextmanager
        def stopping(*args: object) -> Iterator[Silent]:
            assert at is not None
            yield StopsAt(at)

        monkeypatch.setattr("hyper_rl.cli.train.show_progress", show_progress if at is None else stopping)

    return arrange


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_changed_environment_is_found_out_and_the_folder_can_still_be_finished_and_extended(
    tmp_path: Path,
    stop_at: Callable[[int | None], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    stop_at(100)  # in the middle of an episode
    assert main(f"train {STAIRS} --steps 200 --out {out}".split()) == 130
    stop_at(None)
    before, made = contents(out), toy_envs.Steps.reset

    def reset(self: Any, **kwargs: Any) -> Any:
        floor, _ = made(self, **kwargs)
        self._floor = 5 if floor > 5 else 6
        return self._floor, {"cell": self._floor - 5}

    with monkeypatch.context() as changed:
        changed.setattr(toy_envs.Steps, "reset", reset)
        capsys.readouterr()
        assert main(f"train --resume {out}".split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "environment 0 (toy/Steps-v0), episode seed" in said and "at reset: observation[0] is" in said
    assert "before the stop. The environment does not repeat itself from its seed" in said
    assert contents(out) == before
    assert main(f"train --resume {out}".split()) == 0, "as it was, it goes on"
    assert main(f"train --resume {out} --extend-steps 330".split()) == 0
    _, config = RunFolder.open(out)
    assert (config.steps, config.schedule_steps) == (330, 200)
    train(config, tmp_path / "never stopped")
    assert differing(tmp_path / "never stopped", out) == []


@pytest.mark.parametrize(
    ("task", "more", "says"),
    [
        ("toy/Steps-v0 --env-module toy_envs", "--env.wrong 7", "task_options.wrong: got 7, but"),
        ("toy/Steps-v0 --env-module toy_envs", "--horizon 11", "host.horizon: got 11, but"),
        ("toy/Steps-v0 --env-module gone_envs", "", "env_module: cannot import 'gone_envs'"),
        ("Pendulum-v1", "", "a Gymnasium environment needs an optional package: pip install"),
    ],
)
def test_what_cannot_go_on_is_one_line_and_nothing_changes(
    task: str, more: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other settings; a module or a package that was there when the run began and is not any more."""
    words = task.replace("gone_envs", "toy_envs").split()
    config = resolve(parse([*words, "--method", "exploit", "--horizon", "12"]))
    assert config.host is not None
    if "gone_envs" in task:
        config = dataclasses.replace(config, host={**config.host, "module": "gone_envs"})
    out = RunFolder.create(tmp_path / "run", config).path
    before = contents(out)
    if task == "Pendulum-v1":
        monkeypatch.setitem(sys.modules, "gymnasium", None)
    capsys.readouterr()
    assert main(f"train --resume {out} {more}".split()) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]
    now = contents(out)
    # A curve may have been begun, of its heading alone.
    assert now[out / "config.json"] == before[out / "config.json"] and set(now) - set(before) <= {out / "curve.csv"}


def test_what_an_agent_object_saved_the_command_finishes(tmp_path: Path) -> None:
    """Saved in the middle of its budget, it becomes the agent that learned all of it at once."""
    settings: dict[str, Any] = {"horizon": 12, "eval_every": 100, "eval_episodes": 3, "seed": 5}
    whole, part = tmp_path / "whole", tmp_path / "part"
    agent = Exploit("toy/Steps-v0", **settings)
    agent.learn(200)
    agent.save(whole)
    agent.close()
    agent = Exploit("toy/Steps-v0", **settings)
    agent.learn(200, callback=lambda evaluation: evaluation.step < 100)
    assert agent.num_timesteps == 100
    agent.save(part)
    agent.close()
    for folder in (whole, part):
        assert main(["train", "--resume", str(folder)]) == 0
    assert set(differing(whole, part)) <= {"agent.json", "policy.safetensors"}, "all but what was saved at first"
    agents = [folder / "runs" / "0" / "agent" / "policy.safetensors" for folder in (whole, part)]
    assert agents[0].read_bytes() == agents[1].read_bytes() == (whole / "policy.safetensors").read_bytes()

"""The host loop: the same numbers as the device loop, exact resume, and what it says when an environment misbehaves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from hyper_rl.cli.main import main
from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import Config, build_program
from hyper_rl.envs.gym_tasks.jax_task import JaxTaskEnv
from hyper_rl.envs.host_env import EnvSource, TaskFailure
from hyper_rl.envs.maze import make_maze
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.envs.room import Room
from hyper_rl.settings import choose_environment
from hyper_rl.training.device_loop import DeviceLoop
from hyper_rl.training.host_loop import HostLoop
from hyper_rl.training.loop import Loop, Stored
from hyper_rl.types import precision
from toy_envs import Steps

pytestmark = pytest.mark.xdist_group("host-loop")

SMALL = "--td3.widths 16 16 --td3.batch-size 16 --disagreement.widths 16"
TASKS: dict[str, Any] = {
    "MediumMaze-Easy": lambda: make_maze("MediumMaze-Easy"),
    "Pendulum": Pendulum,
    "Room": Room,
}


def configuration(words: str) -> Config:
    config = resolve(parse(words.split()))
    return dataclasses.replace(config, precision=precision())


def both_loops(words: str, horizon: int) -> tuple[DeviceLoop, HostLoop]:
    """The same runs on the device and through a Gymnasium environment around the same JAX task."""
    config = configuration(f"{words} --horizon {horizon}")
    device = DeviceLoop(build_program(config), config.warmup)
    task = TASKS[config.task]
    source = EnvSource("wrapped", factory=lambda: JaxTaskEnv(task()), horizon=horizon)
    choice = choose_environment(config.task, source)
    on_host = dataclasses.replace(config, host=choice.host, task_options={})
    return device, HostLoop(build_program(on_host), source, config.warmup)


def difference(one: Any, other: Any) -> float:
    """The largest relative difference of any array, in the Euclidean norm."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        size, off = (float(np.linalg.norm(np.asarray(x, np.float64))) for x in (a, a - b))
        worst = max(worst, off / size if size > 0 else off)
    return worst


def learned(loop: Loop) -> Any:
    state = jax.device_get(loop.state)
    return state.learners, state.bonus, state.scales, state.replay


@pytest.mark.parametrize("task", ["MediumMaze-Easy", "Pendulum"])
def test_the_host_loop_computes_what_the_device_loop_computes(task: str) -> None:
    """500 steps, 400 of them with an update: transitions, learners and bonus to 1e-9 in float64."""
    with jax.enable_x64(True):
        device, host = both_loops(f"{task} --method hyper --steps 500 --warmup 100 --seeds 2 {SMALL}", 90)
        for loop in (device, host):
            loop.advance(0, 260)
            loop.advance(260, 500)
        assert difference(learned(device), learned(host)) < 1e-9
        one, other = jax.device_get(device.state), jax.device_get(host.state)
        assert np.array_equal(one.episode.number, other.episode.number) and one.episode.number.min() >= 5
        assert np.array_equal(one.episode.length, other.episode.length)
        assert difference(one.window, other.window) < 1e-9
        judged = [jax.device_get(loop.judge(1, 3)) for loop in (device, host)]
        assert difference(judged[0].total, judged[1].total) < 1e-9
        assert difference(judged[0].estimate, judged[1].estimate) < 1e-9


def test_tables_are_learned_bit_by_bit_as_on_the_device() -> None:
    device, host = both_loops("Room --method hyper --steps 1500 --beta 0.01 1", 100)
    for loop in (device, host):
        loop.advance(0, 1500)
    one, other = jax.device_get(device.state), jax.device_get(host.state)
    assert one.learners.q.tobytes() == other.learners.q.tobytes() and one.learners.q.any()
    assert np.array_equal(one.totals.visits, other.totals.visits)


def run(words: str) -> int:
    return main(words.split())


def same_files(one: Path, other: Path) -> None:
    for name in ("curve.csv", "result.json", "visits.csv", "runs/0/agent/policy.safetensors"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_workers_and_stops_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, in two workers, and stopped after every chunk and resumed: the same files."""
    words = "train Pendulum-v1 --method hyper --seeds 2 --steps 450 --warmup 60 --eval-every 150 --eval-episodes 2"
    words = f"{words} {SMALL}"
    assert run(f"{words} --out {tmp_path / 'whole'}") == 0
    assert run(f"{words} --out {tmp_path / 'workers'} --env-workers 2") == 0
    same_files(tmp_path / "whole", tmp_path / "workers")
    first = json.loads((tmp_path / "whole" / "result.json").read_text())["runs"][0]
    assert first["cells_visited"] is None and first["success"] == 0.0, "of a foreign task nobody knows what it reports"

    from hyper_rl.training import trainer

    chunks = iter([False, True] + [False, False, True] * 100)

    class Stops:
        def __enter__(self) -> Any:
            return lambda: next(chunks)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(trainer, "watch_for_stop", Stops)
    status, starts = run(f"{words} --out {tmp_path / 'cut'}"), 1
    while status == 130:
        status, starts = run(f"train --resume {tmp_path / 'cut'}"), starts + 1
    assert status == 0 and starts >= 3
    same_files(tmp_path / "whole", tmp_path / "cut")


class Restless(gymnasium.Wrapper):
    """Not deterministic given its seed: every reset of the process starts a little elsewhere."""

    resets = 0

    def reset(self, **kwargs: Any) -> Any:
        observation, info = self.env.reset(**kwargs)
        Restless.resets += 1
        return observation + np.float32(1e-3 * Restless.resets), info


def test_an_environment_that_does_not_repeat_itself_is_found_out() -> None:
    source = EnvSource("Restless", factory=lambda: Restless(gymnasium.make("Pendulum-v1")))
    choice = choose_environment("Restless", source)
    config = configuration(f"Pendulum --method exploit --steps 300 --warmup 50 {SMALL.split(' --dis')[0]}")
    config = dataclasses.replace(config, host=choice.host)
    loop = HostLoop(build_program(config), source, 50)
    loop.advance(0, 80)
    stored = loop.store(80)
    fresh = HostLoop(build_program(config), source, 50)
    with pytest.raises(TaskFailure, match=r"environment 0 \(Restless\), episode seed \d+, at reset: observation\[0\]"):
        fresh.restore(stored, 80)


class Bad(gymnasium.Wrapper):
    """Pendulum that goes wrong at one step of its life."""

    def __init__(self, how: str, at: int) -> None:
        super().__init__(gymnasium.make("Pendulum-v1"))
        self._how, self._at, self._steps = how, at, 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._steps == self._at:
            if self._how == "crash":
                raise RuntimeError("gearbox on fire")
            if self._how == "observation":
                observation = observation * np.float32("nan")
            if self._how == "reward":
                reward = float("inf")
            if self._how == "shape":
                observation = observation[:2]
        return observation, reward, terminated, truncated, info


class FailsOnce(Steps):
    """Fails at one step of the whole process, wherever that is taken, and is sound from then on."""

    left = 0

    def step(self, action: Any) -> Any:
        FailsOnce.left -= 1
        if FailsOnce.left == 0:
            raise RuntimeError("gearbox on fire")
        return super().step(action)


def test_a_failure_saves_as_ctrl_c_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While training and while judging, long before a checkpoint is due; the bytes are those of a run without it."""
    spec = gymnasium.envs.registration.EnvSpec("FailsOnce-v0", lambda **_: FailsOnce(), max_episode_steps=7)
    monkeypatch.setitem(gymnasium.registry, "FailsOnce-v0", spec)
    monkeypatch.setattr(FailsOnce, "left", 0)
    words = "train FailsOnce-v0 --method exploit --steps 150 --eval-every 100 --eval-episodes 5"
    assert run(f"{words} --out {tmp_path / 'whole'}") == 0
    out = tmp_path / "failed"
    for command, fails_at, saved_at in ((f"{words} --out {out}", 50, 49), (f"train --resume {out}", 60, 100)):
        FailsOnce.left = fails_at
        capsys.readouterr()
        assert run(command) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert "step raised RuntimeError: gearbox on fire" in error and f"as of step {saved_at} " in error
        assert f"hyper-rl evaluate {out};" in error and error.endswith(f"hyper-rl train --resume {out}")
    assert run(f"evaluate {out} --episodes 2 --json") == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["backend"] == "gymnasium" and judged["runs"][0]["success"] is not None
    assert run(f"train --resume {out}") == 0
    same_files(tmp_path / "whole", out)


class Strict(Steps):
    """Fails at one reset of the whole process, and whenever it is stepped after its end."""

    left = 6
    over = True

    def reset(self, **kwargs: Any) -> Any:
        Strict.left -= 1
        if Strict.left == 0:
            raise RuntimeError("gearbox on fire")
        self.over = False
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        assert not self.over, "stepped after its end"
        answer = super().step(action)
        self.over = answer[2]
        return answer


class Wandering(Strict):
    """Begins elsewhere after its failure, whatever its seed."""

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self._floor = 5 if Strict.left > 0 else 8
        return self._floor, {"cell": self._floor - 5}


STRICT = "Strict-v0 --method exploit --steps 150 --seeds 2 --horizon 12"


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Callable[..., HostLoop]:
    spec = gymnasium.envs.registration.EnvSpec("Strict-v0", lambda **_: Strict(), max_episode_steps=12)
    monkeypatch.setitem(gymnasium.registry, "Strict-v0", spec)
    monkeypatch.setattr(Strict, "left", 0)
    config = configuration(STRICT)

    def make(kind: Any = Strict, workers: int = 0) -> HostLoop:
        source = EnvSource("Strict", factory=kind, horizon=12)
        return HostLoop(build_program(config), source, config.warmup, workers=workers)

    return make


@pytest.mark.parametrize("workers", [0, 1])
def test_what_goes_on_after_a_failure_is_what_had_none(workers: int, strict: Callable[..., HostLoop]) -> None:
    """Between an episode's end and the next reset, where one environment has stepped and its run has not."""
    with closing(strict()) as whole, closing(strict(workers=workers)) as failed:
        whole.advance(0, 100)
        Strict.left = 0 if workers else 6  # a worker process has numbers of its own
        with pytest.raises(TaskFailure, match="at reset: reset raised RuntimeError: gearbox on fire"):
            failed.advance(0, 100)
        at = failed.position
        assert 0 < at < 100
        if not workers:  # an environment that cannot be changed for another leaves the run as it was
            Strict.left = 1
            with pytest.raises(TaskFailure, match="gearbox on fire"):
                failed.change_source(EnvSource("Other", factory=Strict, horizon=12), failed.program, at)
        stored = Stored(*jax.device_get(failed.store(at)))
        failed.advance(at, 100)
        assert difference(whole.state, failed.state) == 0.0
        for name, rows in whole.store(100).extra.items():
            assert np.array_equal(rows, failed.store(100).extra[name])
        failed.restore(stored, at)
        failed.advance(at, 100)
        assert difference(whole.state, failed.state) == 0.0


def test_what_cannot_be_repeated_after_a_failure_begins_anew(strict: Callable[..., HostLoop]) -> None:
    with closing(strict(Wandering)) as loop:
        Strict.left = 6
        with pytest.raises(TaskFailure, match="gearbox on fire"):
            loop.advance(0, 100)
        at, numbers = loop.position, np.asarray(loop.state.episode.number)
        with pytest.warns(UserWarning, match="does not repeat itself.*Another episode has begun"):
            loop.advance(at, at)
        assert np.array_equal(loop.state.episode.number, numbers + 1)
        loop.advance(at, 100)
        stored = loop.store(100).extra
        assert [stored[f"episode/{i}/observations"][-1] for i in range(2)] == np.asarray(loop.state.env).tolist()


@pytest.fixture
def bad_ids() -> Any:
    ids = []
    for how in ("crash", "observation", "reward", "shape"):
        gymnasium.register(f"hyper_test/{how}-v0", partial(Bad, how, 170), max_episode_steps=200)
        ids.append(f"hyper_test/{how}-v0")
    yield ids
    for name in ids:
        gymnasium.registry.pop(name)


def test_a_failure_names_environment_step_and_value_and_leaves_the_checkpoint(
    bad_ids: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--method exploit --steps 401 --warmup 400 --eval-every 400 --checkpoint-seconds 1e-9 --td3.widths 8 8"
    says = {
        "crash": "gearbox on fire",
        "observation": "observation[0] is nan",
        "reward": "reward is inf",
        "shape": "observation has shape (2,), declared (3,)",
    }
    for name in bad_ids:
        out = tmp_path / name.replace("/", "-")
        assert run(f"train {name} --out {out} {words}") == 2
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert name in error and "step 170" in error and "episode seed" in error, error
        assert says[name.split("/")[1].removesuffix("-v0")] in error
        checkpoints = list((out / "checkpoint").glob("step-*"))
        assert checkpoints, "the last checkpoint is still there"
        meta = json.loads((checkpoints[-1] / "checkpoint.json").read_text())
        assert meta["body"]["step"] < 170
        # And it is usable: a repaired environment (here: one whose life begins anew) goes on from it.
    assert run(f"train --resume {out}") in (0, 2)

"""Several environments in lock step: the same numbers in one process and in many, and no process left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hyper_rl.envs.host_env import EnvSource, TaskFailure
from hyper_rl.envs.host_pool import EnvPool, PoolStep, open_pool
from hyper_rl.envs.worker_pool import WorkerPool
from hyper_rl.errors import UserError
from toy_envs import LIMIT, Walk

pytestmark = pytest.mark.xdist_group("host-pool")

WALK = EnvSource("toy/Walk-v0", module="toy_envs")
STEPS = EnvSource("toy/Steps-v0", module="toy_envs")
COUNT = 5


def play(pool: EnvPool, steps: int) -> list[PoolStep]:
    """A fixed program: random actions, some episodes cut early, some environments resting."""
    rng = np.random.default_rng(3)
    pool.reset(range(pool.count), range(pool.count))
    out = []
    for k in range(steps):
        actions = rng.uniform(-0.2, 1.0, (pool.count, 2))
        last = rng.uniform(size=pool.count) < 0.05
        active = None if k % 3 else rng.uniform(size=pool.count) < 0.7
        out.append(pool.step(actions, last, 100 * k + np.arange(pool.count), active))
    return out


@pytest.fixture(scope="module")
def local() -> Iterator[EnvPool]:
    pool = open_pool(WALK, COUNT)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def workers() -> Iterator[EnvPool]:
    """Two processes, of two and of three environments."""
    pool = open_pool(WALK, COUNT, workers=2)
    yield pool
    pool.close()


def test_the_same_numbers_in_workers(local: EnvPool, workers: EnvPool) -> None:
    here, there = play(local, 120), play(workers, 120)
    for mine, theirs in zip(here, there, strict=True):
        for name, one, other in zip(PoolStep._fields, mine, theirs, strict=True):
            assert one.dtype == other.dtype, name
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert sum(step.terminated.sum() for step in here) > 3
    assert sum(step.truncated.sum() for step in here) > 3


def test_an_episode_that_ends_is_followed_by_the_one_asked_for(local: EnvPool) -> None:
    steps = play(local, 120)
    fresh = WALK.make()
    ended = 0
    for k, step in enumerate(steps):
        np.testing.assert_array_equal(step.reset, step.terminated | step.truncated)
        for i in range(COUNT):
            if step.reset[i]:
                ended += 1
                np.testing.assert_array_equal(step.observation[i], fresh.reset(100 * k + i))
                assert step.next_observation[i, 2] >= 1  # the number of steps taken: the true last observation
            else:
                np.testing.assert_array_equal(step.observation[i], step.next_observation[i])
    assert ended > 5


def test_our_own_limit_counts_as_truncated(local: EnvPool) -> None:
    local.reset(range(COUNT), range(COUNT))
    last = np.array([True, False, False, False, True])
    step = local.step(np.zeros((COUNT, 2)), last, np.arange(COUNT))
    np.testing.assert_array_equal(step.truncated, last)
    np.testing.assert_array_equal(step.reset, last)
    assert not step.terminated.any()


@pytest.mark.parametrize("kind", ["local", "workers"])
def test_those_at_rest_are_zeros_and_stay_where_they_are(kind: str, request: pytest.FixtureRequest) -> None:
    pool: EnvPool = request.getfixturevalue(kind)
    everybody = np.zeros(COUNT, bool)
    pool.reset(range(COUNT), range(COUNT))
    only = np.array([False, False, True, False, False])
    for _ in range(3):
        step = pool.step(np.ones((COUNT, 2)), everybody, np.zeros(COUNT), only)
        for values in step:
            assert not values[~only].any()
    step = pool.step(np.ones((COUNT, 2)), everybody, np.zeros(COUNT))
    np.testing.assert_array_equal(step.next_observation[:, 2], [1, 1, 4, 1, 1])  # steps taken


@pytest.mark.parametrize("kind", ["local", "workers"])
def test_some_are_reset_in_any_order(kind: str, request: pytest.FixtureRequest) -> None:
    pool: EnvPool = request.getfixturevalue(kind)
    pool.reset(range(COUNT), range(COUNT))
    big = 2**63 + 11  # beyond what a double can hold
    fresh = WALK.make()
    seen = pool.reset([4, 0, 2], [7, big, 9])
    np.testing.assert_array_equal(seen, np.stack([fresh.reset(seed) for seed in (7, big, 9)]))
    assert pool.reset([], []).shape == (0, 3)


def test_discrete_observations_cells_and_choices() -> None:
    pools = [open_pool(STEPS, 2, workers) for workers in (0, 1)]
    for pool in pools:
        first = pool.reset([0, 1], [0, 5])
        assert first.dtype == np.int64 and first.shape == (2,)
        np.testing.assert_array_equal(pool.cells, first)
        step = pool.step(np.array([1, 1], np.int32), np.zeros(2, bool), np.zeros(2, np.int64))
        np.testing.assert_array_equal(step.next_observation, first + 1)
        np.testing.assert_array_equal(step.cell, first + 1)
        assert step.next_observation.dtype == step.cell.dtype == np.int64
        pool.close()


def test_arrays_are_new_in_every_step(local: EnvPool) -> None:
    """JAX may still be reading the last ones."""
    one, two = play(local, 2)
    for before, after in zip(one, two, strict=True):
        assert not np.shares_memory(before, after)


# Faults


def make_third_bad(counter: list[int]) -> Walk:
    """Only the environment made third has a fault; a list is what a factory can count on in its own process."""
    counter.append(0)
    return Walk("crash" if len(counter) == 3 else None, at=2)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_names_the_environment(workers: int) -> None:
    pool = open_pool(EnvSource("toy", factory=partial(make_third_bad, []), horizon=LIMIT), 4, workers)
    pool.reset(range(4), [10, 11, 12, 13])
    none, seeds = np.zeros(4, bool), np.zeros(4, np.int64)
    pool.step(np.zeros((4, 2)), none, seeds)
    with pytest.raises(TaskFailure) as error:
        pool.step(np.zeros((4, 2)), none, seeds)
    failure = error.value
    assert str(failure).startswith("environment 2 (toy), episode seed 12, step 2: step raised KeyError: 'the motor")
    assert (failure.index, failure.seed, failure.step) == (2, 12, 2)
    assert "Traceback" in failure.__notes__[0]
    # The pipes are in order again: the environments can be reset and go on.
    assert pool.reset(range(4), range(4)).shape == (4, 3)
    pool.close()


def test_the_second_worker_counts_on_from_the_first() -> None:
    pool = open_pool(EnvSource("toy/Walk-v0", {"fault": "nan", "at": 0}, module="toy_envs"), 3, workers=2)
    with pytest.raises(TaskFailure, match=r"environment 2 \(toy/Walk-v0\), episode seed 5, at reset: observation\[2\]"):
        pool.reset([2], [5])
    pool.close()


def test_a_worker_that_is_killed_is_noticed() -> None:
    pool = open_pool(WALK, 2, workers=2)
    assert isinstance(pool, WorkerPool)
    pool.reset([0, 1], [0, 1])
    victim, other = pool._processes
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    says = "the worker process of environments 0 to 0 was ended by signal 9"
    with pytest.raises(TaskFailure, match=f"toy/Walk-v0: {says}"):
        for _ in range(2):
            pool.step(np.zeros((2, 2)), np.zeros(2, bool), np.zeros(2, np.int64))
    other.join(10)
    assert other.exitcode == 0
    with pytest.raises(RuntimeError, match="closed"):
        pool.step(np.zeros((2, 2)), np.zeros(2, bool), np.zeros(2, np.int64))
    pool.close()


@pytest.mark.parametrize("workers", [-1, 3, True, 1.0])
def test_a_wrong_number_of_workers(workers: Any) -> None:
    with pytest.raises(UserError, match=r"env_workers: got .*, must be a whole number between 0 .* and 2"):
        open_pool(WALK, 2, workers)


def test_a_factory_that_cannot_be_sent() -> None:
    lost = EnvSource("toy", factory=lambda: Walk(), horizon=9)
    with pytest.raises(UserError, match=r"factory: cannot be sent to a worker process.*env_workers 0"):
        open_pool(lost, 2, workers=1)
    open_pool(lost, 2).close()


def test_the_same_environment_twice_is_refused() -> None:
    one = Walk()
    with pytest.raises(UserError, match="the factory gave the same environment twice"):
        open_pool(EnvSource("toy", factory=lambda: one, horizon=9), 2)


def test_what_cannot_be_made_in_a_worker_is_the_same_error() -> None:
    wrong = EnvSource("toy/Wlak-v0", module="toy_envs")
    said = []
    for workers in (0, 1):
        with pytest.raises(UserError) as error:
            open_pool(wrong, 1, workers)
        said.append(str(error.value))
    assert said[0] == said[1] and "did you mean toy/Walk-v0" in said[0]


# Processes


def test_a_worker_does_not_import_jax() -> None:
    pool = open_pool(EnvSource("toy/Imports-v0", module="toy_envs"), 1, workers=1)
    pool.reset([0], [0])
    assert "jax" in sys.modules, "or the test would say nothing"
    assert pool.step(np.zeros(1, np.int64), np.zeros(1, bool), np.zeros(1, np.int64)).reward[0] == 0.0
    pool.close()


def test_closing_twice_and_forgetting() -> None:
    pool = open_pool(WALK, 2, workers=1)
    assert isinstance(pool, WorkerPool)
    process = pool._processes[0]
    pool.close()
    pool.close()
    assert process.exitcode == 0
    pool = open_pool(WALK, 1, workers=1)
    assert isinstance(pool, WorkerPool)
    process = pool._processes[0]
    del pool
    gc.collect()
    assert process.exitcode == 0
    here = open_pool(WALK, 2)
    here.close()
    here.close()
    with pytest.raises(RuntimeError, match="closed"):
        here.reset([0], [0])


PARENT = """
import os, signal, sys, time
import numpy as np
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_pool import open_pool

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started this may have switched it off

def main():
    pool = open_pool(EnvSource("toy/Walk-v0", module="toy_envs"), 2, workers=2)
    pool.reset([0, 1], [0, 1])
    try:
        print(*(process.pid for process in pool._processes), flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        step = pool.step(np.zeros((2, 2)), np.zeros(2, bool), np.zeros(2, np.int64))
        print("saved", step.next_observation[:, 2].tolist(), flush=True)
        time.sleep(60)

"""
GUARDED = 'if __name__ == "__main__":\n    main()\n'


def start(folder: Path, ending: str) -> subprocess.Popen[str]:
    script = folder / "parent.py"
    script.write_text(PARENT + ending)
    paths = [str(Path(__file__).parent), *(path for path in sys.path if path)]
    return subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a terminal gives one
    )


def gone(pid: int, within: float = 15.0) -> bool:
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
def test_ctrl_c_leaves_the_workers_alone_and_a_killed_parent_takes_them_along(tmp_path: Path) -> None:
    with start(tmp_path, GUARDED) as parent:
        assert parent.stdout is not None
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        os.killpg(parent.pid, signal.SIGINT)
        assert parent.stdout.readline() == "saved [1.0, 1.0]\n"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert all(gone(pid) for pid in workers)


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    with start(tmp_path, "main()\n") as parent:
        _, errors = parent.communicate(timeout=60)
    assert parent.returncode == 1
    assert 'a script that trains at its top level needs `if __name__ == "__main__":`' in errors.splitlines()[-1]

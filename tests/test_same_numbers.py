"""Same numbers, precisely: which runs must agree, and to how many digits.

Bit by bit where the arithmetic is the same; relative 1e-9 in float64 where XLA may tile a product differently (another
number of runs or of learners in one program), which is also the only way such runs may differ.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.training.trainer import train
from measuring import state_after as states_after

pytestmark = pytest.mark.xdist_group("same-numbers")  # one process, so that each program compiles once

CLOSE = 1e-9
STEPS, WARMUP = 350, 50  # 300 updates
ROOM_STEPS = 20_000
DEEP = f"--steps {STEPS} --warmup {WARMUP} --td3.widths 32 32 --td3.batch-size 32"
MODELS = "--disagreement.widths 32 32"
ROOM = f"Room --preset paper --steps {ROOM_STEPS}"
ROOM_BETAS, ROOM_SEEDS = ("0", "0.005", "10"), (3, 4)
ROOM_SWEEP = f"{ROOM} --method hyper --beta 0 0.005 10 --seeds 2 --seed 3"

# Pendulum pays at every step, so what the task learner is paid matters; the maze is the stiffer physics.
TASKS = ("Pendulum", pytest.param("MediumMaze-Easy", marks=pytest.mark.long))


state_after = cache(states_after)


def of_run(state: Any, run: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[run], state)


def of_role(learners: Any, role: int) -> Any:
    """One learner of all runs."""
    return jax.tree.map(lambda leaf: leaf[:, role], learners)


def assert_same_bits(one: Any, other: Any) -> None:
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree_util.tree_leaves_with_path(other), strict=True)
    for (path, a), (other_path, b) in pairs:
        assert path == other_path
        assert a.dtype == b.dtype and a.shape == b.shape, jax.tree_util.keystr(path)
        assert a.tobytes() == b.tobytes(), jax.tree_util.keystr(path)


def difference(one: Any, other: Any) -> float:
    """The largest relative difference of any array: |a - b| / |a|, in the Euclidean norm."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.shape == b.shape
        size, off = (float(np.linalg.norm(np.asarray(x, np.float64))) for x in (a, a - b))
        worst = max(worst, off / size if size > 0 else off)
    return worst


# beta = 0 under `paper`: the explorer is the plain learner.


def test_at_beta_zero_the_explorer_is_the_task_learner_bit_by_bit() -> None:
    state = state_after(f"Pendulum --preset paper --method hyper --beta 0 1 {DEEP} {MODELS}")
    plain, curious = of_run(state.learners, 0), of_run(state.learners, 1)
    task, explorer = (jax.tree.map(lambda leaf, role=role: leaf[role], plain) for role in (0, 1))
    assert_same_bits(task, explorer)
    start = state_after(f"Pendulum --preset paper --method hyper --beta 0 1 {DEEP} {MODELS} --steps 60 --capacity 350")
    assert difference(of_run(start.learners, 0), plain) > 0.01, "nothing was learned, so nothing was shown"
    assert not np.array_equal(curious.actor.weights[0][0], curious.actor.weights[0][1]), "beta = 1 must differ"


def test_at_beta_zero_the_tables_are_equal_bit_by_bit() -> None:
    tables = state_after(ROOM_SWEEP).learners.q
    assert tables[0, 0].any() and tables[0, 0].tobytes() == tables[0, 1].tobytes()
    assert not np.array_equal(tables[2, 0], tables[2, 1]), "beta = 0.005 must differ"


def test_hyper_at_beta_zero_is_exploit_in_the_room_bit_by_bit() -> None:
    hyper = of_run(state_after(ROOM_SWEEP), 0)
    exploit = of_run(state_after(f"{ROOM} --method exploit --beta 0 --seed 3"), 0)
    assert hyper.learners.q[0].tobytes() == exploit.learners.q[0].tobytes()
    assert_same_bits(hyper.totals, exploit.totals)


@pytest.mark.parametrize("task", TASKS)
def test_hyper_at_beta_zero_is_exploit_to_rounding(task: str) -> None:
    """Two stacked learners make other products than one, so this is equality to rounding, seen in float64."""
    hyper = state_after(f"{task} --preset paper --method hyper --beta 0 {DEEP} {MODELS}", x64=True)
    exploit = state_after(f"{task} --preset paper --method exploit --beta 0 {DEEP}", x64=True)
    assert difference(of_role(exploit.learners, 0), of_role(hyper.learners, 0)) < CLOSE
    assert difference(of_role(exploit.learners, 0), of_role(hyper.learners, 1)) < CLOSE
    assert difference(exploit.replay, hyper.replay) < CLOSE


# Decouple acts as Curiosity acts.


@pytest.mark.parametrize("beta", ["0.005", "1"])
def test_decouple_collects_what_curiosity_collects_in_the_room(beta: str) -> None:
    decouple = state_after(f"{ROOM} --method decouple --beta {beta}")
    curiosity = state_after(f"{ROOM} --method curiosity --beta {beta}")
    assert_same_bits(of_role(decouple.learners, 1), of_role(curiosity.learners, 0))
    for part in ("bonus", "env", "episode", "totals"):
        assert_same_bits(getattr(decouple, part), getattr(curiosity, part))


@pytest.mark.parametrize("task", TASKS)
def test_decouple_collects_what_curiosity_collects_to_rounding(task: str) -> None:
    decouple = state_after(f"{task} --preset paper --method decouple --beta 1 {DEEP} {MODELS}", x64=True)
    curiosity = state_after(f"{task} --preset paper --method curiosity --beta 1 {DEEP} {MODELS}", x64=True)
    assert difference(curiosity.replay, decouple.replay) < CLOSE
    assert difference(of_role(curiosity.learners, 0), of_role(decouple.learners, 1)) < CLOSE
    assert difference(curiosity.bonus, decouple.bonus) < CLOSE
    assert_same_bits(decouple.totals, curiosity.totals)


# A run does not feel its neighbours.


def test_a_run_of_a_room_sweep_equals_the_run_alone_bit_by_bit() -> None:
    sweep = state_after(ROOM_SWEEP)
    for run, (beta, seed) in enumerate((beta, seed) for beta in ROOM_BETAS for seed in ROOM_SEEDS):
        alone = state_after(f"{ROOM} --method hyper --beta {beta} --seed {seed}")
        assert_same_bits(of_run(sweep, run), of_run(alone, 0))


@pytest.mark.parametrize("task", TASKS)
def test_a_run_of_a_deep_sweep_equals_the_run_alone_to_rounding(task: str) -> None:
    words = f"{task} --preset paper --method hyper {DEEP} {MODELS}"
    sweep = state_after(f"{words} --beta 0.1 10 --seeds 2", x64=True)
    for run, (beta, seed) in enumerate((beta, seed) for beta in ("0.1", "10") for seed in (0, 1)):
        alone = of_run(state_after(f"{words} --beta {beta} --seed {seed}", x64=True), 0)
        mine = of_run(sweep, run)
        assert difference(alone.learners, mine.learners) < CLOSE
        assert difference(alone.bonus, mine.bonus) < CLOSE
        assert difference(alone.replay, mine.replay) < CLOSE


def test_seeds_and_betas_do_differ() -> None:
    """Equality above would be empty if every run were the same run."""
    tables = state_after(ROOM_SWEEP).learners.q
    assert len({tables[run, 1].tobytes() for run in range(6)}) == 6


# How a run is cut into chunks, or looked at, changes nothing.


@pytest.mark.parametrize("cuts", [(1, 2, 3), (4_999, 5_000, 5_001, 19_999), tuple(range(700, ROOM_STEPS, 700))])
def test_chunks_change_no_bit_in_the_room(cuts: tuple[int, ...]) -> None:
    assert_same_bits(state_after(ROOM_SWEEP), state_after(ROOM_SWEEP, cuts))


@pytest.mark.parametrize("cuts", [(1, 49, 50, 51, 52), (10, 120, 121, 349), tuple(range(7, STEPS, 7))])
def test_chunks_change_no_bit_of_a_deep_run(cuts: tuple[int, ...]) -> None:
    """Also across the end of warm-up at step 50, and across odd and even updates: the actor learns at every second."""
    words = f"Pendulum --preset paper --method hyper --beta 0 1 {DEEP} {MODELS}"
    assert_same_bits(state_after(words), state_after(words, cuts))


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(f"Pendulum --preset paper --method hyper --beta 0 1 {DEEP} {MODELS} --eval-episodes 2", id="deep"),
        pytest.param(f"{ROOM_SWEEP} --eval-episodes 2", id="tabular"),
    ],
)
def test_how_often_it_is_judged_changes_no_bit_of_what_is_learned(words: str, tmp_path: Path) -> None:
    """The whole final state, apart from the sums since the last evaluation, which are meant to differ."""
    states = []
    for name, every in (("seldom", 10_000), ("often", 90)):
        train(resolve(parse([*words.split(), "--eval-every", str(every)])), tmp_path / name)
        (file,) = (tmp_path / name / "checkpoint").glob("step-*/state.safetensors")
        states.append({path: array for path, array in load_file(file).items() if not path.startswith(".window")})
    seldom, often = states
    assert any(path.startswith(".learners") for path in seldom)
    assert_same_bits(seldom, often)
    for agent in sorted((tmp_path / "seldom").glob("runs/*/agent/*")):
        assert agent.read_bytes() == (tmp_path / "often" / agent.relative_to(tmp_path / "seldom")).read_bytes()

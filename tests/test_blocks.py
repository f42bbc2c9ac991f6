"""Steps compiled in blocks, as on a GPU: the same numbers as one by one, wherever a run is cut."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import resolve
from hyper_rl.config import build_program
from hyper_rl.learners.base import KnownPlace, only_if, period_of
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.normalised import Normalised
from hyper_rl.learners.td3 import TD3
from hyper_rl.training import device_loop
from hyper_rl.training.device_loop import advance, init_runs, next_cut, steps_in_block
from measuring import state_after

WARMUP, STEPS = 41, 71
WORDS = (
    f"Pendulum --method hyper --preset paper --warmup {WARMUP} --steps {STEPS} --td3.widths 16 16 --td3.batch-size 16"
    " --disagreement.widths 16 16 --disagreement.models 2"
)


def test_blocks_compute_what_single_steps_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 updates: whole blocks, cut where one begins, cut inside one, and cut before warm-up ends."""
    plain = state_after(WORDS, x64=True).learners
    in_blocks: list[tuple[int, int]] = []

    def advance_noted(*args: Any, block: int, **rest: Any) -> Any:
        if block == 2:
            in_blocks.append((int(args[2]), int(args[3])))
        return advance(*args, block=block, **rest)

    monkeypatch.setattr(device_loop, "steps_in_block", lambda program: period_of(program.learner))
    monkeypatch.setattr(device_loop, "advance", advance_noted)
    for cuts, blocks in (
        ((), [(41, 71)]),
        ((51,), [(41, 51), (51, 71)]),
        ((52,), [(41, 51), (53, 71)]),
        ((20, 42, 43), [(43, 71)]),
    ):
        in_blocks.clear()
        learned = state_after(WORDS, cuts, x64=True).learners
        assert in_blocks == blocks
        for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(learned), strict=True):
            np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-9, atol=1e-12)


def test_a_block_has_no_branch_left() -> None:
    program = build_program(resolve(parse(WORDS.split())))
    state = jax.eval_shape(init_runs, program)
    marks = (jnp.asarray(WARMUP), jnp.asarray(STEPS - 2), jnp.asarray(WARMUP))
    for block, branches in ((1, 1), (2, 0)):
        text = str(advance.jitted.trace(program, state, *marks, learn=True, block=block).jaxpr)
        assert text.count("cond[") == branches


@pytest.mark.parametrize(
    ("step", "block", "cut"),
    [(0, 2, 0), (7, 2, 7), (10, 2, 10), (11, 2, 12), (12, 2, 12), (13, 3, 13), (14, 3, 16), (15, 1, 15)],
)
def test_where_a_run_may_be_cut(step: int, block: int, cut: int) -> None:
    """With a warm-up of ten steps, blocks of two begin at 10, 12, 14."""
    assert next_cut(step, 10, block) == cut


def test_the_period_is_the_actors_delay() -> None:
    assert period_of(TD3()) == 2
    assert period_of(TD3(policy_delay=3)) == 3
    assert period_of(Normalised(TD3())) == 2
    assert period_of(DQN()) == 1
    program = build_program(resolve(parse(WORDS.split())))
    assert steps_in_block(program) == (2 if jax.default_backend() == "gpu" else 1)


def test_a_known_place_answers_for_what_divides_its_period() -> None:
    index = KnownPlace(jnp.asarray(7), place=1, period=2)
    assert index % 2 == 1
    assert isinstance(index % 3, jax.Array) and int(index % 3) == 1
    assert only_if(True, lambda x: x + 1, 1) == 2
    assert only_if(False, lambda x: x + 1, 1) == 1
    assert int(only_if(jnp.asarray(True), lambda x: x + 1, jnp.asarray(1))) == 2

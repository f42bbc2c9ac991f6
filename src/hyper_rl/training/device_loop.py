"""The compiled loop over steps, around the mapped step of all runs.

The loop index lives outside the run axis: warm-up, policy delay and replay position are the same number for every
run, so no branch turns into a select. The trip count is traced, so one compilation serves every chunk length, and the
state is donated, so the replay is written in place. How a run is cut into chunks never changes what it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from hyper_rl.training.evaluation import Judgement, evaluate
from hyper_rl.training.loop import Stored, pack, unpack
from hyper_rl.training.program import Program, RunState, init_run
from hyper_rl.training.step import step_run


@jax.jit
def init_runs(program: Program) -> RunState:
    """The state of all runs before the first step."""
    return jax.vmap(init_run)(program)


@partial(jax.jit, static_argnames=("learn",), donate_argnames=("state",))
def advance(
    program: Program,
    state: RunState,
    first: Int[Array, ""],
    last: Int[Array, ""],
    warmup: Int[Array, ""],
    *,
    learn: bool,
) -> RunState:
    """All runs from step `first` up to, but not including, step `last`."""
    step_all = jax.vmap(partial(step_run, learn=learn), in_axes=(0, 0, None, None))
    return jax.lax.fori_loop(first, last, lambda step, s: step_all(program, s, step, warmup), state)


def advance_to(program: Program, state: RunState, first: int, last: int, warmup: int) -> RunState:
    """`advance` with Python numbers, split where warm-up ends: before it nothing learns."""
    as_step = partial(jnp.asarray, dtype=jnp.int32)
    for begin, end, learn in ((first, min(last, warmup), False), (max(first, warmup), last, True)):
        if begin < end:
            state = advance(program, state, as_step(begin), as_step(end), as_step(warmup), learn=learn)
    return state


_evaluate = jax.jit(evaluate, static_argnames=("episodes",))


class DeviceLoop:
    """Runs of a JAX task."""

    def __init__(self, program: Program, warmup: int, state: RunState | None = None) -> None:
        self.program, self._warmup, self._state = program, warmup, state
        self.position = 0

    @property
    def state(self) -> RunState:
        if self._state is None:
            self._state = init_runs(self.program)
        return self._state

    def advance(self, first: int, last: int) -> None:
        self.position = first
        self._state = jax.block_until_ready(advance_to(self.program, self.state, first, last, self._warmup))
        self.position = last

    def judge(self, index: int, episodes: int) -> Judgement:
        return _evaluate(self.program, self.state, jnp.asarray(index, jnp.int32), episodes=episodes)

    def change(self, edit: Callable[[RunState], RunState]) -> None:
        self._state = edit(self.state)

    def adopt(self, program: Program, step: int) -> None:
        self._state = unpack(program, pack(self.program, self.state, step))
        self.program = program

    def store(self, step: int) -> Stored:
        return Stored(pack(self.program, self.state, step), {})

    def template(self, step: int) -> Any:
        shapes = jax.eval_shape(init_runs, self.program)
        return jax.eval_shape(lambda s: pack(self.program, s, step), shapes)

    def restore(self, stored: Stored, step: int) -> None:
        self._state = unpack(self.program, stored.tree)

    def close(self) -> None:
        pass

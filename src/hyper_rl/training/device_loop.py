"""The compiled loop over steps, around the mapped step of all runs.

The loop index lives outside the run axis: warm-up, policy delay and replay position are the same number for every
run, so no branch turns into a select. The trip count is traced, so one compilation serves every chunk length, and the
state is donated, so the replay is written in place. How a run is cut into chunks never changes what it computes.

On a GPU the host would have to look at every branch before it can go on, which costs more than many of the kernels
between. So steps are compiled there in blocks of the learner's period (two for TD3, whose actor moves at every second
update), in which each update knows whether it is the actor's turn: no branch is left. The steps of a block that is cut
in two are computed one by one, to the same numbers but for rounding; `DeviceLoop.cut` says where no block is cut.

Where there are several devices, each of them does all this for its share of the runs (`sharding`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int

from hyper_rl import backend
from hyper_rl.learners.base import period_of
from hyper_rl.methods.policies import Role
from hyper_rl.training.evaluation import Judgement, evaluate
from hyper_rl.training.loop import Stored, carry_over, pack, unpack
from hyper_rl.training.program import Program, RunState, init_run
from hyper_rl.training.sharding import SHARDED, SHARED, over_runs, place, run_mesh
from hyper_rl.training.step import step_run

LONGEST_BLOCK = 4
"""Compiling takes as many times longer as a block has steps."""


@partial(jax.jit, static_argnames=("mesh",))
def init_runs(program: Program, *, mesh: Mesh | None = None) -> RunState:
    """The state of all runs before the first step."""
    return over_runs(jax.vmap(init_run), mesh, (SHARDED,))(program)


@partial(backend.DeviceJit, static_argnames=("learn", "mesh", "block"), donate_argnames=("state",))
def advance(
    program: Program,
    state: RunState,
    first: Int[Array, ""],
    last: Int[Array, ""],
    warmup: Int[Array, ""],
    *,
    learn: bool,
    mesh: Mesh | None = None,
    block: int = 1,
) -> RunState:
    """All runs from step `first` up to, but not including, step `last`.

    With `block` > 1 both are a whole number of blocks after warm-up.
    """

    def advance_share(
        program: Program, state: RunState, first: Int[Array, ""], last: Int[Array, ""], warmup: Int[Array, ""]
    ) -> RunState:
        def step_all(step: Int[Array, ""], state: RunState, place: int | None = None) -> RunState:
            step_one = partial(step_run, learn=learn, place=place)
            return jax.vmap(step_one, in_axes=(0, 0, None, None))(program, state, step, warmup)

        def whole_block(number: Int[Array, ""], state: RunState) -> RunState:
            for k in range(block):
                state = step_all(first + number * block + k, state, (k + 1) % block)
            return state

        if block == 1:
            return jax.lax.fori_loop(first, last, step_all, state)
        return jax.lax.fori_loop(0, (last - first) // block, whole_block, state)

    specs = (SHARDED, SHARDED, SHARED, SHARED, SHARED)
    return over_runs(advance_share, mesh, specs)(program, state, first, last, warmup)


def advance_to(
    program: Program, state: RunState, first: int, last: int, warmup: int, *, mesh: Mesh | None = None
) -> RunState:
    """`advance` with Python numbers, split where warm-up ends: before it nothing learns."""
    as_step, block = partial(jnp.asarray, dtype=jnp.int32), steps_in_block(program)
    learning = max(first, warmup)
    whole_from = min(next_cut(learning, warmup, block), max(last, learning))
    whole_to = max(whole_from, last - (last - warmup) % block)
    parts = ((first, min(last, warmup), False, 1), (learning, whole_from, True, 1), (whole_from, whole_to, True, block))
    for begin, end, learn, size in (*parts, (whole_to, last, True, 1)):
        if begin < end:
            marks = (as_step(begin), as_step(end), as_step(warmup))
            state = advance(program, state, *marks, learn=learn, mesh=mesh, block=size)
    return state


def steps_in_block(program: Program) -> int:
    """How many steps are compiled together: one on a CPU, where a branch costs nothing and longer code does."""
    if not backend.on_gpu() or (program.train_every, program.gradient_steps) != (1, 1):
        return 1
    period = period_of(program.learner)
    return period if period <= LONGEST_BLOCK else 1


def next_cut(step: int, warmup: int, block: int) -> int:
    """The first step from `step` on that begins a block."""
    return step if step <= warmup else step + (warmup - step) % block


@partial(jax.jit, static_argnames=("episodes", "role", "mesh"))
def _evaluate(
    program: Program, state: RunState, index: Int[Array, ""], *, episodes: int, role: Role | None, mesh: Mesh | None
) -> Judgement:
    judge = partial(evaluate, episodes=episodes, role=role)
    return over_runs(judge, mesh, (SHARDED, SHARDED, SHARED))(program, state, index)


class DeviceLoop:
    """Runs of a JAX task."""

    def __init__(self, program: Program, warmup: int, state: RunState | None = None) -> None:
        self._mesh = run_mesh(program.budget.shape[0])
        self.program, self._warmup = place(program, self._mesh), warmup
        self._state = None if state is None else place(state, self._mesh)
        self.position = 0

    @property
    def state(self) -> RunState:
        if self._state is None:
            self._state = init_runs(self.program, mesh=self._mesh)
        return self._state

    def advance(self, first: int, last: int) -> None:
        self.position = first
        state = advance_to(self.program, self.state, first, last, self._warmup, mesh=self._mesh)
        self._state = jax.block_until_ready(state)
        self.position = last

    def cut(self, step: int) -> int:
        return next_cut(step, self._warmup, steps_in_block(self.program))

    def judge(self, index: int, episodes: int, role: Role | None = None) -> Judgement:
        number = jnp.asarray(index, jnp.int32)
        return _evaluate(self.program, self.state, number, episodes=episodes, role=role, mesh=self._mesh)

    def change(self, edit: Callable[[RunState], RunState]) -> None:
        self._state = place(edit(self.state), self._mesh)

    def adopt(self, program: Program, step: int) -> None:
        self._state = place(carry_over(self.program, program, self.state, step), self._mesh)
        self.program = place(program, self._mesh)

    def store(self, step: int) -> Stored:
        return Stored(pack(self.program, self.state, step), {})

    def template(self, step: int) -> Any:
        shapes = jax.eval_shape(init_runs, self.program)
        return jax.eval_shape(lambda s: pack(self.program, s, step), shapes)

    def restore(self, stored: Stored, step: int) -> None:
        # Placed before it is unpacked too: all of it need not fit on the first device.
        self._state = place(unpack(self.program, place(stored.tree, self._mesh)), self._mesh)

    def close(self) -> None:
        pass

"""The compiled loop over steps, around the mapped step of all runs.

The loop index lives outside the run axis: warm-up, policy delay and replay position are the same number for every
run, so no branch turns into a select. The trip count is traced, so one compilation serves every chunk length, and the
state is donated, so the replay is written in place. How a run is cut into chunks never changes what it computes.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from hyper_rl.training.program import Program, RunState, init_run, step_run


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

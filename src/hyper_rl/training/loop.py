"""What a training loop is: it owns the state of the runs, moves it on and has it judged.

`DeviceLoop` does so for JAX tasks inside one compiled program, `HostLoop` around real Gymnasium environments. Whoever
drives a loop (the trainer, an agent object) need not know which it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hyper_rl.errors import require
from hyper_rl.methods.policies import Role
from hyper_rl.training.evaluation import Judgement
from hyper_rl.training.program import Program, RunState

Extra = Mapping[str, np.ndarray]
"""Arrays of a checkpoint whose shapes nobody knows beforehand, by name."""


class Stored(NamedTuple):
    """What a checkpoint holds of a loop."""

    tree: Any
    extra: Extra


class Loop(Protocol):
    @property
    def program(self) -> Program: ...

    @property
    def state(self) -> RunState:
        """All runs, as they stand."""
        ...

    @property
    def position(self) -> int:
        """Steps done by the last `advance`, also when it was cut short by an exception."""
        ...

    def advance(self, first: int, last: int) -> None:
        """All runs from step `first` up to, but not including, step `last`; finished when it returns."""
        ...

    def cut(self, step: int) -> int:
        """The first step from `step` on where stopping and going on later leaves no trace, not even in the last bit."""
        ...

    def judge(self, index: int, episodes: int, role: Role | None = None) -> Judgement:
        """Evaluation number `index`, of the policies that the method judges or of those of `role`.

        It changes nothing.
        """
        ...

    def change(self, edit: Callable[[RunState], RunState]) -> None:
        """Replace the state, between steps."""
        ...

    def adopt(self, program: Program, step: int) -> None:
        """Go on under a program that differs in its numbers and in the size of its replay only.

        That may grow as long as nothing in it has been overwritten.
        """
        ...

    def store(self, step: int) -> Stored: ...

    def template(self, step: int) -> Any:
        """The shapes of `store(step).tree`."""
        ...

    def restore(self, stored: Stored, step: int) -> None:
        """Go on from what was stored."""
        ...

    def close(self) -> None: ...


def pack(program: Program, state: RunState, step: int) -> RunState:
    """The state as it is stored: the replay without its unused end."""
    if state.replay is None:
        return state
    filled = min(step, program.capacity)
    return state._replace(replay=jax.tree.map(lambda ring: ring[:, :filled], state.replay))


def unpack(program: Program, stored: RunState) -> RunState:
    state = jax.tree.map(jnp.asarray, stored)
    if state.replay is None:
        return state

    def whole(ring: Array) -> Array:
        if ring.shape[1] == program.capacity:  # a copy of it may not fit into the memory
            return ring
        return jnp.pad(ring, ((0, 0), (0, program.capacity - ring.shape[1]), (0, 0)))

    return state._replace(replay=jax.tree.map(whole, state.replay))


def carry_over(old: Program, new: Program, state: RunState, step: int) -> RunState:
    """The state under a program whose replay may be larger.

    Once the ring has wrapped, its size is part of what it holds: in a larger one the rows between the old size and
    `step` would count as filled, and nothing was ever written there.
    """
    if state.replay is not None:
        whole = step <= old.capacity and new.capacity >= old.capacity
        allowed = f"{old.capacity} as before: {step} transitions have gone into the replay"
        require(whole or new.capacity == old.capacity, "capacity", new.capacity, allowed)
    return unpack(new, pack(old, state, step))

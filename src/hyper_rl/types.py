"""The shapes that travel between rooms: one transition, and pytrees stacked over the run axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from hyper_rl.errors import UserError

PyTree: TypeAlias = Any
T = TypeVar("T")


class Transition(NamedTuple):
    """(s, a, r, s', terminated), unbatched or with one leading batch axis.

    Actions are in the learner's units: [-1, 1] for continuous ones, a number for discrete ones. A time limit is not
    a termination, so it is not here at all: the next observation is the true one and learners bootstrap through it.
    """

    observation: Shaped[Array, "*batch *obs"]
    action: Shaped[Array, "*batch *act"]
    reward: Float[Array, "*batch"]
    next_observation: Shaped[Array, "*batch *obs"]
    terminated: Bool[Array, "*batch"]
    option: Int[Array, "*batch"] | None = None
    """The option that was acting, for the method that has options; otherwise it is not there, nor in the replay."""


def stack_runs(items: Sequence[T]) -> T:
    """Stack R configured modules into one whose leaves carry a leading run axis.

    What differs between runs must be an array leaf; what shapes the program (widths, batch size, ...) is static and
    must agree, because the R runs become one compiled program.
    """
    first: Any = jax.tree.structure(items[0])
    for other in items[1:]:
        if jax.tree.structure(other) != first:
            raise UserError(f"runs of one program must share every static setting; got {items[0]} and {other}")
    return jax.tree.map(lambda *leaves: jnp.stack([_as_leaf(leaf) for leaf in leaves]), *items)


def _as_leaf(value: Any) -> Array:
    if isinstance(value, bool):
        return jnp.asarray(value)
    if isinstance(value, int):
        return jnp.asarray(value, dtype=jnp.int32)
    if isinstance(value, float):
        return jnp.asarray(value, dtype=float)
    return jnp.asarray(value)


def take_run(tree: T, index: int) -> T:
    """Run `index` alone, without the run axis."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def tree_bytes(tree: PyTree) -> int:
    """Bytes of all array leaves; works on shapes (`jax.eval_shape`) too."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype"))


def precision() -> str:
    """The number format JAX computes in now: float32, or float64 where x64 is enabled."""
    return str(jnp.zeros((), float).dtype)

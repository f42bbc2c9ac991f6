"""The tabular bonus of UCB-Q: b(s, a) = 1 / sqrt(n(s, a)), n counted after the visit.

Continuous observations are counted by cell: `bins` equal cells per dimension between `low` and `high`; what lies
outside belongs to the outermost cell. The table has bins^dimensions rows, so this is for a handful of dimensions.
Continuous actions, which are in [-1, 1] for every task, fall into `action_bins` cells per dimension. With the default
of one cell all actions count alike and the bonus is 1 / sqrt(n(s)).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError, require, require_count, require_finite
from hyper_rl.observations import refuse_images
from hyper_rl.types import Transition

LARGEST_TABLE = 10_000_000
"""Cells of one run's table: 40 MB. Beyond it every visit is to a new cell anyway."""


class Counts(eqx.Module):
    """State-action visit counts; continuous values need cells to be counted in."""

    bins: int = eqx.field(static=True, default=0)
    """Cells per dimension of a continuous observation; 0: the states are numbered already."""
    low: tuple[float, ...] = eqx.field(static=True, default=())
    """Lower end of the cells, one number per dimension."""
    high: tuple[float, ...] = eqx.field(static=True, default=())
    """Upper end of the cells, one number per dimension."""
    action_bins: int = eqx.field(static=True, default=1)
    """Cells per dimension of a continuous action; 1: count states alone."""

    def __check_init__(self) -> None:
        require_count("counts.bins", self.bins, low=0)
        require_count("counts.action_bins", self.action_bins)
        for name, ends in (("low", self.low), ("high", self.high)):
            for end in ends:
                require_finite(f"counts.{name}", end)
            require(self.bins > 0 or not ends, f"counts.{name}", ends, "left out without counts.bins")
        require(len(self.low) == len(self.high), "counts.high", self.high, "as many numbers as counts.low")
        ordered = all(low < high for low, high in zip(self.low, self.high, strict=True))
        require(ordered, "counts.high", self.high, f"above counts.low, which is {self.low}")

    @property
    def largest(self) -> float:
        return 1.0

    def check(self, spec: TaskSpec) -> None:
        refuse_images(spec, "bonus", "counts")
        if isinstance(spec.observation, Box):
            size = spec.observation.size
            if self.bins == 0:
                raise UserError(
                    f"bonus: 'counts' counts numbered states, and {spec.name} has continuous observations; give cells "
                    f"with counts.bins, counts.low and counts.high ({size} numbers each), or use 'disagreement', "
                    "'rnd' or 'icm'"
                )
            require(len(self.low) == size, "counts.low", self.low, f"{size} numbers for {spec.name}")
        else:
            require(self.bins == 0, "counts.bins", self.bins, f"0 for {spec.name}, whose states are numbered already")
        if isinstance(spec.action, Discrete):
            numbered = f"1 for {spec.name}, whose actions are numbered already"
            require(self.action_bins == 1, "counts.action_bins", self.action_bins, numbered)
        states, actions = self._table(spec)
        if states * actions > LARGEST_TABLE:
            table = f"a table of {states} states x {actions} actions for {spec.name}, must be one of at most"
            cells = f"{LARGEST_TABLE} cells"
            if self.bins > 0:
                raise UserError(f"counts.bins: got {self.bins}, which makes {table} {cells}; 'rnd' needs no cells")
            vectors = "let the environment observe vectors (Box) that tell its states apart, instead of their numbers"
            raise UserError(f"bonus: 'counts' makes {table} {cells}; {vectors}")

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> Int[Array, "states actions"]:
        return jnp.zeros(self._table(spec), jnp.int32)

    def observe(self, state: Int[Array, "states actions"], newest: Transition) -> Int[Array, "states actions"]:
        return state.at[self._place(newest)].add(1)

    def reward(self, state: Int[Array, "states actions"], batch: Transition) -> Float[Array, " batch"]:
        visits = state[self._place(batch)]
        return jax.lax.rsqrt(jnp.maximum(visits, 1).astype(float))

    def learn(
        self, state: Int[Array, "states actions"], batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], Int[Array, "states actions"], Float[Array, ""]]:
        return self.reward(state, batch), state, jnp.zeros((), float)

    def _table(self, spec: TaskSpec) -> tuple[int, int]:
        """Rows and columns."""
        observation, action = spec.observation, spec.action
        states = observation.n if isinstance(observation, Discrete) else self.bins**observation.size
        actions = action.n if isinstance(action, Discrete) else self.action_bins**action.size
        return states, actions

    def _place(self, visit: Transition) -> tuple[Int[Array, "*batch"], Int[Array, "*batch"]]:
        """Row and column of one transition or of each in a batch."""
        state, action = visit.observation, visit.action
        if self.bins > 0:
            state = cell(state.astype(float), self.low, self.high, self.bins)
        if jnp.issubdtype(action.dtype, jnp.floating):
            size = action.shape[-1]
            action = cell(action, (-1.0,) * size, (1.0,) * size, self.action_bins)
        return state, action


def cell(
    values: Float[Array, "*batch n"], low: tuple[float, ...], high: tuple[float, ...], bins: int
) -> Int[Array, "*batch"]:
    """Number of the cell that each vector lies in, the last dimension varying fastest."""
    number: Shaped[Array, "*batch"] = jnp.zeros(values.shape[:-1], jnp.int32)
    for i, (start, end) in enumerate(zip(low, high, strict=True)):
        along = jnp.floor((values[..., i] - start) * (bins / (end - start)))
        number = number * bins + jnp.clip(along, 0.0, bins - 1.0).astype(jnp.int32)
    return number

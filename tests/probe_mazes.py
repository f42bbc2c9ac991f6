"""One small maze in two forms, for tests of a learner with a bonus: too far for luck, near enough to be learned fast.

An L of two corridors along the lower and the right side of a square. An episode begins at the left end, the goal is at
the upper end, and the reward is 1 there and 0 elsewhere. What lies inside the L is rock: nobody is ever there, so it is
known without looking which transitions no run can have made.

    . . . . . G
    . . . . . o
    . . . . . o        o  corridor, . rock, S start, G goal
    . . . . . o
    . . . . . o
    S o o o o o
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete, StepResult, TaskSpec
from hyper_rl.envs.room import DOWN, LEFT, RIGHT, UP
from hyper_rl.types import Transition

SIDE = 6
"""Cells along a side."""
STRIDE = 0.25
"""Longest move of the point along one axis; the square is [-1, 1] x [-1, 1]."""
CORRIDOR = 0.5
"""Width of the point's corridors."""


class PointMaze(eqx.Module):
    """Continuous: a point that moves by the action, without inertia. Ten moves at least; seen is its place."""

    horizon: int = 30

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec("ProbeMaze", Box(2, -1.0, 1.0), Box(2, -1.0, 1.0), SIDE * SIDE, (SIDE, SIDE))

    def reset(self, key: PRNGKeyArray) -> Float[Array, "2"]:
        return jax.random.uniform(key, (2,), minval=-1.0, maxval=CORRIDOR - 1.0, dtype=float)

    def step(self, state: Float[Array, "2"], action: Float[Array, "2"], key: PRNGKeyArray) -> StepResult:
        moved = jnp.clip(state + STRIDE * action, -1.0, 1.0)
        # Along x first, then along y, each only where it does not lead into the rock: walls are slid along.
        x = jnp.where(self._open(moved[0], state[1]), moved[0], state[0])
        y = jnp.where(self._open(x, moved[1]), moved[1], state[1])
        at_goal = y > 1.0 - CORRIDOR
        return StepResult(jnp.stack([x, y]), at_goal.astype(float), at_goal, at_goal)

    def _open(self, x: Float[Array, ""], y: Float[Array, ""]) -> Bool[Array, ""]:
        return (y < CORRIDOR - 1.0) | (x > 1.0 - CORRIDOR)

    def observe(self, state: Float[Array, "2"]) -> Float[Array, "2"]:
        return state

    def cell(self, state: Float[Array, "2"]) -> Int[Array, ""]:
        along = jnp.clip(jnp.floor((state + 1.0) * (SIDE / 2)), 0.0, SIDE - 1.0).astype(jnp.int32)
        return (SIDE - 1 - along[1]) * SIDE + along[0]

    def never_made(self, key: PRNGKeyArray, count: int) -> Transition:
        """Moves through the rock, away from the corridors, as they would be if the square were free."""
        place_key, action_key = jax.random.split(key)
        offset = jax.random.uniform(place_key, (count, 2), maxval=1.0, dtype=float)
        # The upper left quarter of the square: x in [-1, 0], y in [0, 1].
        places = offset + jnp.asarray([[-1.0, 0.0]], float)
        actions = jax.random.uniform(action_key, (count, 2), minval=-1.0, dtype=float)
        after = jnp.clip(places + STRIDE * actions, -1.0, 1.0)
        return Transition(places, actions, jnp.zeros((count,), float), after, jnp.zeros((count,), bool))


class GridMaze(eqx.Module):
    """Discrete: corridors one cell wide, four moves, ten of which lead to the goal; seen is the cell's number."""

    horizon: int = 24

    @property
    def spec(self) -> TaskSpec:
        cells = SIDE * SIDE
        return TaskSpec("ProbeMaze-Discrete", Discrete(cells), Discrete(4), cells, (SIDE, SIDE))

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        return jnp.asarray((SIDE - 1) * SIDE, jnp.int32)

    def step(self, state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray) -> StepResult:
        moved = neighbour(state, action)
        in_corridor = (moved // SIDE == SIDE - 1) | (moved % SIDE == SIDE - 1)
        after = jnp.where(in_corridor, moved, state)
        at_goal = after == SIDE - 1
        return StepResult(after, at_goal.astype(float), at_goal, at_goal)

    def observe(self, state: Int[Array, ""]) -> Int[Array, ""]:
        return state

    def cell(self, state: Int[Array, ""]) -> Int[Array, ""]:
        return state

    def never_made(self, key: PRNGKeyArray, count: int) -> Transition:
        """Moves from one rock cell to another."""
        places_key, action_key = jax.random.split(key)
        rows, columns = jax.random.randint(places_key, (2, count), 0, SIDE - 1, dtype=jnp.int32)
        places = rows * SIDE + columns
        actions = jax.random.randint(action_key, (count,), 0, 4, dtype=jnp.int32)
        after = neighbour(places, actions)
        inside = (after // SIDE < SIDE - 1) & (after % SIDE < SIDE - 1)
        nothing = jnp.zeros((count,), float)
        return Transition(places, actions, nothing, jnp.where(inside, after, places), jnp.zeros((count,), bool))


def neighbour(cell: Shaped[Array, "..."], action: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """The cell that a move leads to in a square without rock."""
    row = cell // SIDE + (action == DOWN).astype(jnp.int32) - (action == UP).astype(jnp.int32)
    column = cell % SIDE + (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
    return jnp.clip(row, 0, SIDE - 1) * SIDE + jnp.clip(column, 0, SIDE - 1)

"""The paper's warm-up task (section 3): a 30x30 room with a near small goal and a far large one.

Setting A of the project's tabular measurements: start (15, 15), optimal goal (29, 29) in the lower right corner,
sub-goal (17, 17), H = 100. Moves are deterministic, walls mean staying put, either goal ends the episode.
"""

from __future__ import annotations

from numbers import Integral

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Discrete, StepResult, TaskSpec
from hyper_rl.errors import require, require_count, require_finite

UP, RIGHT, DOWN, LEFT = range(4)


class Room(eqx.Module):
    """States are cells numbered row by row; the state is its own observation."""

    goal_reward: float = 1.0
    """R, paid at the goal in the lower right corner."""
    subgoal_reward: float = 0.1
    """r, paid at the sub-goal near the centre."""
    horizon: int = 100
    """Episode limit H."""
    size: int = eqx.field(static=True, default=30)
    """Rows and columns."""
    subgoal: tuple[int, int] = eqx.field(static=True, default=(17, 17))
    """Row and column of the sub-goal."""

    def __check_init__(self) -> None:
        require_count("room.size", self.size, low=3)
        require_count("room.horizon", self.horizon)
        require_finite("room.goal_reward", self.goal_reward)
        require_finite("room.subgoal_reward", self.subgoal_reward)
        two = isinstance(self.subgoal, tuple) and len(self.subgoal) == 2
        inside = two and all(isinstance(x, Integral) and 0 <= x < self.size for x in self.subgoal)
        free = self.subgoal not in ((self.size // 2, self.size // 2), (self.size - 1, self.size - 1))
        allowed = "a cell of the room (two whole numbers), neither the start nor the goal"
        require(inside and free, "room.subgoal", self.subgoal, allowed)

    @property
    def spec(self) -> TaskSpec:
        cells = self.size * self.size
        return TaskSpec("Room", Discrete(cells), Discrete(4), cells, (self.size, self.size))

    @property
    def start_cell(self) -> int:
        return (self.size // 2) * self.size + self.size // 2

    @property
    def goal_cell(self) -> int:
        return self.size * self.size - 1

    @property
    def subgoal_cell(self) -> int:
        return self.subgoal[0] * self.size + self.subgoal[1]

    def reset(self, key: PRNGKeyArray) -> Int[Array, ""]:
        return jnp.asarray(self.start_cell, jnp.int32)

    def step(self, state: Int[Array, ""], action: Int[Array, ""], key: PRNGKeyArray) -> StepResult:
        n = self.size
        row, column = state // n, state % n
        row = row + (action == DOWN).astype(jnp.int32) - (action == UP).astype(jnp.int32)
        column = column + (action == RIGHT).astype(jnp.int32) - (action == LEFT).astype(jnp.int32)
        moved = jnp.clip(row, 0, n - 1) * n + jnp.clip(column, 0, n - 1)
        at_goal: Bool[Array, ""] = moved == self.goal_cell
        at_subgoal: Bool[Array, ""] = moved == self.subgoal_cell
        reward: Float[Array, ""] = jnp.where(at_goal, self.goal_reward, jnp.where(at_subgoal, self.subgoal_reward, 0.0))
        return StepResult(moved, reward.astype(float), at_goal | at_subgoal, at_goal)

    def observe(self, state: Int[Array, ""]) -> Int[Array, ""]:
        return state

    def cell(self, state: Int[Array, ""]) -> Int[Array, ""]:
        return state

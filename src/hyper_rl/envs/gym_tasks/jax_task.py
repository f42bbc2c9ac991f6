"""Any JAX task as a Gymnasium environment, and the paper's Room made so.

For other libraries, and to hold the loop for host environments against the loop on the device: `reset(seed=s)` starts
from `task.reset(make_key(s))`, and step t (from 0) of the episode gets `fold_in(make_key(s), t)`. Episode limits
belong to whoever makes the environment, as everywhere in Gymnasium.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import EzPickle
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped, UInt8

from hyper_rl.envs.base import Box, Discrete, EnvState, Task
from hyper_rl.envs.room import Room
from hyper_rl.errors import require
from hyper_rl.threefry import make_key

Observation: TypeAlias = Any
"""A vector for a task that observes a Box, a NumPy integer for one that observes a Discrete."""


class Start(NamedTuple):
    state: EnvState
    observation: Shaped[Array, "..."]
    cell: Int[Array, ""]


class Move(NamedTuple):
    state: EnvState
    observation: Shaped[Array, "..."]
    figures: Float[Array, "4"]
    """Reward, terminated, success, cell. Each array fetched from JAX costs some 10 microseconds: one, not four."""


# The task is an argument and not a constant, so that all environments of one shape share one compilation.
@jax.jit
def begin(task: Task, key: PRNGKeyArray) -> Start:
    state = task.reset(key)
    return Start(state, task.observe(state), task.cell(state))


@jax.jit
def advance(task: Task, state: EnvState, action: Shaped[Array, "..."], key: PRNGKeyArray, number: int) -> Move:
    result = task.step(state, action, jax.random.fold_in(key, number))
    after = result.state
    figures = (result.reward, result.terminated, result.success, task.cell(after))
    return Move(after, task.observe(after), jnp.stack([figure.astype(float) for figure in figures]))


def to_space(described: Box | Discrete, dtype: Any) -> gymnasium.Space[Any]:
    if isinstance(described, Discrete):
        return gymnasium.spaces.Discrete(described.n)
    return gymnasium.spaces.Box(described.low, described.high, (described.size,), dtype)


def host_device() -> Any:
    """The CPU where JAX has one: a step is tiny, and the way to an accelerator and back would be most of it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.local_devices()[0]


class JaxTaskEnv(gymnasium.Env[Observation, Any]):
    """Vectors have JAX's default float type; `info` holds `success` and `cell`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's)

    def __init__(self, task: Task) -> None:
        # Cells travel in a float, which counts exactly only up to here.
        require(task.spec.cells <= 2**24, "cells", task.spec.cells, "at most 2^24")
        self._device = host_device()
        self._task = jax.device_put(jax.tree.map(jnp.asarray, task), self._device)
        spec = task.spec
        self._float = np.dtype(jnp.result_type(float))
        self._discrete_observation = isinstance(spec.observation, Discrete)
        self._action_dtype: Any = np.int32 if isinstance(spec.action, Discrete) else self._float
        self.observation_space = to_space(spec.observation, self._float)
        self.action_space = to_space(spec.action, self._float)
        self.cell_count, self.cell_grid = spec.cells, spec.grid
        self._state: EnvState = None
        self._key: PRNGKeyArray | None = None
        self._steps = 0
        self._cell = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**32))
        # JAX would keep these 32 bits of a larger seed anyhow, or refuse it, depending on its size.
        self._key = jax.device_put(make_key(seed % 2**32), self._device)
        start = begin(self._task, self._key)
        self._state, self._steps, self._cell = start.state, 0, int(start.cell)
        return self._to_host(start.observation), {"success": False, "cell": self._cell}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        assert self._key is not None, "reset comes before the first step"
        move = advance(self._task, self._state, np.asarray(action, self._action_dtype), self._key, self._steps)
        reward, terminated, success, cell = np.asarray(move.figures).tolist()
        self._state, self._steps, self._cell = move.state, self._steps + 1, int(cell)
        info = {"success": bool(success), "cell": self._cell}
        return self._to_host(move.observation), reward, bool(terminated), False, info

    def _to_host(self, observation: Shaped[Array, "..."]) -> Observation:
        # A copy: NumPy's view of a JAX array is read-only, and users may write into what they are given.
        return np.int64(observation) if self._discrete_observation else np.array(observation, self._float)


PIXELS = 8
FLOOR, GOAL, SUBGOAL, AGENT = (245, 245, 245), (40, 160, 60), (240, 180, 40), (50, 90, 200)


class RoomEnv(JaxTaskEnv, EzPickle):
    """The paper's 30x30 room (`hyper_rl.envs.room`): four moves, a small reward near, a large one far.

    The episode limit is `gymnasium.make`'s `max_episode_steps`, 100 unless said otherwise.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self,
        goal_reward: float = 1.0,
        subgoal_reward: float = 0.1,
        size: int = 30,
        subgoal: tuple[int, int] = (17, 17),
        render_mode: str | None = None,
    ) -> None:
        EzPickle.__init__(self, goal_reward, subgoal_reward, size, subgoal, render_mode)
        require(render_mode in (None, "rgb_array"), "render_mode", render_mode, "rgb_array or left out")
        self.room = Room(goal_reward, subgoal_reward, size=size, subgoal=(subgoal[0], subgoal[1]))
        super().__init__(self.room)
        self.render_mode = render_mode

    def render(self) -> UInt8[np.ndarray, "height width 3"] | None:
        """The room from above, one square per cell."""
        if self.render_mode is None:
            return None
        squares = np.full((self.room.size * self.room.size, 3), FLOOR, np.uint8)
        squares[self.room.goal_cell], squares[self.room.subgoal_cell] = GOAL, SUBGOAL
        squares[self._cell] = AGENT
        picture = squares.reshape(self.room.size, self.room.size, 3)
        return picture.repeat(PIXELS, axis=0).repeat(PIXELS, axis=1)

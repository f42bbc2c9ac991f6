"""The paper's mazes on the real gymnasium-robotics PointMaze, under MuJoCo.

The same tasks as `hyper_rl.envs.maze` (same maps, cells, noise, reward and end), simulated by the original: a test
drives both. What the original shows of the goal is dropped, what it leaves open (cells, ends of episodes) is fixed.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from jaxtyping import Float32, Float64

from hyper_rl.envs.gym_tasks import require_packages
from hyper_rl.envs.maze import SETTINGS
from hyper_rl.envs.maze_layout import Cell, MazeLayout
from hyper_rl.errors import UserError, unknown_name

Observation = Float64[np.ndarray, "4"]
Action = Float32[np.ndarray, "2"]

_one_build_at_a_time = threading.Lock()


def build_point_maze(layout: MazeLayout, render_mode: str | None) -> Any:
    """gymnasium-robotics' PointMaze on this map, leaving no file behind.

    It writes its model into the temporary folder under a name made from the clock and never removes it: files pile
    up, and two processes that start together can share a name. Its module is therefore handed a `tempfile` that
    writes into a folder of our own, gone as soon as MuJoCo has read the model.
    """
    require_packages("a maze on MuJoCo", "mujoco", "gymnasium_robotics", "mujoco")
    with _quiet_about_adroit():
        from gymnasium_robotics.envs.maze import maze_v4
        from gymnasium_robotics.envs.maze.point_maze import PointMazeEnv
    maze_map = [[int(mark) for mark in line] for line in layout.lines]
    with _one_build_at_a_time, tempfile.TemporaryDirectory(prefix="hyper_rl_maze_") as folder:
        usual = maze_v4.tempfile
        maze_v4.tempfile = SimpleNamespace(TemporaryDirectory=partial(tempfile.TemporaryDirectory, dir=folder))
        try:
            return PointMazeEnv(maze_map=maze_map, continuing_task=False, render_mode=render_mode)
        finally:
            maze_v4.tempfile = usual


@contextlib.contextmanager
def _quiet_about_adroit() -> Iterator[None]:
    """gymnasium-robotics prints a notice about its hand tasks on first import, once in every worker process."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        yield
    sys.stderr.writelines(line for line in said.getvalue().splitlines(keepends=True) if "Adroit" not in line)


class MazeEnv(gymnasium.Env[Observation, Action], EzPickle):
    """Steer a ball from the start cell to a goal it is never shown.

    Observation: (x, y, vx, vy), float64. Action: force along x and y, each in [-1, 1]. Reward 1 and termination on the
    first step that ends within 0.45 of the goal, else 0. Start and goal are drawn at reset within 0.25 of the middle
    of their cells. `info` holds `success` (the goal was reached) and `cell` (the free cell the ball is in, numbered
    in reading order).
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array"], "render_fps": 50}  # noqa: RUF012 (Gymnasium's)

    def __init__(
        self, name: str, start: Cell | None = None, goal: Cell | None = None, render_mode: str | None = None
    ) -> None:
        EzPickle.__init__(self, name, start, goal, render_mode)
        if name not in SETTINGS:
            raise unknown_name("name", name, SETTINGS)
        setting = SETTINGS[name]
        self.layout = setting.layout
        self.start_cell = self._free("start", setting.start if start is None else start)
        self.goal_cell = self._free("goal", setting.goal if goal is None else goal)
        self.render_mode = render_mode
        self._maze = build_point_maze(self.layout, render_mode)
        self._fixed = {"reset_cell": np.array(self.start_cell), "goal_cell": np.array(self.goal_cell)}
        self._half_columns, self._half_rows = self.layout.columns / 2, self.layout.rows / 2
        self._cell_at = self.layout.free_cell_index.tolist()
        self.cell_count = len(self.layout.free_cells)
        self.cell_grid = (self.layout.rows, self.layout.columns)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _free(self, role: str, cell: Cell) -> Cell:
        row, column = cell
        try:
            self.layout.require_free((row, column), role)
        except ValueError as error:
            raise UserError(f"{role}: {error}") from None
        return row, column

    @property
    def goal(self) -> tuple[float, float]:
        """Where the goal is in this episode: for pictures and tests, no part of the observation."""
        x, y = self._maze.goal
        return float(x), float(y)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        seen, info = self._maze.reset(seed=seed, options=self._fixed)
        observation = seen["observation"]
        return observation, {"success": info["success"], "cell": self._cell(observation)}

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        seen, reward, reached, _, _ = self._maze.step(action)
        observation = seen["observation"]
        return observation, float(reward), reached, False, {"success": reached, "cell": self._cell(observation)}

    def _cell(self, observation: Observation) -> int:
        x, y = observation[:2].tolist()
        return self._cell_at[int(self._half_rows - y)][int(x + self._half_columns)]

    def render(self) -> Any:
        return self._maze.render()

    def close(self) -> None:
        self._maze.close()

"""The paper's four MiniGrid tasks (appendix A.5) on the real `minigrid`, with vectors for observations.

The agent sees 7x7 cells in front of it, each with the number of an object type, a colour and a state. Encodings:

- `raw` (default): these 147 integers as float32, not scaled. It is what LESSON's code feeds its networks, and the
  paper's comparison runs on that; it is also 6.7 times smaller in a replay buffer than the other one.
- `one-hot`: per cell 11 object types + 6 colours + 3 states, 980 numbers. The integers are names, not amounts, so this
  is the better input for a network that need not be compared with LESSON's.

Fetch says in a sentence which of three objects to bring, and ends without reward at any other. Without the sentence
the task cannot be solved, so eight numbers are appended: the colour (6) and the type (key or ball) it asks for. The
wording around them is drawn at random and means nothing; it is left out.

LESSON's code cuts episodes at 100 steps, and so do these tasks (truncation), while the reward at success keeps the
package's own longer limit T in it: 1 - 0.9 t/T.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle
from jaxtyping import Float32, UInt8
from numpy import integer

from hyper_rl.envs.gym_tasks import require_packages
from hyper_rl.envs.gym_tasks.minigrid_view import can_show, view
from hyper_rl.errors import require, require_choice, unknown_name

Observation = Float32[np.ndarray, " numbers"]
Encoding = Literal["raw", "one-hot"]
ENCODINGS: tuple[Encoding, ...] = ("raw", "one-hot")
DEFAULT_CAP = 100

VIEW_CELLS = 7 * 7
KINDS = (11, 6, 3)
"""How many object types, colours and states there are (the numbers minigrid 3.2 counts)."""
ONE_HOT_PER_CELL = sum(KINDS)
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
"""In the order of minigrid's colour numbers."""
FETCHED = ("key", "ball")


@dataclass(frozen=True)
class Setting:
    """Which environment of minigrid, and whether its sentence has to be read."""

    maker: str
    keywords: Mapping[str, Any] = field(default_factory=dict)
    names_target: bool = False


SETTINGS: Mapping[str, Setting] = MappingProxyType(
    {
        "Empty-5x5": Setting("EmptyEnv", {"size": 5}),
        "Empty-16x16": Setting("EmptyEnv", {"size": 16}),
        "Fetch-8x8": Setting("FetchEnv", {"size": 8, "numObjs": 3}, names_target=True),
        "UnlockPickup": Setting("UnlockPickupEnv"),
        "LavaCrossingS9N1": Setting("CrossingEnv", {"size": 9, "num_crossings": 1}),
    }
)


def encode_raw(view: UInt8[np.ndarray, "7 7 3"]) -> Float32[np.ndarray, "147"]:
    return view.ravel().astype(np.float32)


# Where the ones of object, colour and state of each cell begin, in the order in which a view is stored.
_FIRST = (np.arange(VIEW_CELLS)[:, None] * ONE_HOT_PER_CELL + np.array([0, KINDS[0], KINDS[0] + KINDS[1]])).ravel()


def encode_one_hot(view: UInt8[np.ndarray, "7 7 3"]) -> Float32[np.ndarray, "980"]:
    encoded = np.zeros(VIEW_CELLS * ONE_HOT_PER_CELL, np.float32)
    encoded[_FIRST + view.ravel()] = 1.0
    return encoded


def encode_target(mission: str) -> Float32[np.ndarray, "8"]:
    """The colour and the type a sentence like "go get a red key" asks for."""
    colour, kind = mission.split()[-2:]
    encoded = np.zeros(len(COLOURS) + len(FETCHED), np.float32)
    encoded[[COLOURS.index(colour), len(COLOURS) + FETCHED.index(kind)]] = 1.0
    return encoded


class MiniGridTaskEnv(gymnasium.Env[Observation, integer[Any]], EzPickle):
    """A MiniGrid task with minigrid's own limit and rewards. `info`: `success` (reward paid) and `cell`.

    Every reset draws a new layout (where the task has any), a pure function of the seed. Cells are those inside the
    outer wall, numbered in reading order; inner walls and lava count, for they lie elsewhere in every episode.
    """

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's)

    def __init__(self, name: str, encoding: Encoding = "raw", render_mode: str | None = None) -> None:
        EzPickle.__init__(self, name, encoding, render_mode)
        if name not in SETTINGS:
            raise unknown_name("name", name, SETTINGS)
        require_choice("encoding", encoding, ENCODINGS)
        require_packages(f"{name} of MiniGrid", "minigrid", "minigrid")
        setting = SETTINGS[name]
        maker = getattr(importlib.import_module("minigrid.envs"), setting.maker)
        self._grid = maker(render_mode=render_mode, **setting.keywords)
        if can_show(self._grid):
            # minigrid's own `step` and `reset` ask the object for what is seen, and get it faster.
            self._grid.gen_obs = self._look
        self._encode = encode_raw if encoding == "raw" else encode_one_hot
        self._names_target = setting.names_target
        self._target = np.zeros(0, np.float32)
        self.native_max_steps: int = self._grid.max_steps
        self.render_mode = render_mode
        self.cell_grid = (self._grid.height - 2, self._grid.width - 2)
        self.cell_count = self.cell_grid[0] * self.cell_grid[1]
        one_hot = np.ones(VIEW_CELLS * ONE_HOT_PER_CELL, np.float32)
        highest = one_hot if encoding == "one-hot" else np.tile(np.array(KINDS, np.float32) - 1, VIEW_CELLS)
        target_size = len(COLOURS) + len(FETCHED) if setting.names_target else 0
        highest = np.concatenate([highest, np.ones(target_size, np.float32)])
        self.observation_space = gymnasium.spaces.Box(np.zeros_like(highest), highest, dtype=np.float32)
        self.action_space = gymnasium.spaces.Discrete(int(self._grid.action_space.n))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        seen, _ = self._grid.reset(seed=seed, options=options)
        if self._names_target:
            self._target = encode_target(seen["mission"])
        return self._observation(seen), {"success": False, "cell": self._cell()}

    def step(self, action: integer[Any]) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, _ = self._grid.step(int(action))  # numpy integers compare slowly
        info = {"success": reward > 0, "cell": self._cell()}
        return self._observation(seen), float(reward), terminated, truncated, info

    def _look(self) -> dict[str, Any]:
        grid = self._grid
        return {"image": view(grid), "direction": grid.agent_dir, "mission": grid.mission}

    def _observation(self, seen: dict[str, Any]) -> Observation:
        encoded = self._encode(seen["image"])
        return np.concatenate([encoded, self._target]) if self._names_target else encoded

    def _cell(self) -> int:
        column, row = self._grid.agent_pos
        return (int(row) - 1) * self.cell_grid[1] + int(column) - 1

    def render(self) -> Any:
        return self._grid.render()

    def close(self) -> None:
        self._grid.close()


def make_minigrid(
    name: str,
    encoding: Encoding = "raw",
    max_steps: int | Literal["native"] = DEFAULT_CAP,
    render_mode: str | None = None,
) -> gymnasium.Env[Observation, integer[Any]]:
    """The task cut at `max_steps` ("native": minigrid's own limit). The reward does not depend on the cut.

    The limit is applied here, where the native one is known, and shows in `env.spec`; `max_episode_steps` of
    `gymnasium.make` comes on top and can only shorten it.
    """
    env = MiniGridTaskEnv(name, encoding, render_mode)
    native = env.native_max_steps
    is_count = isinstance(max_steps, int) and not isinstance(max_steps, bool) and 1 <= max_steps <= native
    require(is_count or max_steps == "native", "max_steps", max_steps, f"native or a whole number from 1 to {native}")
    return gymnasium.wrappers.TimeLimit(env, native if isinstance(max_steps, str) else max_steps)

"""Small environments with known behaviour and chosen faults, for the tests of everything that uses Gymnasium."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env[Any, Any]):
    """A point on a line with a seeded start and seeded wind; the goal is at 3.

    It has a fault, if asked for, at step `at`; 0 is the reset.
    """

    def __init__(self, fault: str | None = None, at: int = 3) -> None:
        self.observation_space = spaces.Box(-10.0, 10.0, (3,), np.float32)
        self.action_space = spaces.Box(np.array([-2.0, 0.0]), np.array([4.0, 1.0]), dtype=np.float64)
        self.fault, self.at = fault, at
        self.actions: list[Any] = []
        self._seen = np.zeros(3, np.float32)
        self._taken = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._taken = 0
        self._seen[:] = self.np_random.uniform(-0.1, 0.1, 3)
        return self._result((self._shown(), {}))

    def step(self, action: Any) -> Any:
        self._taken += 1
        self.actions.append(action)
        self._seen[0] += 0.1 * action[0] + 0.05 * self.np_random.uniform()
        self._seen[1] = action[1]
        self._seen[2] = self._taken
        there = bool(self._seen[0] > 3)
        return self._result((self._shown(), float(there), there, False, {"is_success": there}))

    def _shown(self) -> Any:
        return self._seen.copy()

    def _result(self, result: tuple[Any, ...]) -> Any:
        if self.fault is None or self._taken != self.at:
            return result
        observation, *rest = result
        bad = observation.copy()
        match self.fault:
            case "nan":
                bad[2] = np.nan
            case "infinity":
                bad[0] = -np.inf
            case "shape":
                bad = bad[:2]
            case "words":
                bad = np.array(["a", "b", "c"])
            case "crash":
                raise KeyError("the motor fell off")
            case "interrupt":
                raise KeyboardInterrupt
            case "four":
                return bad, 0.0, False, {}
            case "nothing":
                return None
            case "reward":
                return bad, np.float32(np.inf), False, False, {}
            case "rewards":
                return bad, np.array([1.0]), False, False, {}
            case "no reward":
                return bad, None, False, False, {}
            case "flag":
                return bad, 0.0, None, False, {}
            case "info":
                return bad, 0.0, False, False, ["success"]
        return bad, *rest


class Nested(gymnasium.Env[Any, Any]):
    """Observations of every kind that can be flattened, drawn from the space itself; faults in one part of it."""

    def __init__(self, fault: str | None = None) -> None:
        self.observation_space = spaces.Dict(
            {
                "place": spaces.Box(-5.0, 5.0, (2, 2), np.float32),
                "mode": spaces.Discrete(3, start=1),
                "inner": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 4], start=[0, 5]))),
            }
        )
        self.action_space = spaces.Discrete(2)
        self.fault = fault
        self.drawn: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        drawn = self._draw()
        match self.fault:
            case "nan":
                drawn["place"][1, 0] = np.nan
            case "shape":
                drawn["place"] = drawn["place"][0]
            case "missing":
                del drawn["mode"]
            case "choice":
                drawn["mode"] = 0
            case "choices":
                drawn["inner"] = (drawn["inner"][0], np.array([0, 9]))
            case "fraction":
                drawn["mode"] = 1.5
        return drawn, 0.0, False, False, {}

    def _draw(self) -> Any:
        self.drawn = self.observation_space.sample()
        return self.drawn


class Steps(gymnasium.Env[Any, Any]):
    """Floors 5 to 9, actions 1 (down) and 2 (up), both counted from another number than 0. The top floor is the goal.

    It knows cells, as the package's own tasks do: one for each floor.
    """

    cell_count, cell_grid = 5, (1, 5)

    def __init__(self, wrong: int | None = None) -> None:
        self.observation_space = spaces.Discrete(5, start=5)
        self.action_space = spaces.Discrete(2, start=1)
        self._wrong = wrong
        self._floor = 5

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._floor = 5 + int(self.np_random.integers(3))
        return self._floor, {"cell": self._floor - 5}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self._floor = min(max(self._floor + (1 if action == 2 else -1), 5), 9)
        top = self._floor == 9
        shown = self._floor if self._wrong is None else self._wrong
        return np.int64(shown), 1 if top else 0, top, False, {"cell": self._floor - 5, "success": np.bool_(top)}


class Still(gymnasium.Env[Any, Any]):
    """Any spaces, and nothing ever happens."""

    def __init__(self, observation_space: Any = None, action_space: Any = None) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (2,)) if observation_space is None else observation_space
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


class Moody(Walk):
    """Not deterministic: the wind does not come from the seed."""

    def step(self, action: Any) -> Any:
        return super().step(np.asarray(action) + np.random.default_rng().uniform(0.0, 0.1))


class Ageing(Walk):
    """Deterministic when new, but an old environment remembers how many episodes it has seen."""

    episodes = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.episodes += 1
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        return super().step(np.asarray(action) + 0.01 * self.episodes)


class Imports(Still):
    """Says whether its process has imported JAX."""

    def step(self, action: Any) -> Any:
        return np.zeros(2, np.float32), float("jax" in sys.modules), False, False, {}


class Reusing(Walk):
    """Hands out the same array in every step, as some environments do: whoever keeps it must copy it."""

    def _shown(self) -> Any:
        return self._seen


class OneWay(Walk):
    """Without a seed in `reset`: cannot be repeated, so it cannot be used."""

    def reset(self, *, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        return super().reset(options=options)


class Pixels(gymnasium.Env[Any, Any]):
    """Go to the goal on a board of 4 x 4 fields, seen as an image: the agent in one channel, the goal in the other."""

    def __init__(self, scale: int = 2, goal: int | None = None) -> None:
        """`scale`: pixels of a field's side; `goal`: the field, drawn where none is given."""
        self._scale, self._goal = scale, goal
        self.observation_space = image((4 * scale, 4 * scale, 2))
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        at, goal = (divmod(int(field), 4) for field in self.np_random.choice(16, 2, replace=False))
        self._at, self._to = np.array(at), np.array(goal if self._goal is None else divmod(self._goal, 4))
        return self._draw(), {}

    def step(self, action: Any) -> Any:
        axis, sign = divmod(int(action), 2)
        self._at[axis] = np.clip(self._at[axis] + 2 * sign - 1, 0, 3)
        there = bool((self._at == self._to).all())
        return self._draw(), float(there), there, False, {"success": there}

    def _draw(self) -> np.ndarray:
        board = np.zeros((4, 4, 2), np.uint8)
        board[*self._at, 0] = board[*self._to, 1] = 255
        return board.repeat(self._scale, 0).repeat(self._scale, 1)


def image(shape: tuple[int, ...] = (8, 8, 3)) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


LIMIT = 30
MAKERS: dict[str, Any] = {
    "Walk": Walk,
    "Nested": Nested,
    "Steps": Steps,
    "Moody": Moody,
    "Ageing": Ageing,
    "Imports": Imports,
    "OneWay": OneWay,
    "Pixels": Pixels,
    "Unbounded": lambda: Still(action_space=spaces.Box(-1.0, np.inf, (3,))),
}
for _name, _maker in MAKERS.items():
    gymnasium.register(f"toy/{_name}-v0", _maker, max_episode_steps=LIMIT)
gymnasium.register("toy/Endless-v0", MAKERS["Walk"])

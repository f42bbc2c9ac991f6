"""Any Gymnasium environment behind one narrow interface, in the learners' units.

`EnvSource` says how to make an environment, here or in another process; `HostEnv` is one environment. Everything that
an environment returns is checked in every step, so that a NaN is an error that names environment, seed, step and
value, and not a learner that is quietly ruined. Resets are always made from outside, always with a seed.

Worker processes import this file: nothing here may import JAX before a description is asked for.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hyper_rl.envs.action_writer import Writer, write_actions
from hyper_rl.envs.gym_make import episode_limit, make_environment, one_line
from hyper_rl.envs.observation_reader import (
    LARGEST,
    NUMBERS,
    Reader,
    Unfit,
    all_finite,
    brief,
    read_observations,
    say_number,
)
from hyper_rl.errors import UserError, require_choice, require_count

if TYPE_CHECKING:
    import gymnasium

    from hyper_rl.envs.base import TaskSpec

SUCCESS_RULES = ("info", "terminated", "reward")
RETURNED = {"reset": "(observation, info)", "step": "(observation, reward, terminated, truncated, info)"}
LONGER = "--env.max_episode_steps N (env_kwargs={'max_episode_steps': N})"
PLAIN_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class TaskFailure(UserError):
    """The environment broke its contract or crashed: which one, in which episode, at which step, and how."""

    def __init__(
        self, env_id: str, what: str, seed: int | None = None, step: int | None = None, index: int | None = None
    ) -> None:
        self.env_id, self.what, self.seed, self.step, self.index = env_id, what, seed, step, index
        parts = [f"environment {env_id}" if index is None else f"environment {index} ({env_id})"]
        if seed is not None:
            parts.append(f"episode seed {seed}")
        if step is not None:
            parts.append(f"step {step}" if step > 0 else "at reset")
        super().__init__(f"{', '.join(parts)}: {what}")

    def __reduce__(self) -> tuple[Any, ...]:
        # It travels from a worker process; the notes hold the traceback there.
        return type(self), (self.env_id, self.what, self.seed, self.step, self.index), self.__dict__


@dataclass(frozen=True)
class EnvSource:
    """How to make an environment; can be sent to a worker process unless its factory cannot."""

    env_id: str
    """Gymnasium's id, or a name to show where `factory` is given."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `gymnasium.make`."""
    module: str | None = None
    """Imported first, here and in worker processes: it registers the id."""
    factory: Callable[[], gymnasium.Env] | None = None
    """Makes a new environment at every call, instead of `gymnasium.make`."""
    horizon: int | None = None
    """Episode limit where the task states none, or a shorter one."""
    success: Literal["info", "terminated", "reward"] = "info"
    """What counts as solving the task: info["success"] or info["is_success"], ending by itself, or reward > 0."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kwargs", dict(self.kwargs))  # a proxy could not be sent to a worker
        require_choice("success", self.success, SUCCESS_RULES)
        if self.horizon is not None:
            require_count("horizon", self.horizon)
        if self.factory is not None and self.kwargs:
            raise UserError(
                f"env: got {dict(self.kwargs)!r}, must be left out with a factory, which takes no arguments"
            )

    def make(self) -> HostEnv:
        env = make_environment(self.env_id, self.kwargs, self.module, self.factory)
        try:
            return HostEnv(self, env)
        except BaseException:
            env.close()
            raise


@dataclass(frozen=True)
class HostSpec:
    """What the training loop needs to know before the first step."""

    task: TaskSpec
    horizon: int
    """The episode limit: the task's own or the source's, whichever is shorter."""


def describe(source: EnvSource) -> HostSpec:
    """Make one environment, look at it, close it; refuses what cannot be trained on."""
    env = source.make()
    try:
        return env.spec
    finally:
        env.close()


class Layout(NamedTuple):
    """Shapes and dtypes of one environment's rows, in the learners' units."""

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype
    action_shape: tuple[int, ...]
    action_dtype: np.dtype

    @staticmethod
    def of(reader: Reader, writer: Writer) -> Layout:
        choice, real = np.dtype(np.int64), np.dtype(np.float64)
        seen = real if reader.image is None else np.dtype(np.uint8)
        return Layout(
            () if reader.one_of else (reader.size,),
            choice if reader.one_of else seen,
            () if writer.one_of else (writer.size,),
            choice if writer.one_of else real,
        )


class HostStep(NamedTuple):
    observation: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    """Cut by the task's own limit or by `EnvSource.horizon`."""
    success: bool
    cell: int


class HostEnv:
    """One environment; made by `EnvSource.make`."""

    index: int | None = None
    """Its place in a pool, for messages."""
    cell = 0
    """Where the agent is, in [0, spec.task.cells); after a reset too."""

    def __init__(self, source: EnvSource, env: gymnasium.Env) -> None:
        self.env_id, self.env = source.env_id, env
        try:
            self._reader, self._writer = read_observations(env.observation_space), write_actions(env.action_space)
        except UserError as error:
            raise UserError(f"environment {source.env_id}: {error}") from None
        self.layout = Layout.of(self._reader, self._writer)
        self.horizon = _horizon(source, env)
        self.cells = int(getattr(env.unwrapped, "cell_count", 1))
        self._read, self._write, self._step = self._reader.read, self._writer.write, env.step
        self._rule = source.success
        self._has_cells = hasattr(env.unwrapped, "cell_count")
        self._seed: int | None = None
        self._taken = 0
        self.info: dict[str, Any] = {}
        """What the environment said beside the last observation."""

    @cached_property
    def spec(self) -> HostSpec:
        # Importing the description imports JAX, which a worker process does not need.
        from hyper_rl.envs.base import Box, Discrete, TaskSpec

        seen, done = self._reader, self._writer
        low, high = (-math.inf, math.inf) if seen.image is None else (0.0, 255.0)
        grid = getattr(self.env.unwrapped, "cell_grid", None)
        return HostSpec(
            TaskSpec(
                name=self.env_id,
                observation=Discrete(seen.size) if seen.one_of else Box(seen.size, low, high, seen.image),
                action=Discrete(done.size) if done.one_of else Box(done.size, -1.0, 1.0),
                cells=self.cells,
                grid=(int(grid[0]), int(grid[1])) if grid is not None else None,
            ),
            self.horizon,
        )

    @property
    def choices(self) -> int | None:
        """How many actions there are to choose from; None where actions are vectors."""
        return self._writer.size if self._writer.one_of else None

    def reset(self, seed: int) -> np.ndarray:
        """A new episode. With the same seed it is the same one, in every environment that keeps to its seed."""
        self._seed, self._taken = int(seed), 0
        try:
            result = self.env.reset(seed=self._seed)
        except (Exception, SystemExit) as error:
            raise self._crashed("reset", error) from error
        try:
            raw, self.info = result
        except (TypeError, ValueError):
            raise self._failure(f"reset returned {brief(result)}, must be {RETURNED['reset']}") from None
        try:
            observation = self._read(raw)
            if not isinstance(self.info, dict):
                raise Unfit(f"info is {brief(self.info)}, must be a dict")
            self.cell = self._read_cell() if self._has_cells and "cell" in self.info else 0
        except Unfit as unfit:
            raise self._failure(str(unfit)) from None
        return observation

    def step(self, action: np.ndarray | int) -> HostStep:
        """One step with an action in the learner's units: [-1, 1] per dimension, or a number from 0."""
        self._taken += 1
        native = self._write(action)
        try:
            result = self._step(native)
        except (Exception, SystemExit) as error:
            raise self._crashed("step", error, action) from error
        try:
            raw, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            raise self._failure(f"step returned {brief(result)}, must be {RETURNED['step']}") from None
        self.info = info
        try:
            observation = self._read(raw)
            if type(reward) is not float:
                reward = _read_reward(reward)
            if not abs(reward) <= LARGEST:
                raise Unfit(f"reward is {say_number(reward)}")
            if type(terminated) is not bool:
                terminated = _read_flag(terminated, "terminated")
            if type(truncated) is not bool:
                truncated = _read_flag(truncated, "truncated")
            if not isinstance(info, dict):
                raise Unfit(f"info is {brief(info)}, must be a dict")
            if self._has_cells:
                self.cell = self._read_cell()
        except Unfit as unfit:
            raise self._failure(f"{unfit}{_blame_action(action)}") from None
        if self._rule == "info":
            success = bool(info.get("success", info.get("is_success", False)))
        else:
            success = terminated if self._rule == "terminated" else reward > 0
        return HostStep(observation, reward, terminated, truncated or self._taken >= self.horizon, success, self.cell)

    def close(self) -> None:
        self.env.close()

    def _read_cell(self) -> int:
        cell = self.info.get("cell")
        if cell is None:
            raise Unfit("info has no 'cell', though the environment declares cell_count")
        if not 0 <= int(cell) < self.cells:
            raise Unfit(f"info['cell'] is {cell}, must be between 0 and {self.cells - 1}")
        return int(cell)

    def _failure(self, what: str) -> TaskFailure:
        return TaskFailure(self.env_id, what, self._seed, self._taken, self.index)

    def _crashed(self, where: str, error: BaseException, action: Any = None) -> TaskFailure:
        """One line that says where; the whole traceback as a note, which survives the way out of a worker."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{PurePath(frame.filename).name}, line {frame.lineno}"
        blame = "" if action is None else _blame_action(action)
        if "unpack" in str(error):  # a wrapper stumbled over what the environment inside it returned
            blame += f"; {where} must return {RETURNED[where]}"
        failure = self._failure(f"{where} raised {type(error).__name__}: {one_line(error)} ({place}){blame}")
        failure.add_note("".join(traceback.format_exception(error)))
        return failure


def _horizon(source: EnvSource, env: gymnasium.Env) -> int:
    own = episode_limit(env)
    if source.horizon is None and own is None:
        raise UserError(f"environment {source.env_id}: states no episode limit; give one with --horizon (horizon=)")
    if source.horizon is None or own is None:
        return source.horizon or own or 0
    if source.horizon > own:
        longer = f"; {LONGER} makes the task itself longer" if source.factory is None else ""
        raise UserError(
            f"horizon: got {source.horizon}, must be at most {own}: environment {source.env_id} cuts its episodes "
            f"there itself{longer}"
        )
    return source.horizon


def _read_reward(reward: Any) -> float:
    if isinstance(reward, PLAIN_NUMBERS):
        return float(reward)
    value = np.asarray(reward) if hasattr(reward, "shape") else None
    if value is None or value.shape != () or value.dtype.kind not in NUMBERS:
        raise Unfit(f"reward is {brief(reward)}, must be one real number")
    return float(value)


def _read_flag(flag: Any, name: str) -> bool:
    if isinstance(flag, np.bool_):
        return bool(flag)
    value = np.asarray(flag) if isinstance(flag, int) or hasattr(flag, "shape") else None
    if value is None or value.shape != () or value.dtype.kind not in "biu" or int(value) not in (0, 1):
        raise Unfit(f"{name} is {brief(flag)}, must be True or False")
    return bool(value)


def _blame_action(action: Any) -> str:
    """An action that is no number is the learner's fault, whatever the environment makes of it."""
    value = np.asarray(action, np.float64).reshape(-1)
    if all_finite(value):
        return ""
    index = int(np.flatnonzero(~np.isfinite(value))[0])
    return f"; the action was no number to begin with (action[{index}] is {value[index]}): the learner has diverged"

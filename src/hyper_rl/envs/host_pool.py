"""Several environments in lock step, in this process or in worker processes, with the same numbers either way.

An episode that ends is followed at once by the next one, reset here with the seed that the caller gave for it: the
environments' own automatic resets lose the true last observation or the seed, and with them exact resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from hyper_rl.envs.host_env import EnvSource, HostEnv, Layout
from hyper_rl.errors import UserError, require, require_count

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped


class PoolStep(NamedTuple):
    """One step of n environments. The arrays are new in every step; rows of environments at rest are zeros."""

    next_observation: Shaped[np.ndarray, "n ..."]
    """What the step led to: the true last observation where the episode ended."""
    reward: Float[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]
    truncated: Bool[np.ndarray, " n"]
    """Cut by the environment or by `last`; true beside `terminated` where both fall on one step."""
    success: Bool[np.ndarray, " n"]
    cell: Int[np.ndarray, " n"]
    observation: Shaped[np.ndarray, "n ..."]
    """What to act on next: the new episode's first observation where one ended."""
    reset: Bool[np.ndarray, " n"]
    """A new episode has begun."""


class EnvPool(Protocol):
    count: int
    cells: Int[np.ndarray, " n"]
    """Where `reset` put each environment; steps report cells of their own."""

    @property
    def closed(self) -> bool:
        """By `close`, or because a worker process has died."""
        ...

    def reset(self, indices: Sequence[int], seeds: Sequence[int]) -> Shaped[np.ndarray, "k ..."]:
        """Begin new episodes in these environments; their first observations."""
        ...

    def step(
        self,
        actions: Shaped[np.ndarray, "n ..."],
        last: Bool[np.ndarray, " n"],
        next_seeds: Int[np.ndarray, " n"],
        active: Bool[np.ndarray, " n"] | None = None,
    ) -> PoolStep:
        """One step of all environments, or of the `active` ones.

        `last` cuts an episode after this step; `next_seeds` are for the episodes that follow those that end.
        """
        ...

    def close(self) -> None: ...


def open_pool(source: EnvSource, count: int, workers: int = 0) -> EnvPool:
    """`count` environments, in this process or dealt out to `workers` processes."""
    require_count("count", count)
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    require(
        whole and 0 <= workers <= count,
        "env_workers",
        workers,
        f"a whole number between 0 (this process) and {count} (one for each environment)",
    )
    if workers == 0:
        return LocalPool(source, count)
    from hyper_rl.envs.worker_pool import WorkerPool

    return WorkerPool(source, count, workers)


def empty_step(count: int, layout: Layout) -> PoolStep:
    """Where everybody rests. Fresh arrays: the caller may keep them, and JAX may read them later."""
    observations = (count, *layout.observation_shape)
    return PoolStep(
        next_observation=np.zeros(observations, layout.observation_dtype),
        reward=np.zeros(count),
        terminated=np.zeros(count, bool),
        truncated=np.zeros(count, bool),
        success=np.zeros(count, bool),
        cell=np.zeros(count, np.int64),
        observation=np.zeros(observations, layout.observation_dtype),
        reset=np.zeros(count, bool),
    )


class LocalPool:
    """The environments of this process, one after another."""

    def __init__(self, source: EnvSource, count: int, first: int = 0) -> None:
        """`first` is the number of the first environment in the whole pool, for messages."""
        self.count = count
        self.cells = np.zeros(count, np.int64)
        self._environments: list[HostEnv] = []
        try:
            for index in range(first, first + count):
                environment = source.make()
                environment.index = index
                self._environments.append(environment)
            if len({id(environment.env.unwrapped) for environment in self._environments}) < count:
                raise UserError(
                    f"environment {source.env_id}: the factory gave the same environment twice, must make a new one "
                    "at every call"
                )
        except BaseException:
            self.close()
            raise
        self.layout = self._environments[0].layout

    @property
    def closed(self) -> bool:
        return not self._environments

    def reset(self, indices: Sequence[int], seeds: Sequence[int]) -> Shaped[np.ndarray, "k ..."]:
        self._require_open()
        observations = np.zeros((len(indices), *self.layout.observation_shape), self.layout.observation_dtype)
        for row, (index, seed) in enumerate(zip(indices, seeds, strict=True)):
            observations[row] = self._environments[index].reset(seed)
            self.cells[index] = self._environments[index].cell
        return observations

    def step(
        self,
        actions: Shaped[np.ndarray, "n ..."],
        last: Bool[np.ndarray, " n"],
        next_seeds: Int[np.ndarray, " n"],
        active: Bool[np.ndarray, " n"] | None = None,
    ) -> PoolStep:
        self._require_open()
        out = empty_step(self.count, self.layout)
        for i, environment in enumerate(self._environments):
            if active is not None and not active[i]:
                continue
            step = environment.step(actions[i])
            truncated = step.truncated or bool(last[i])
            out.next_observation[i] = out.observation[i] = step.observation
            out.reward[i] = step.reward
            out.terminated[i] = step.terminated
            out.truncated[i] = truncated
            out.success[i] = step.success
            out.cell[i] = step.cell
            if step.terminated or truncated:
                out.observation[i] = environment.reset(int(next_seeds[i]))
                out.reset[i] = True
        return out

    def close(self) -> None:
        """Again is harmless."""
        while self._environments:
            self._environments.pop().close()

    def _require_open(self) -> None:
        if self.closed:
            raise RuntimeError("the pool of environments is closed")

"""The episodes in progress of a host loop: their seeds, and all that is needed to repeat them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt32

from hyper_rl.envs.host_env import TaskFailure
from hyper_rl.envs.host_pool import EnvPool, PoolStep
from hyper_rl.training.program import Program, start_seed

BLOCK = 64
"""Seeds computed at once: a compiled call for each episode would cost as much as a step."""


@jax.jit
def _seed_block(program: Program, first: Int[Array, " runs"]) -> UInt32[Array, "runs block"]:
    numbers = first[:, None] + jnp.arange(BLOCK, dtype=jnp.int32)[None, :]
    return jax.vmap(lambda one, many: jax.vmap(lambda n: start_seed(one, n))(many))(program, numbers)


class SeedBook:
    """The reset seed of every episode of every run, from (run seed, episode number)."""

    def __init__(self, program: Program) -> None:
        self._program = program
        count = int(program.budget.shape[0])
        self._first = np.full(count, -BLOCK, np.int64)
        self._block = np.zeros((count, BLOCK), np.uint32)
        self._rows = np.arange(count)

    def of(self, numbers: np.ndarray) -> np.ndarray:
        """The seed of episode `numbers[i]` of run i."""
        offset = numbers - self._first
        outside = (offset < 0) | (offset >= BLOCK)
        if outside.any():
            self._first = np.where(outside, numbers, self._first)
            self._block = np.asarray(_seed_block(self._program, jnp.asarray(self._first, jnp.int32)))
            offset = numbers - self._first
        seeds: np.ndarray = self._block[self._rows, offset].astype(np.int64)
        return seeds


class NotRepeatable(TaskFailure):
    """The environment is sound, but does not come to where it was before."""


class CurrentEpisodes:
    """Number, step, actions and observations of the episode each run is in."""

    def __init__(self, count: int) -> None:
        self.numbers = np.zeros(count, np.int64)
        self.steps = np.zeros(count, np.int64)
        self._actions: list[list[np.ndarray]] = [[] for _ in range(count)]
        self._observations: list[list[np.ndarray]] = [[] for _ in range(count)]

    def begin(self, indices: Sequence[int], observations: np.ndarray) -> None:
        """Fresh episodes of these runs, from their first observations."""
        for i, observation in zip(indices, observations, strict=True):
            self.steps[i] = 0
            self._actions[i] = []
            self._observations[i] = [kept(observation)]

    def note(self, actions: np.ndarray, answer: PoolStep) -> None:
        """One step of every run."""
        self.steps += 1
        for i, action in enumerate(actions):
            if answer.reset[i]:
                self.numbers[i] += 1
                self.begin([i], answer.observation[i : i + 1])
            else:
                self._actions[i].append(action)
                self._observations[i].append(kept(answer.next_observation[i]))

    def as_arrays(self) -> dict[str, np.ndarray]:
        """For a checkpoint."""
        arrays = {}
        for i, (actions, observations) in enumerate(zip(self._actions, self._observations, strict=True)):
            arrays[f"episode/{i}/observations"] = np.stack(observations)
            if actions:
                arrays[f"episode/{i}/actions"] = np.stack(actions)
        return arrays

    @staticmethod
    def repeat(
        pool: EnvPool,
        name: str,
        numbers: np.ndarray,
        seeds: np.ndarray,
        next_seeds: np.ndarray,
        arrays: Mapping[str, np.ndarray],
    ) -> CurrentEpisodes:
        """Bring fresh environments to where the checkpoint was, comparing every observation on the way."""
        count = pool.count
        episodes = CurrentEpisodes(count)
        episodes.numbers = np.array(numbers, np.int64)
        stored = [arrays[f"episode/{i}/observations"] for i in range(count)]
        actions = [arrays.get(f"episode/{i}/actions") for i in range(count)]
        lengths = np.array([len(rows) - 1 for rows in stored])
        first = pool.reset(range(count), [int(seed) for seed in seeds])
        for i in range(count):
            _compare(name, i, int(seeds[i]), 0, stored[i][0], kept(first[i]))
        episodes.begin(range(count), first)
        never = np.zeros(count, bool)
        template = next((rows for rows in actions if rows is not None), None)
        for step in range(int(lengths.max(initial=0))):
            assert template is not None
            active = lengths > step
            now = np.zeros((count, *template.shape[1:]), template.dtype)
            repeated = [i for i in range(count) if active[i]]
            for i in repeated:
                rows = actions[i]
                assert rows is not None
                now[i] = rows[step]
            answer = pool.step(now, never, next_seeds, active)
            for i in repeated:
                seen = kept(answer.next_observation[i])
                _compare(name, i, int(seeds[i]), step + 1, stored[i][step + 1], seen)
                if answer.reset[i]:
                    raise _not_repeatable(name, i, int(seeds[i]), step + 1, "the episode ended, it had gone on")
                episodes.steps[i] += 1
                episodes._actions[i].append(now[i])
                episodes._observations[i].append(seen)
        return episodes


def kept(observation: np.ndarray) -> np.ndarray:
    """What is remembered of an observation to know it again: itself or, of an image, a check sum.

    The images of one long episode would fill the memory, and every checkpoint.
    """
    if observation.dtype != np.uint8:
        return observation
    return np.frombuffer(hashlib.blake2b(observation.tobytes(), digest_size=16).digest(), np.uint8)


def _compare(name: str, index: int, seed: int, step: int, stored: np.ndarray, seen: np.ndarray) -> None:
    if np.array_equal(stored, seen):
        return
    stored, seen = np.atleast_1d(stored), np.atleast_1d(seen)
    if stored.dtype == seen.dtype == np.uint8:
        raise _not_repeatable(name, index, seed, step, "the image is another than before the stop")
    if stored.shape != seen.shape:
        raise _not_repeatable(name, index, seed, step, f"observation shape {seen.shape}, it was {stored.shape}")
    where = int(np.flatnonzero(stored != seen)[0])
    now, before = seen[where].item(), stored[where].item()
    raise _not_repeatable(
        name, index, seed, step, f"observation[{where}] is {now!r}, it was {before!r} before the stop"
    )


def _not_repeatable(name: str, index: int, seed: int, step: int, what: str) -> NotRepeatable:
    return NotRepeatable(
        name,
        f"{what}. The environment does not repeat itself from its seed, so this run cannot go on as if it had not "
        "stopped; see `hyper-rl check-env`",
        seed=seed,
        step=step,
        index=index,
    )

"""A few thousand steps in an environment, to see what it is like before anything is trained on it.

Actions are uniform in one half of the steps and held for a whole episode in the other: a reward that random wobbling
never finds is sometimes found by simply going on in one direction.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from hyper_rl.envs.host_env import EnvSource, HostEnv, HostStep, TaskFailure

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped

Acting = Literal["random", "held"]
REPEATED_STEPS = 500
"""Steps that are played three times, to see whether they come out the same."""


@dataclass
class Trial:
    """What was seen under one way of acting."""

    acting: Acting
    observations: list[np.ndarray] = field(default_factory=list)
    """All of them or, of images, the lowest and the highest byte seen of each: thousands of images are gigabytes."""
    rewards: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    """Steps of the episodes that came to an end."""
    terminated: int = 0
    truncated: int = 0
    successes: int = 0
    says_success: bool = False
    """`info` has held an entry about success."""
    step_seconds: float = 0.0
    reset_seconds: float = 0.0
    resets: int = 0
    failure: TaskFailure | None = None

    def see(self, observation: np.ndarray) -> None:
        if observation.dtype != np.uint8:
            self.observations.append(observation)
            return
        low, high = self.observations or (observation, observation)
        self.observations = [np.minimum(low, observation), np.maximum(high, observation)]

    @property
    def steps(self) -> int:
        return len(self.rewards)

    @property
    def nonzero(self) -> float:
        """Share of the steps with a reward other than 0."""
        return float(np.count_nonzero(self.rewards)) / max(self.steps, 1)


def play(env: HostEnv, acting: Acting, steps: int, seed: int) -> Trial:
    """`steps` steps, in as many episodes as they take; stops at the first failure, and keeps it."""
    trial, rng = Trial(acting), np.random.default_rng(seed)
    try:
        while trial.steps < steps:
            _play_episode(env, trial, steps, rng)
    except TaskFailure as failure:
        trial.failure = failure
    return trial


def _play_episode(env: HostEnv, trial: Trial, steps: int, rng: np.random.Generator) -> None:
    begun = time.perf_counter()
    trial.see(env.reset(int(rng.integers(2**31))))
    trial.reset_seconds += time.perf_counter() - begun
    trial.resets += 1
    action, length = random_action(env, rng), 0
    while trial.steps < steps:
        begun = time.perf_counter()
        step = env.step(action)
        trial.step_seconds += time.perf_counter() - begun
        length += 1
        trial.see(step.observation)
        trial.rewards.append(step.reward)
        trial.successes += step.success
        trial.says_success |= "success" in env.info or "is_success" in env.info
        if step.terminated or step.truncated:
            trial.lengths.append(length)
            trial.terminated += step.terminated
            trial.truncated += not step.terminated
            return
        if trial.acting == "random":
            action = random_action(env, rng)


def reports_success(source: EnvSource) -> bool:
    """Whether there is a success to speak of: by the rule, or because `info` mentions it in a random episode.

    One that fails cannot be asked, and is taken to report it.
    """
    if source.success != "info":
        return True
    env = source.make()
    try:
        trial = Trial("random")
        _play_episode(env, trial, env.horizon, np.random.default_rng(0))
    except TaskFailure:
        return True
    finally:
        env.close()
    return trial.says_success


def random_action(env: HostEnv, rng: np.random.Generator) -> Shaped[np.ndarray, "..."]:
    """Uniform, in the learner's units."""
    if env.choices is not None:
        return np.asarray(rng.integers(env.choices))
    return rng.uniform(-1.0, 1.0, env.layout.action_shape)


@dataclass(frozen=True)
class Difference:
    """The first place where the same seed and the same actions did not lead to the same."""

    again: Literal["a second environment", "the same environment after other episodes"]
    seed: int
    step: int
    what: str


def find_difference(source: EnvSource, steps: int) -> Difference | None:
    """Play the same seeds and actions in two new environments, and once more in the first; None: all the same."""
    steps = min(steps, REPEATED_STEPS)
    first, second = source.make(), source.make()
    try:
        recorded = _record(first, steps)
        for env, again in ((second, "a second environment"), (first, "the same environment after other episodes")):
            for (seed, number, before), (_, _, after) in zip(recorded, _record(env, steps), strict=False):
                what = _differ(before, after)
                if what is not None:
                    return Difference(again, seed, number, what)  # type: ignore[arg-type]
    finally:
        first.close()
        second.close()
    return None


def _record(env: HostEnv, steps: int) -> list[tuple[int, int, HostStep]]:
    """(seed, step in the episode, what came out); resets count as steps without a reward."""
    rng, seed = np.random.default_rng(0), 0
    out: list[tuple[int, int, HostStep]] = []
    while len(out) < steps:
        seed += 1
        out.append((seed, 0, HostStep(env.reset(seed), 0.0, False, False, False, env.cell)))
        # At most half of the steps in one episode, so that there are others to come back from.
        for number in range(1, max(steps // 2, 1) + 1):
            step = env.step(random_action(env, rng))
            out.append((seed, number, step))
            if step.terminated or step.truncated:
                break
    return out


def _differ(before: HostStep, after: HostStep) -> str | None:
    one, other = np.atleast_1d(before.observation), np.atleast_1d(after.observation)
    if not np.array_equal(one, other):
        index = int(np.flatnonzero(one != other)[0])
        return f"observation[{index}] is {other[index]} and was {one[index]}"
    for name in ("reward", "terminated", "truncated", "success"):
        mine, theirs = getattr(before, name), getattr(after, name)
        if mine != theirs:
            return f"{name} is {theirs} and was {mine}"
    return None


@dataclass(frozen=True)
class Scale:
    """One dimension of the observations."""

    low: float
    mean: float
    high: float
    deviation: float
    switch: bool
    """Only ever 0 or 1, as in a flattened choice."""

    @property
    def still(self) -> bool:
        """It never changed, but for rounding."""
        return self.high - self.low <= 1e-12 * max(1.0, abs(self.mean))


def observation_scales(observations: Float[np.ndarray, "steps size"]) -> list[Scale]:
    return [
        Scale(
            low=float(column.min()),
            mean=float(column.mean()),
            high=float(column.max()),
            deviation=float(column.std()),
            switch=bool(((column == 0) | (column == 1)).all()),
        )
        for column in observations.T
    ]

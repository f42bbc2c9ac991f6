"""What may be told of each evaluation while an agent learns: any function, and three that are ready.

A callback is called with an `Evaluation` after each one and may return False to stop:

    agent.learn(100_000, callback=lambda seen: seen.metrics["return"] < 90)
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyper_rl.errors import require, require_choice, require_count


@dataclass(frozen=True)
class Evaluation:
    """What a callback sees; nothing it does to it changes the training."""

    step: int
    """Environment steps taken."""
    metrics: Mapping[str, float]
    """One row of the curve: success, return, losses and so on; see docs/run-folder.md."""
    save: Callable[..., None]
    """`save(path, policy_only=False, overwrite=False)`: the agent as it is now."""


Callback = Callable[[Evaluation], Any]


def combine(callbacks: Callback | Sequence[Callback] | None) -> Callable[[Evaluation], bool]:
    """All of them are asked; one False stops."""
    if callbacks is None:
        return lambda evaluation: True
    listed = [callbacks] if callable(callbacks) else list(callbacks)
    return lambda evaluation: all([one(evaluation) is not False for one in listed])


class StopAtSuccess:
    """Stop once the success rate has been at least `rate` in `evaluations` evaluations running."""

    def __init__(self, rate: float = 1.0, evaluations: int = 2) -> None:
        require(0 < rate <= 1, "rate", rate, "in (0, 1]")
        require_count("evaluations", evaluations)
        self._rate, self._wanted, self._running = rate, evaluations, 0

    def __call__(self, evaluation: Evaluation) -> bool:
        self._running = self._running + 1 if evaluation.metrics["success"] >= self._rate else 0
        return self._running < self._wanted


class SaveCheckpoints:
    """Save the whole agent every `every` evaluations, keeping the newest `keep`."""

    def __init__(self, folder: str | Path, every: int = 10, keep: int = 2) -> None:
        require_count("every", every)
        require_count("keep", keep)
        self._folder, self._every, self._keep, self._seen = Path(folder), every, keep, 0
        self._saved: list[Path] = []

    def __call__(self, evaluation: Evaluation) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        path = self._folder / f"step-{evaluation.step:012d}"
        evaluation.save(path, overwrite=True)
        self._saved.append(path)
        while len(self._saved) > self._keep:  # only what this callback wrote itself
            shutil.rmtree(self._saved.pop(0), ignore_errors=True)


class SaveBest:
    """Keep the policy of the best evaluation so far, by success and then return, or by return alone."""

    def __init__(self, folder: str | Path, by: str = "success") -> None:
        require_choice("by", by, ("success", "return"))
        self._folder, self._by = Path(folder), by
        self.best: tuple[float, float] = (-math.inf, -math.inf)
        """(by, return) of the best one."""

    def __call__(self, evaluation: Evaluation) -> None:
        score = (evaluation.metrics[self._by], evaluation.metrics["return"])
        if score > self.best:
            self.best = score
            evaluation.save(self._folder, policy_only=True, overwrite=True)

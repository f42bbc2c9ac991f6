"""What may be told of each evaluation while an agent learns: any function, and three that are ready.

A callback is called with an `Evaluation` after each one and may return False to stop; whatever else it returns, or
nothing, goes on:

    agent.learn(100_000, callback=lambda seen: seen.metrics["return"] < 90)
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hyper_rl.agent_arguments import as_path
from hyper_rl.agent_store import first_foreign, require_free, require_place
from hyper_rl.errors import UserError, require, require_choice, require_count


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


class Saver:
    """A callback that writes: it is asked before training whether it can, and must not find out hours later."""

    def before_learning(self, step: int) -> None:
        """Refuse what would be in the way. `step`: environment steps already taken."""
        raise NotImplementedError


def list_callbacks(callbacks: Any) -> list[Callback]:
    """One, several or none."""
    if callbacks is None:
        return []
    if callable(callbacks):
        return [callbacks]
    listed = list(callbacks) if isinstance(callbacks, Iterable) else []
    fine = isinstance(callbacks, Iterable) and all(callable(one) for one in listed)
    require(fine, "callback", callbacks, "a function that takes an Evaluation, or a list of such functions")
    return listed


def combine(callbacks: Sequence[Callback]) -> Callable[[Evaluation], bool]:
    """All of them are asked; one False stops."""
    return lambda evaluation: not any([_is_false(one(evaluation)) for one in callbacks])


def _is_false(answer: Any) -> bool:
    """False itself, which a comparison with NumPy's or JAX's numbers gives as theirs; no answer is none."""
    one_switch = str(getattr(answer, "dtype", "")) == "bool" and getattr(answer, "shape", None) == ()
    return answer is False or (one_switch and not bool(answer))


class StopAtSuccess:
    """Stop once the success rate has been at least `rate` in `evaluations` evaluations running."""

    def __init__(self, rate: float = 1.0, evaluations: int = 2) -> None:
        require(0 < rate <= 1, "rate", rate, "in (0, 1]")
        require_count("evaluations", evaluations)
        self._rate, self._wanted, self._running = rate, evaluations, 0

    def __call__(self, evaluation: Evaluation) -> bool:
        self._running = self._running + 1 if evaluation.metrics["success"] >= self._rate else 0
        return self._running < self._wanted


class SaveCheckpoints(Saver):
    """Save the whole agent every `every` evaluations, keeping the newest `keep`.

    Agents of the same steps that another run has saved in `folder` are replaced only with `overwrite`.
    """

    def __init__(self, folder: str | Path, every: int = 10, keep: int = 2, *, overwrite: bool = False) -> None:
        require_count("every", every)
        require_count("keep", keep)
        self._folder, self._every, self._keep, self._seen = as_path("folder", folder), every, keep, 0
        self._overwrite = overwrite
        self._saved: list[Path] = []

    def before_learning(self, step: int) -> None:
        require_place("folder", self._folder / "step-N")
        for path in sorted(self._folder.glob("step-*")):
            number = path.name.removeprefix("step-")
            if not (number.isdigit() and int(number) > step) or path in self._saved:
                continue  # what this run will not come to, or has written itself
            if not self._overwrite:
                raise UserError(
                    f"folder: {self._folder} holds {path.name} of another run; choose another, or give overwrite=True"
                )
            require_free("folder", path, overwrite=True)

    def __call__(self, evaluation: Evaluation) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        path = self._folder / f"step-{evaluation.step:012d}"
        evaluation.save(path, overwrite=self._overwrite or path in self._saved)
        self._saved = [*(one for one in self._saved if one != path), path]
        while len(self._saved) > self._keep:  # only what this callback wrote itself
            old = self._saved.pop(0)
            if first_foreign(old) is None:
                shutil.rmtree(old, ignore_errors=True)


class SaveBest(Saver):
    """Keep the policy of the best evaluation so far, by success and then return, or by return alone.

    An agent that is in `folder` already, and that this object has not saved, is replaced only with `overwrite`.
    """

    def __init__(self, folder: str | Path, by: str = "success", *, overwrite: bool = False) -> None:
        require_choice("by", by, ("success", "return"))
        self._folder, self._by, self._overwrite = as_path("folder", folder), by, overwrite
        self.best: tuple[float, float] = (-math.inf, -math.inf)
        """(by, return) of the best one."""

    def before_learning(self, step: int) -> None:
        require_free("folder", self._folder, overwrite=self._overwrite)

    def __call__(self, evaluation: Evaluation) -> None:
        score = (evaluation.metrics[self._by], evaluation.metrics["return"])
        if score > self.best:
            evaluation.save(self._folder, policy_only=True, overwrite=self._overwrite)
            self.best = score
            self._overwrite = True  # from here on what is there is its own

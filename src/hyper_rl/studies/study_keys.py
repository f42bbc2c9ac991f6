"""The keys of a study file and what each of them may be.

They are those of `hyper-rl train`; only `beta` and `seeds` span the runs of one program, and any other key may be given
several values, each of which makes groups of its own.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.config import LARGEST_SEED
from hyper_rl.errors import require, require_choice, require_count, require_finite, require_probability
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.methods.explorer_reward import BONUS_SCALES, RewardScale
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.methods.policies import METHODS
from hyper_rl.own_parts import require_known
from hyper_rl.presets import PRESETS
from hyper_rl.registry import Registry
from hyper_rl.settings import BACKENDS

Check = Callable[[str, Any], Any]
"""(key, value as TOML gives it) -> the value as it is used; raises UserError."""


def _count(low: int = 1) -> Check:
    def check(key: str, value: Any) -> int:
        require_count(key, value, low=low)
        return int(value)

    return check


def _choice(allowed: Sequence[str]) -> Check:
    def check(key: str, value: Any) -> str:
        require(isinstance(value, str), key, value, f"one of {', '.join(allowed)}")
        require_choice(key, value, allowed)
        return str(value)

    return check


def _part(known: Registry) -> Check:
    def check(key: str, value: Any) -> str:
        require(isinstance(value, str), key, value, f"one of {', '.join(known)}")
        require_known(key, value, known)
        return str(value)

    return check


def _text(key: str, value: Any) -> str:
    require(isinstance(value, str) and bool(value), key, value, "a text")
    return str(value)


def _flag(key: str, value: Any) -> bool:
    require(isinstance(value, bool), key, value, "true or false")
    return bool(value)


def _number(key: str, value: Any) -> float:
    require(_is_number(value), key, value, "a number")
    require_finite(key, value)
    return float(value)


def _beta(key: str, value: Any) -> float:
    require(_is_number(value), key, value, "a finite number >= 0")
    require_finite(key, value, low=0.0)
    return float(value)


def _probability(key: str, value: Any) -> float:
    require(_is_number(value), key, value, "a probability in (0, 1]")
    require_probability(key, value)
    return float(value)


def _p_end(key: str, value: Any) -> float | str:
    if value == "1/H":
        return "1/H"
    require(_is_number(value), key, value, "a probability in (0, 1] or '1/H'")
    return _probability(key, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


KEYS: Mapping[str, Check] = MappingProxyType(
    {
        "task": _text,
        "method": _choice(METHODS),
        "learner": _part(LEARNERS),
        "bonus": _part(BONUSES),
        "preset": _choice(PRESETS),
        "beta": _beta,
        "steps": _count(),
        "warmup": _count(0),
        "eval_every": _count(),
        "eval_episodes": _count(),
        "horizon": _count(),
        "p_start": _probability,
        "p_end": _p_end,
        "lengths": _choice(("bounded", "plain")),
        "bonus_scale": _choice(BONUS_SCALES),
        "reward_scale": _choice(typing.get_args(RewardScale)),
        "capacity": _count(),
        "train_every": _count(),
        "gradient_steps": _count(),
        "normalise_observations": _flag,
        "backend": _choice(BACKENDS),
        "env_module": _text,
        "success": _text,
        "variant": _text,
    }
)
"""One value each, or several; `seeds` has a form of its own. `variant` changes nothing: a name for the figures."""

PLURALS: Mapping[str, str] = MappingProxyType(
    {"tasks": "task", "methods": "method", "learners": "learner", "bonuses": "bonus", "presets": "preset",
     "betas": "beta"}
)  # fmt: skip
"""Other spellings, which read better beside a list."""

ENV = "env"
CELLS = frozenset({"subgoal", "start", "goal"})
"""Options of a task that are a row and a column, so that a list of two numbers is one value."""


def parts() -> tuple[str, ...]:
    """Tables of options: a learner's, a bonus's, those of the method lesson. Modules may have added some."""
    return (*LEARNERS, *BONUSES, "lesson")


def part_checks(part: str) -> dict[str, Check]:
    """The options of a learner, a bonus or lesson."""
    made = LessonOptions if part == "lesson" else LEARNERS[part] if part in LEARNERS else BONUSES[part]
    hints = typing.get_type_hints(made)
    return {name: _check_of(hint) for name, hint in hints.items() if not name.startswith("_")}


def takes_a_list(part: str, name: str) -> bool:
    """Whether one value is itself a list, such as the widths of a network."""
    if part == ENV:
        return name in CELLS
    made = LessonOptions if part == "lesson" else LEARNERS[part] if part in LEARNERS else BONUSES[part]
    return typing.get_origin(typing.get_type_hints(made).get(name)) is tuple


def _check_of(hint: Any) -> Check:
    if typing.get_origin(hint) is Literal:
        return _choice(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        return _list_of(_check_of(typing.get_args(hint)[0]))
    simple: dict[Any, Check] = {float: _number, int: _count(0), bool: _flag, str: _text}
    return simple.get(hint, lambda key, value: value)


def _list_of(check: Check) -> Check:
    def check_all(key: str, value: Any) -> tuple[Any, ...]:
        require(isinstance(value, list | tuple), key, value, "a list")
        return tuple(check(key, one) for one in value)

    return check_all


def check_env(key: str, value: Any) -> Any:
    """Only the task knows its options: here no more than plain values."""
    if isinstance(value, list):
        return tuple(value)
    require(not isinstance(value, dict), key, value, "a value, no table")
    if isinstance(value, float):
        require_finite(key, value)
    return value


def check_seeds(key: str, value: Any) -> Sequence[int]:
    """How many (0, 1, 2, ...), or which."""
    if not isinstance(value, list):
        require_count(key, value)
        require(value - 1 <= LARGEST_SEED, key, value, f"at most {LARGEST_SEED + 1}")
        return range(value)
    require(bool(value), key, value, "a whole number >= 1 or a list with at least one seed")
    for seed in value:
        require_count(key, seed, low=0)
        require(seed <= LARGEST_SEED, key, seed, f"between 0 and {LARGEST_SEED}")
    require(len(set(value)) == len(value), key, value, "a list without repetitions: the same run twice is no new run")
    return tuple(value)

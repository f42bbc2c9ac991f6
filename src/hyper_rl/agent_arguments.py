"""What comes to an agent object must be of the right kind, and must not be ignored: from Python anything can come."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx

from hyper_rl.bonuses.base import Bonus
from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.envs.host_env import SUCCESS_RULES
from hyper_rl.envs.observation_reader import brief
from hyper_rl.errors import UserError, require
from hyper_rl.learners.base import Learner
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.registry import Registry
from hyper_rl.settings import Settings, require_word

FROM_ARGUMENTS = {"choice", "method", "betas", "seeds", "steps"}
"""Settings that an agent object makes from arguments of other names."""


def require_settings(settings: Mapping[str, Any], method: str, constructor: Callable[..., Any]) -> None:
    """Refuse a keyword that is no setting; one of a learner or bonus is shown its place."""
    fields = {f.name for f in dataclasses.fields(Settings)} - FROM_ARGUMENTS
    known = fields if method == "lesson" else fields - {"lesson"}
    for name, value in settings.items():
        if name in known:
            continue
        for part, registry in (("learner", LEARNERS), ("bonus", BONUSES)):
            owners = _classes_with(name, registry)
            if owners:
                its = f"belongs to the {part} ({', '.join(owners)}), not to the agent"
                raise UserError(f"{name}: {its}; give it there, as in {part}={owners[0]}({name}={brief(value)})")
        named = (word for word, one in inspect.signature(constructor).parameters.items() if one.kind != one.VAR_KEYWORD)
        there_are = ", ".join(sorted({*named, *known} - {"self"}))
        raise UserError(
            f"{name}: not a setting; there are {there_are}; a learner's own are given to it, as in "
            "learner=TD3(gamma=0.9, lr=1e-3)"
        )


def _classes_with(name: str, registry: Registry) -> list[str]:
    configured = (made for made in registry.values() if dataclasses.is_dataclass(made))
    return [made.__name__ for made in configured if name in {f.name for f in dataclasses.fields(made)}]


def require_parts(method: str, learner: object, bonus: object) -> None:
    if method == "exploit" and bonus is not None:
        raise UserError(f"bonus: got {bonus!r}, must be left out with method 'exploit', which has no explorer")
    _require_part("learner", learner, Learner, "TD3(lr=1e-3)")
    _require_part("bonus", bonus, Bonus, "ICM()")


def _require_part(field: str, value: object, kind: type[Learner] | type[Bonus], example: str) -> None:
    """A class, a number or a dictionary would otherwise be taken for "nothing said"."""
    # The class itself has all that its objects have, so the protocol alone would let it pass.
    configured = isinstance(value, eqx.Module) and isinstance(value, kind)
    fine = value is None or isinstance(value, str) or configured
    require(fine, field, value, f"a name, or a configured object such as {example}")


def require_environments(env: Any, env_kwargs: Any, eval_env: Any, success: Any) -> None:
    """What comes with an environment must be of the right kind, and must not be ignored."""
    named = isinstance(env_kwargs, Mapping) and all(isinstance(name, str) for name in env_kwargs)
    require(env_kwargs is None or named, "env_kwargs", env_kwargs, "a dictionary of keyword arguments")
    if success is not None:
        require_word("success", success, SUCCESS_RULES)
    if eval_env is None:
        return
    makes = callable(eval_env) and not _is_environment(eval_env)
    require(makes, "eval_env", eval_env, "a function that makes environments; several are judged in at once")
    alone = env is None or isinstance(env, str) or (callable(env) and not _is_environment(env))
    needless = "left out unless env is an environment object; what an id or a function makes is judged in, too"
    require(not alone, "eval_env", eval_env, needless)


def _is_environment(value: Any) -> bool:
    """An environment, not its class, which makes some; Gymnasium need not be installed to ask."""
    return not isinstance(value, type) and hasattr(value, "reset") and hasattr(value, "step")


def as_path(field: str, value: Any) -> Path:
    """A path as a person writes it, `~` for the home folder included."""
    require(isinstance(value, (str, os.PathLike)), field, value, "a path")
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise UserError(f"{field}: got {str(value)!r}, must be a path whose home folder is known") from None

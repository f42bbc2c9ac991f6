"""Making a Gymnasium environment, with one line for every way in which that fails."""

from __future__ import annotations

import difflib
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from hyper_rl.envs.mujoco_warnings import models_loaded_quietly
from hyper_rl.errors import UserError, missing_extra

if TYPE_CHECKING:
    import gymnasium

EXTRA = "mujoco"
"""The extra of this package that installs Gymnasium."""
NEAREST = 3
OWN_NAMESPACE, OWN_TASKS = "hyper_rl/", "hyper_rl.envs.gym_tasks"


def make_environment(
    env_id: str, kwargs: Mapping[str, Any], module: str | None, factory: Callable[[], gymnasium.Env] | None
) -> gymnasium.Env:
    """One environment, from the factory where there is one."""
    gymnasium = import_gymnasium()
    if module is not None:
        import_registering(module)
    elif env_id.startswith(OWN_NAMESPACE) and env_id not in gymnasium.registry:
        import_registering(OWN_TASKS)  # a source tree that is not installed has no entry point
    if factory is None:
        entry = gymnasium.registry.get(env_id)
        with models_loaded_quietly(str(entry.entry_point) if entry is not None else ""):
            env = _make_by_id(gymnasium, env_id, kwargs)
    else:
        try:
            with models_loaded_quietly():
                env = factory()
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            raise UserError(
                f"environment {env_id}: cannot be made: {type(error).__name__}: {one_line(error)}"
            ) from error
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise UserError(
            f"environment {env_id}: a vector environment ({type(env).__name__}), must be a single one; "
            "several are run side by side here, and reset here"
        )
    if not isinstance(env, gymnasium.Env):
        raise UserError(f"environment {env_id}: a {type(env).__name__}, must be a gymnasium.Env")
    if any(isinstance(layer, gymnasium.wrappers.Autoreset) for layer in layers(env)):
        env.close()
        raise UserError(f"environment {env_id}: resets itself; take the Autoreset wrapper off, resets are made here")
    return env


def import_gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise missing_extra("a Gymnasium environment", EXTRA) from None
    if int(gymnasium.__version__.split(".")[0]) < 1:
        raise UserError(f"gymnasium: version {gymnasium.__version__} is installed, must be at least 1.0")
    return gymnasium


def import_registering(module: str) -> None:
    """Import the module that registers an id; one in the current folder is found too, as `python -m` would."""
    try:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            here = os.getcwd()
            if error.name != module.split(".")[0] or here in sys.path:
                raise
            sys.path.append(here)
            importlib.import_module(module)
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"env_module: cannot import {module!r}: {said}") from error


def layers(env: gymnasium.Env) -> Iterator[gymnasium.Env]:
    """The environment and what its wrappers hold, from the outside in."""
    while True:
        yield env
        inner = getattr(env, "env", None)
        if inner is None or env.unwrapped is env:
            return
        env = inner


def episode_limit(env: gymnasium.Env) -> int | None:
    """The task's own limit: that of its `TimeLimit` wrappers, or what it is registered with."""
    from gymnasium.wrappers import TimeLimit

    limits = [layer._max_episode_steps for layer in layers(env) if isinstance(layer, TimeLimit)]
    if limits:
        return int(min(limits))
    stated = env.spec.max_episode_steps if env.spec is not None else None
    return int(stated) if stated is not None and stated > 0 else None


def _make_by_id(gymnasium: Any, env_id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env:
    try:
        # Gymnasium's passive checker is left out: what we need is checked in every step, and cheaper.
        return gymnasium.make(env_id, **{"disable_env_checker": True, **kwargs})
    except (gymnasium.error.UnregisteredEnv, ModuleNotFoundError) as error:
        # A missing simulator is a ModuleNotFoundError too, of an id that exists.
        if env_id in gymnasium.registry:
            raise _cannot_make(env_id, error) from error
        raise _unknown_id(gymnasium, env_id, error) from error
    except gymnasium.error.DependencyNotInstalled as error:
        if "mujoco" in str(error).lower():
            raise missing_extra(f"environment {env_id}", EXTRA) from error
        raise _cannot_make(env_id, error) from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise _cannot_make(env_id, error) from error


def _cannot_make(env_id: str, error: BaseException) -> UserError:
    return UserError(f"environment {env_id}: cannot be made: {type(error).__name__}: {one_line(error)}")


def _unknown_id(gymnasium: Any, env_id: str, error: Exception) -> UserError:
    # Ids are registered from the oldest version to the newest, and the newest is the one to offer.
    newest = {name.rpartition("-v")[0].lower(): name for name in gymnasium.registry}
    wanted = re.sub(r"-v\d+$", "", env_id).lower()
    near = [newest[name] for name in difflib.get_close_matches(wanted, newest, n=NEAREST, cutoff=0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"({one_line(error)})"
    own = "Import the module that registers an id of your own first; for a command, --env-module does so"
    return UserError(f"env: unknown {env_id!r}; {hint} {own}")


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())

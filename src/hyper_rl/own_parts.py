"""Learners and bonuses of the user's own, by name.

The module that adds them to the registries is imported before a name is looked up: the command's `--env-module`, the
key `env_module` of a study file, the module in a run folder's configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.envs.gym_make import import_registering
from hyper_rl.envs.registry import TASKS
from hyper_rl.errors import UserError, unknown_name
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.registry import Registry

if TYPE_CHECKING:
    from hyper_rl.config import Config


def require_known(field: str, name: str, known: Registry) -> None:
    if name not in known:
        own = "one of your own is known once its module is imported, which --env-module does for a command"
        raise UserError(f"{unknown_name(field, name, known)}; {own}")


def module_for_task(task: str, module: str | None) -> str | None:
    """The module as the one that registers the task: a task of ours needs none, there it is imported for its parts."""
    return None if task in TASKS else module


def import_stored(config: Config, module: str | None = None) -> None:
    """Have the parts of a stored configuration known: by `module`, or by the one that the configuration names.

    Nothing is imported where they are known already, so that what is stored can be read without its environment.
    """
    found = module or (None if config.host is None else config.host["module"])
    unknown = config.learner not in LEARNERS or config.bonus not in (*BONUSES, "none")
    if unknown and found is not None:
        import_registering(found)

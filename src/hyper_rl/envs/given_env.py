"""What a person hands to an agent object: a name, an environment, or a function that makes environments.

An environment that is given is stepped, never closed. Judging needs environments of its own, because an episode in
progress must not be touched: they are made from the given one's Gymnasium id, or by the function, or `eval_env` is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hyper_rl.config import Config
from hyper_rl.envs.base import TaskSpec
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_task import same_spaces
from hyper_rl.envs.space_json import same_actions, spaces_in_words
from hyper_rl.errors import UserError, missing_extra
from hyper_rl.settings import TaskChoice, choose_environment, choose_task

if TYPE_CHECKING:
    import gymnasium


def choose_given(
    env: Any,
    env_kwargs: Mapping[str, Any] | None,
    eval_env: Any,
    horizon: int | None,
    success: str | None,
) -> TaskChoice:
    """The task behind whatever was given."""
    if isinstance(env, str):
        return choose_task(env, options=env_kwargs, horizon=horizon, success=success)
    if env_kwargs:
        raise UserError(f"env_kwargs: got {dict(env_kwargs)!r}, must be left out with an environment that is made")
    given = GivenEnvironments(env, eval_env)
    source = EnvSource(given.name, factory=given, horizon=horizon, success=success or "info")  # type: ignore[arg-type]
    choice = choose_environment(given.name, source)
    if eval_env is not None:
        judged_in = replace(source_for_judging(source), env_id="eval_env")  # the name in messages
        _require_like(choose_environment("eval_env", judged_in), choice)
    return choice


def source_for_judging(source: EnvSource) -> EnvSource:
    """The same environments without the one that was given, whose episode in progress must not be touched."""
    given = source.factory
    return replace(source, factory=given.another) if isinstance(given, GivenEnvironments) else source


def _require_like(judged: TaskChoice, trained: TaskChoice) -> None:
    """A policy would be judged on what it reads by mistake, or with actions that mean something else."""
    assert judged.spaces is not None and trained.spaces is not None
    if not (same_spaces(judged.spec, trained.spec) and same_actions(judged.spaces, trained.spaces)):
        there, here = (spaces_in_words(one.spec, one.spaces) for one in (judged, trained))
        raise UserError(f"eval_env: makes environments with {there}, must be as those of {trained.name}, with {here}")


def other_spaces(field: str, choice: TaskChoice, config: Config, known: TaskSpec) -> UserError:
    """For an environment that is not of the kind that an agent was trained on."""
    there = spaces_in_words(choice.spec, choice.spaces)
    own = spaces_in_words(known, None if config.host is None else config.host["spaces"])
    return UserError(
        f"{field}: {choice.name} has other spaces ({there}) than {config.task}, on which it learned ({own})"
    )


class GivenEnvironments:
    """Makes environments: the given one first, then others like it."""

    def __init__(self, env: Any, eval_env: Any) -> None:
        try:
            import gymnasium
        except ImportError:
            raise missing_extra("training on a Gymnasium environment", "gymnasium") from None
        self._wrapper = _lent(gymnasium)
        self._given: gymnasium.Env | None = None
        self._make: Callable[[], gymnasium.Env]
        if isinstance(env, gymnasium.Env):
            self._given = env
            self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
            self._make = self._maker(env, eval_env)
        elif callable(env):
            self.name, self._make = getattr(env, "__name__", type(env).__name__), env
        else:
            raise UserError(
                f"env: got {env!r}, must be a task or Gymnasium id, an environment, or a function that makes one"
            )
        self._lent_out = False

    def _maker(self, env: gymnasium.Env, eval_env: Any) -> Callable[[], gymnasium.Env]:
        """What makes others like the environment that was given."""
        import gymnasium

        if callable(eval_env) and not isinstance(eval_env, gymnasium.Env):
            return eval_env
        if eval_env is not None:
            raise UserError(
                f"eval_env: got {eval_env!r}, must be a function that makes environments; several are judged in at once"
            )
        spec = env.spec
        if spec is None:
            raise self._only_one("has no Gymnasium id to be made again by")
        for wrapper in spec.additional_wrappers or ():
            if wrapper.kwargs is None:  # Gymnasium knows its name, but not what it was made with
                raise self._only_one(f"is wrapped in {wrapper.name}, which Gymnasium cannot put around another")
        return lambda: gymnasium.make(spec)

    def _only_one(self, why: str) -> UserError:
        return UserError(
            f"eval_env: {self.name} {why}, and judging needs environments of its own; give eval_env=, a function that "
            "makes one, or a function instead of the environment"
        )

    def _take_back(self) -> None:
        self._lent_out = False

    def __call__(self) -> gymnasium.Env:
        """The given environment, until it is closed, serves the one run; judging comes later and gets others."""
        if self._given is not None and not self._lent_out:
            self._lent_out = True
            return self._wrapper(self._given, self._take_back)
        return self.another()

    def another(self) -> gymnasium.Env:
        """One like it, to be judged in."""
        made = self._make()
        if self._given is not None and getattr(made, "unwrapped", made) is self._given.unwrapped:
            raise UserError("eval_env: gave the environment that is trained in, must make a new one at every call")
        return made


def _lent(gymnasium: Any) -> Callable[[Any, Callable[[], None]], Any]:
    class Lent(gymnasium.Wrapper):
        """Somebody else's environment: closing it is their business, here it is only given back."""

        def __init__(self, env: Any, give_back: Callable[[], None]) -> None:
            super().__init__(env)
            self._give_back = give_back

        @property
        def spec(self) -> Any:
            return self.env.spec  # of what was given: this wrapper is nothing that anybody asked for

        def close(self) -> None:
            self._give_back()

    return Lent

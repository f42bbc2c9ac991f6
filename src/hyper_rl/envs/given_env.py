"""What a person hands to an agent object: a name, an environment, or a function that makes environments.

An environment that is given is stepped, never closed. Judging needs environments of its own, because an episode in
progress must not be touched: they are made from the given one's Gymnasium id, or by the function, or `eval_env` is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hyper_rl.envs.host_env import EnvSource
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
    return choose_environment(given.name, source)


class GivenEnvironments:
    """Makes environments: the given one first, then others like it."""

    def __init__(self, env: Any, eval_env: Any) -> None:
        try:
            import gymnasium
        except ImportError:
            raise missing_extra("training on a Gymnasium environment", "gymnasium") from None
        self._wrapper = _lent(gymnasium)
        self._given: gymnasium.Env | None = None
        self._make: Callable[[], gymnasium.Env] | None = None
        if isinstance(env, gymnasium.Env):
            self._given = env
            self.name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
            self._make = self._another(env, eval_env)
            if self._make is None:
                raise UserError(
                    f"eval_env: {self.name} has no Gymnasium id to be made again by, and judging needs environments of "
                    "its own; give eval_env=, a function that makes one, or a function instead of the environment"
                )
        elif callable(env):
            self.name, self._make = getattr(env, "__name__", type(env).__name__), env
        else:
            raise UserError(
                f"env: got {env!r}, must be a task or Gymnasium id, an environment, or a function that makes one"
            )
        self._lent_out = False

    def _another(self, env: gymnasium.Env, eval_env: Any) -> Callable[[], gymnasium.Env] | None:
        import gymnasium

        if callable(eval_env) and not isinstance(eval_env, gymnasium.Env):
            return eval_env
        if eval_env is not None:
            raise UserError(
                f"eval_env: got {eval_env!r}, must be a function that makes environments; several are judged in at once"
            )
        spec = env.spec
        return None if spec is None else lambda: gymnasium.make(spec)

    def _take_back(self) -> None:
        self._lent_out = False

    def __call__(self) -> gymnasium.Env:
        """The given environment, until it is closed, serves the one run; judging comes later and gets others."""
        if self._given is not None and not self._lent_out:
            self._lent_out = True
            return self._wrapper(self._given, self._take_back)
        assert self._make is not None
        return self._make()


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

"""What an off-policy learner is.

A learner is an `equinox.Module`: its numbers are leaves (one value per run), its structure is static. Its functions
are pure and unbatched over runs and over the learner axis; the training loop maps them. Task learner and explorer are
two copies of one learner's state, stacked, that see the same batch with different rewards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.observations import refuse_images
from hyper_rl.types import Transition

LearnerState: TypeAlias = Any
T = TypeVar("T")


class KnownPlace(eqx.Module):
    """The number of an update, and its place in the learner's period, which the compiled program is written for.

    Given only to learners that have a `period`: what they do at update i is what they do at update i + period.
    """

    number: Int[Array, ""]
    place: int = eqx.field(static=True)
    period: int = eqx.field(static=True)

    def __mod__(self, divisor: int) -> int | Int[Array, ""]:
        return self.place % divisor if self.period % divisor == 0 else self.number % divisor


UpdateIndex: TypeAlias = Int[Array, ""] | KnownPlace


class UpdateInfo(NamedTuple):
    """What one update reports. A learner without an actor leaves `actor_loss` at 0."""

    loss: Float[Array, ""]
    actor_loss: Float[Array, ""]


@runtime_checkable
class Learner(Protocol):
    @property
    def batch_size(self) -> int:
        """Transitions sampled from the replay for each update; 0 means the learner needs no replay."""
        ...

    @property
    def uses_newest(self) -> bool:
        """The newest transition stands first in the batch (tabular learners back it up at once)."""
        ...

    @property
    def gamma(self) -> float: ...

    def check(self, spec: TaskSpec) -> None:
        """Raise `UserError` when the learner does not fit the task's spaces."""
        ...

    def init(self, key: PRNGKeyArray, spec: TaskSpec, optimism: Float[Array, ""]) -> LearnerState:
        """`optimism`: the value of the largest bonus for ever, where untried actions of an optimistic table start."""
        ...

    def observe(self, state: LearnerState, newest: Transition) -> LearnerState:
        """Take note of one new transition (running statistics); called at every environment step."""
        ...

    def act(self, state: LearnerState, observation: Shaped[Array, "..."], key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """The action to collect data with: the learner's own action noise included."""
        ...

    def judge(self, state: LearnerState, observation: Shaped[Array, "..."], key: PRNGKeyArray) -> Shaped[Array, "..."]:
        """The action to be judged by: no noise (the key only breaks ties)."""
        ...

    def estimate(self, state: LearnerState, observation: Shaped[Array, "..."]) -> Float[Array, ""]:
        """The learner's own idea of the value of `observation` under its judged policy."""
        ...

    def update(
        self,
        state: LearnerState,
        batch: Transition,
        rewards: Float[Array, " batch"],
        key: PRNGKeyArray,
        index: Any,
    ) -> tuple[LearnerState, UpdateInfo]:
        """`rewards` replaces `batch.reward`; `index` counts updates from 1 and is shared by all runs.

        It is an integer on the device, or a `KnownPlace` for a learner that has a `period`.
        """
        ...

    def policy(self, state: LearnerState) -> Any:
        """The part of the state that `judge` and `estimate` need: what an agent file holds."""
        ...


def period_of(learner: Learner) -> int:
    """Its property `period`, where it has one."""
    return int(getattr(learner, "period", 1))


def only_if(due: bool | Bool[Array, ""], change: Callable[[T], T], state: T) -> T:
    """`change(state)` if it is due. Where that is only known on the device, it must be the same for all runs: then it
    stays a true branch under vmap and costs nothing when not taken."""
    if isinstance(due, bool):
        return change(state) if due else state
    return jax.lax.cond(due, change, lambda unchanged: unchanged, state)


def require_continuous(learner: str, spec: TaskSpec) -> None:
    """For a learner of vectors: refuse a task with numbered actions or observations or images, naming what fits."""
    refuse_images(spec, "learner", learner)
    if not isinstance(spec.action, Box):
        fits = "'dqn'" if isinstance(spec.observation, Box) else "'dqn' or 'tabular_q'"
        raise UserError(
            f"learner: '{learner}' needs continuous actions, and {spec.name} has a finite set of them; use {fits}"
        )
    if not isinstance(spec.observation, Box):
        raise UserError(
            f"learner: '{learner}' needs continuous observations, and those of {spec.name} are discrete; wrap the "
            "environment in gymnasium.wrappers.FlattenObservation, which makes vectors of them"
        )

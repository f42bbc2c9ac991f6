"""What a bonus is: an intrinsic reward that is recomputed on every sampled batch, never stored."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyper_rl.envs.base import TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.types import Transition

BonusState: TypeAlias = Any


@runtime_checkable
class Bonus(Protocol):
    @property
    def largest(self) -> float:
        """The bonus of something never tried, for optimistic starts; 0 where there is no such bound."""
        ...

    def check(self, spec: TaskSpec) -> None:
        """Raise `UserError` when the bonus does not fit the task's spaces."""
        ...

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> BonusState: ...

    def observe(self, state: BonusState, newest: Transition) -> BonusState:
        """Take note of one new transition (counts, running statistics); called at every environment step."""
        ...

    def reward(self, state: BonusState, batch: Transition) -> Float[Array, " batch"]:
        """The raw bonus of each transition in the batch."""
        ...

    def learn(
        self, state: BonusState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], BonusState, Float[Array, ""]]:
        """The bonus as `reward` gives it *before* training on the batch, the state after it, and the loss.

        One function, because both need the same forward pass.
        """
        ...


def learn_bonus(
    bonus: Bonus, state: BonusState, batch: Transition, key: PRNGKeyArray
) -> tuple[Float[Array, " batch"], BonusState, Float[Array, ""]]:
    """`bonus.learn`, whose answer is looked at: of a wrong shape it would only fail far away, under another name."""
    where, answer = f"bonus: {type(bonus).__name__}.learn", bonus.learn(state, batch, key)
    if not (isinstance(answer, tuple) and len(answer) == 3):
        raise UserError(f"{where} returned a {type(answer).__name__}, must be (bonus, state, loss)")
    for name, value, shape in (("bonus", answer[0], batch.reward.shape), ("loss", answer[2], ())):
        if jnp.shape(value) != shape:
            each = "one number for each transition of the batch" if name == "bonus" else "one number"
            raise UserError(f"{where} returned a {name} of shape {jnp.shape(value)}, must be {shape}: {each}")
    return answer

"""Probe tasks: so small that the right values are known, each asking one question of a learner.

| task                  | question                                            | right answer                      |
|-----------------------|-----------------------------------------------------|-----------------------------------|
| ProbeConstant         | can the critic learn a constant?                    | Q = 1 everywhere                  |
| ProbeObservation      | can it tell observations apart?                     | Q(o) = o, o = +1 or -1            |
| ProbeDiscount         | does it discount?                                   | Q = gamma at step 1, 1 at step 2  |
| ProbeAction           | does the policy find the better action?             | a = +0.5 or 1 (discrete)          |
| ProbeCredit           | is the first of two actions credited for the second? | first action as above             |

Each has a continuous form for deep learners and a discrete one for tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete, StepResult, TaskSpec

Question = Literal["Constant", "Observation", "Discount", "Action", "Credit"]
LAST_STEP: dict[Question, int] = {"Constant": 0, "Observation": 0, "Discount": 1, "Action": 0, "Credit": 1}
BEST_ACTION = 0.5


class ProbeState(eqx.Module):
    step: Shaped[Array, ""]
    sign: Float[Array, ""]
    quality: Float[Array, ""]
    """How good the first action was, for the credit probe."""


class Probe(eqx.Module):
    """A one- or two-step episode whose values can be worked out by hand."""

    question: Question = eqx.field(static=True)
    discrete: bool = eqx.field(static=True, default=False)
    horizon: int = 10

    @property
    def spec(self) -> TaskSpec:
        name = f"Probe{self.question}{'-Discrete' if self.discrete else ''}"
        if self.discrete:
            return TaskSpec(name, Discrete(4), Discrete(2), 4, (1, 4))
        return TaskSpec(name, Box(2, -1.0, 1.0), Box(1, -1.0, 1.0), 4, (1, 4))

    def reset(self, key: PRNGKeyArray) -> ProbeState:
        sign = jnp.where(jax.random.bernoulli(key), 1.0, -1.0).astype(float)
        return ProbeState(jnp.zeros((), jnp.int32), sign, jnp.zeros((), float))

    def step(self, state: ProbeState, action: Shaped[Array, "..."], key: PRNGKeyArray) -> StepResult:
        quality = action.astype(float) if self.discrete else 1 - jnp.square(action[0] - BEST_ACTION)
        last = state.step == LAST_STEP[self.question]
        paid = {
            "Constant": jnp.ones((), float),
            "Observation": state.sign,
            "Discount": jnp.ones((), float),
            "Action": quality,
            "Credit": state.quality,
        }[self.question]
        reward = jnp.where(last, paid, jnp.zeros((), float))
        after = ProbeState(state.step + 1, state.sign, quality)
        return StepResult(after, reward, last, last & (reward > 0.5))

    def _told(self, state: ProbeState) -> Float[Array, ""]:
        """What the observation shows besides the step: the sign or, where credit is asked for, what was done."""
        if self.question != "Credit":
            return state.sign
        return jnp.where(state.step > 0, state.quality, state.sign)

    def observe(self, state: ProbeState) -> Shaped[Array, "..."]:
        if self.discrete:
            return self.cell(state)
        return jnp.stack([jnp.minimum(state.step, 1).astype(float), self._told(state)])

    def cell(self, state: ProbeState) -> Shaped[Array, ""]:
        return 2 * jnp.minimum(state.step, 1) + (self._told(state) > 0).astype(jnp.int32)


@dataclass(frozen=True)
class ProbeEntry:
    make: Callable[..., Probe]
    about: str
    learner: str
    bonus: str


def _entry(question: Question, discrete: bool) -> ProbeEntry:
    learner, bonus = ("tabular_q", "counts") if discrete else ("td3", "disagreement")
    return ProbeEntry(partial(Probe, question, discrete), f"probe: {question.lower()}", learner, bonus)


PROBES: Mapping[str, ProbeEntry] = MappingProxyType(
    {
        f"Probe{question}{'-Discrete' if discrete else ''}": _entry(question, discrete)
        for question in LAST_STEP
        for discrete in (False, True)
    }
)

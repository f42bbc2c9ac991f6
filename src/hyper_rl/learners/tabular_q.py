"""Tabular Q-learning with a stationary table: the learner of the 30x30 room, UCB-Q and its Hyper.

    Q(s, a) <- Q(s, a) + alpha (r + gamma (1 - terminated) max_a' Q(s', a') - Q(s, a))

The newest transition is backed up at once, then `replay` more from the buffer, one after another. The explorer's
table starts optimistic at beta / (1 - gamma), the value of the first bonus for ever; the task table starts at 0. Time
limits bootstrap. (Tables indexed by the step of the episode, as in Jin et al. 2018, need H times the data: with a
million steps nothing is learned, so the stationary reading is taken.)
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Discrete, TaskSpec
from hyper_rl.errors import UserError, is_number, require, require_choice, require_count, require_finite
from hyper_rl.learners.base import UpdateInfo
from hyper_rl.observations import refuse_images
from hyper_rl.types import Transition


class TabularQState(NamedTuple):
    q: Float[Array, "states actions"]
    visits: Int[Array, "states actions"] | None
    """Only kept when the step size depends on it."""


class TabularQPolicy(NamedTuple):
    q: Float[Array, "states actions"]


class TabularQ(eqx.Module):
    """One table of action values."""

    gamma: float = 0.99
    """Discount."""
    step_size: float = 0.5
    """The constant step size alpha."""
    step_rule: Literal["constant", "visits"] = eqx.field(static=True, default="constant")
    """'constant' takes step_size; 'visits' takes (H+1)/(H+t) at the t-th visit (Jin et al. 2018)."""
    rule_horizon: float = 100.0
    """The H of the 'visits' rule."""
    replay: int = eqx.field(static=True, default=0)
    """Backups of replayed transitions after the newest one, each step."""

    def __check_init__(self) -> None:
        require(is_number(self.gamma) and 0 <= self.gamma < 1, "tabular_q.gamma", self.gamma, "in [0, 1)")
        require(
            is_number(self.step_size) and 0 < self.step_size <= 1, "tabular_q.step_size", self.step_size, "in (0, 1]"
        )
        require_choice("tabular_q.step_rule", self.step_rule, ("constant", "visits"))
        require_finite("tabular_q.rule_horizon", self.rule_horizon, low=1.0)
        require_count("tabular_q.replay", self.replay, low=0)

    @property
    def batch_size(self) -> int:
        return self.replay

    @property
    def uses_newest(self) -> bool:
        return True

    def check(self, spec: TaskSpec) -> None:
        refuse_images(spec, "learner", "tabular_q")
        if not (isinstance(spec.observation, Discrete) and isinstance(spec.action, Discrete)):
            raise UserError(
                f"learner: 'tabular_q' needs discrete observations and actions, and {spec.name} has continuous ones; "
                "use 'td3' or 'sac' where the actions are continuous, else 'dqn'"
            )

    def init(self, key: PRNGKeyArray, spec: TaskSpec, optimism: Float[Array, ""]) -> TabularQState:
        assert isinstance(spec.observation, Discrete) and isinstance(spec.action, Discrete)
        shape = (spec.observation.n, spec.action.n)
        q = jnp.broadcast_to(jnp.asarray(optimism, dtype=float), shape)
        return TabularQState(q, jnp.zeros(shape, jnp.int32) if self.step_rule == "visits" else None)

    def observe(self, state: TabularQState, newest: Transition) -> TabularQState:
        return state

    def act(self, state: TabularQState, observation: Int[Array, ""], key: PRNGKeyArray) -> Int[Array, ""]:
        return greedy_random_ties(state.q[observation], key)

    def judge(
        self, state: TabularQState | TabularQPolicy, observation: Int[Array, ""], key: PRNGKeyArray
    ) -> Int[Array, ""]:
        return greedy_random_ties(state.q[observation], key)

    def estimate(self, state: TabularQState | TabularQPolicy, observation: Int[Array, ""]) -> Float[Array, ""]:
        return state.q[observation].max()

    def policy(self, state: TabularQState) -> TabularQPolicy:
        return TabularQPolicy(state.q)

    def update(
        self,
        state: TabularQState,
        batch: Transition,
        rewards: Float[Array, " batch"],
        key: PRNGKeyArray,
        index: Int[Array, ""],
    ) -> tuple[TabularQState, UpdateInfo]:
        losses = jnp.zeros((), float)
        # In order, newest first: a later backup sees what an earlier one wrote.
        for i in range(rewards.shape[0]):
            one = jax.tree.map(lambda leaf, i=i: leaf[i], batch)
            state, error = self._backup(state, one, rewards[i])
            losses = losses + jnp.square(error)
        return state, UpdateInfo(losses / rewards.shape[0], jnp.zeros((), float))

    def _backup(
        self, state: TabularQState, one: Transition, reward: Float[Array, ""]
    ) -> tuple[TabularQState, Float[Array, ""]]:
        s, a = one.observation, one.action
        next_value = state.q[one.next_observation].max()
        target = reward + self.gamma * jnp.where(one.terminated, jnp.zeros_like(next_value), next_value)
        error = target - state.q[s, a]
        visits, alpha = state.visits, jnp.asarray(self.step_size, dtype=float)
        if visits is not None:
            visits = visits.at[s, a].add(1)
            t = visits[s, a].astype(float)
            alpha = (self.rule_horizon + 1) / (self.rule_horizon + t)
        return TabularQState(state.q.at[s, a].add(alpha * error), visits), error


def greedy_random_ties(values: Float[Array, " actions"], key: PRNGKeyArray) -> Int[Array, ""]:
    """A maximiser, drawn evenly among equals from one uniform number."""
    best = values == values.max()
    rank = jnp.cumsum(best.astype(jnp.int32))
    draw = jax.random.uniform(key, dtype=float) * rank[-1].astype(float)
    wanted = jnp.minimum(draw.astype(jnp.int32) + 1, rank[-1])
    return jnp.argmax(best & (rank == wanted)).astype(jnp.int32)

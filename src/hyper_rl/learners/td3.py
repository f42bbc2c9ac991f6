"""TD3 (Fujimoto et al. 2018), with the hyper-parameters of its authors' code.

1. y = r + gamma (1 - terminated) min_j Q'_j(s', pi'(s') + clipped noise)
2. both critics regress on y
3. every second update: the actor climbs Q_1(s, pi(s)), then all targets move by tau
4. acting: pi(s) + N(0, 0.1), clipped; judged without noise

Actions live in [-1, 1]; the loop rescales them to the task's bounds.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyper_rl.envs.base import Box, TaskSpec
from hyper_rl.errors import is_number, require, require_count, require_finite, require_positive, require_widths
from hyper_rl.learners.base import UpdateIndex, UpdateInfo, only_if, require_continuous
from hyper_rl.networks import MLP, AdamState, adam_init, adam_step, make_ensemble, make_mlp, soft_update
from hyper_rl.types import Transition


class TD3State(NamedTuple):
    actor: MLP
    critics: MLP
    actor_target: MLP
    critics_target: MLP
    actor_optimiser: AdamState
    critics_optimiser: AdamState
    actor_loss: Float[Array, ""]
    """Of the last actor update, for the record."""


class TD3Policy(NamedTuple):
    actor: MLP
    critics: MLP


class TD3(eqx.Module):
    """Twin delayed deep deterministic policy gradient."""

    lr: float = 3e-4
    """Learning rate of actor and critics."""
    gamma: float = 0.99
    """Discount."""
    tau: float = 0.005
    """Speed of the target networks."""
    action_noise: float = 0.1
    """Deviation of the noise added while collecting data, in units of half the action range."""
    target_noise: float = 0.2
    """Deviation of the noise on the target action."""
    noise_clip: float = 0.5
    """Bound of the target noise."""
    batch_size: int = eqx.field(static=True, default=256)
    """Transitions per update."""
    policy_delay: int = eqx.field(static=True, default=2)
    """Critic updates per actor update."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of actor and critics."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Normalise the critics' hidden layers."""
    half_products: bool = eqx.field(static=True, default=False)
    """Products from operands rounded to bfloat16, for GPUs; parameters stay as they are."""

    def __check_init__(self) -> None:
        require_positive("td3.lr", self.lr)
        require(is_number(self.gamma) and 0 <= self.gamma < 1, "td3.gamma", self.gamma, "in [0, 1)")
        require(is_number(self.tau) and 0 < self.tau <= 1, "td3.tau", self.tau, "in (0, 1]")
        require_finite("td3.action_noise", self.action_noise, low=0.0)
        require_finite("td3.target_noise", self.target_noise, low=0.0)
        require_finite("td3.noise_clip", self.noise_clip, low=0.0)
        require_count("td3.batch_size", self.batch_size)
        require_count("td3.policy_delay", self.policy_delay)
        require_widths("td3.widths", self.widths)

    @property
    def uses_newest(self) -> bool:
        return False

    @property
    def period(self) -> int:
        return self.policy_delay

    def check(self, spec: TaskSpec) -> None:
        require_continuous("td3", spec)

    def init(self, key: PRNGKeyArray, spec: TaskSpec, optimism: Float[Array, ""]) -> TD3State:
        assert isinstance(spec.action, Box) and isinstance(spec.observation, Box)
        observations, actions = spec.observation.size, spec.action.size
        actor_key, critic_key = jax.random.split(key)
        half = self.half_products
        actor = make_mlp(actor_key, (observations, *self.widths, actions), half=half)
        sizes = (observations + actions, *self.widths, 1)
        critics = make_ensemble(lambda k: make_mlp(k, sizes, layer_norm=self.layer_norm, half=half), critic_key, 2)
        return TD3State(
            actor=actor,
            critics=critics,
            actor_target=jax.tree.map(jnp.copy, actor),
            critics_target=jax.tree.map(jnp.copy, critics),
            actor_optimiser=adam_init(actor),
            critics_optimiser=adam_init(critics),
            actor_loss=jnp.zeros((), float),
        )

    def observe(self, state: TD3State, newest: Transition) -> TD3State:
        return state

    def act(self, state: TD3State, observation: Float[Array, " obs"], key: PRNGKeyArray) -> Float[Array, " act"]:
        action = policy_action(state.actor, observation[None, :])[0]
        noise = self.action_noise * jax.random.normal(key, action.shape, dtype=float)
        return jnp.clip(action + noise, -1.0, 1.0)

    def judge(
        self, state: TD3State | TD3Policy, observation: Float[Array, " obs"], key: PRNGKeyArray
    ) -> Float[Array, " act"]:
        return policy_action(state.actor, observation[None, :])[0]

    def estimate(self, state: TD3State | TD3Policy, observation: Float[Array, " obs"]) -> Float[Array, ""]:
        """Q_1 of the actor's own action: the number the actor is trained to raise."""
        action = policy_action(state.actor, observation[None, :])
        return critic_values(state.critics, observation[None, :], action)[0, 0]

    def policy(self, state: TD3State) -> TD3Policy:
        return TD3Policy(state.actor, state.critics)

    def update(
        self,
        state: TD3State,
        batch: Transition,
        rewards: Float[Array, " batch"],
        key: PRNGKeyArray,
        index: UpdateIndex,
    ) -> tuple[TD3State, UpdateInfo]:
        noise = self.target_noise * jax.random.normal(key, batch.action.shape, dtype=float)
        noise = jnp.clip(noise, -self.noise_clip, self.noise_clip)
        next_action = jnp.clip(policy_action(state.actor_target, batch.next_observation) + noise, -1.0, 1.0)
        next_value = smaller_value(state.critics_target, batch.next_observation, next_action)
        targets = td_target(rewards, batch.terminated, next_value, self.gamma)

        loss, grads = jax.value_and_grad(critic_loss)(state.critics, batch.observation, batch.action, targets)
        critics, critics_optimiser = adam_step(state.critics, grads, state.critics_optimiser, self.lr)
        state = state._replace(critics=critics, critics_optimiser=critics_optimiser)

        state = only_if(index % self.policy_delay == 0, lambda s: self._update_actor(s, batch.observation), state)
        return state, UpdateInfo(loss, state.actor_loss)

    def _update_actor(self, state: TD3State, observations: Float[Array, "batch obs"]) -> TD3State:
        loss, grads = jax.value_and_grad(actor_loss)(state.actor, state.critics, observations)
        actor, actor_optimiser = adam_step(state.actor, grads, state.actor_optimiser, self.lr)
        return state._replace(
            actor=actor,
            actor_optimiser=actor_optimiser,
            actor_target=soft_update(state.actor_target, actor, self.tau),
            critics_target=soft_update(state.critics_target, state.critics, self.tau),
            actor_loss=loss,
        )


def policy_action(actor: MLP, observations: Float[Array, "batch obs"]) -> Float[Array, "batch act"]:
    return jnp.tanh(actor(observations))


def critic_values(
    critics: MLP, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]
) -> Float[Array, "2 batch"]:
    """Both critics as one batched product per layer."""
    inputs = jnp.concatenate([observations, actions], axis=-1)
    return jax.vmap(lambda critic: critic(inputs)[:, 0])(critics)


def smaller_value(
    critics: MLP, observations: Float[Array, "batch obs"], actions: Float[Array, "batch act"]
) -> Float[Array, " batch"]:
    """Of both critics; both are there before it is taken: a GPU would otherwise compute them in one thread a row."""
    return jax.lax.optimization_barrier(critic_values(critics, observations, actions)).min(axis=0)


def td_target(
    r: Float[Array, "*batch"], terminated: Array, next_value: Float[Array, "*batch"], gamma: float
) -> Float[Array, "*batch"]:
    """y = r + gamma (1 - terminated) V(s')."""
    return r + gamma * jnp.where(terminated, jnp.zeros_like(next_value), next_value)


def critic_loss(
    critics: MLP,
    observations: Float[Array, "batch obs"],
    actions: Float[Array, "batch act"],
    targets: Float[Array, " batch"],
) -> Float[Array, ""]:
    """Sum over the two critics of their mean squared error."""
    values = critic_values(critics, observations, actions)
    return jnp.square(values - targets[None, :]).mean(axis=1).sum()


def actor_loss(actor: MLP, critics: MLP, observations: Float[Array, "batch obs"]) -> Float[Array, ""]:
    """-Q_1(s, pi(s)), mean over the batch."""
    first = jax.tree.map(lambda leaf: leaf[0], critics)
    inputs = jnp.concatenate([observations, policy_action(actor, observations)], axis=-1)
    return -first(inputs)[:, 0].mean()

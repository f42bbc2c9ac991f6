"""SAC (Haarnoja et al. 2018) with an automatic temperature, without a value network: the second paper's version.

1. a' ~ pi(s'), y = r + gamma (1 - terminated) (min_j Q'_j(s', a') - alpha log pi(a' | s'))
2. both critics regress on y
3. the actor descends alpha log pi(a | s) - min_j Q_j(s, a), a ~ pi(s) reparametrised
4. alpha rises where the policy's entropy is below its target, falls where it is above
5. the critics' targets move by tau; all of it at every update
6. acting: a sample; judged: tanh of the mean

Actions live in [-1, 1]: a = tanh(u), u Gaussian. Its density is written so that it stays exact where tanh saturates.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Box, TaskSpec
from hyper_rl.errors import is_number, require, require_count, require_finite, require_positive, require_widths
from hyper_rl.learners.base import UpdateInfo, require_continuous
from hyper_rl.learners.td3 import critic_loss, smaller_value, td_target
from hyper_rl.networks import MLP, AdamState, adam_init, adam_step, make_ensemble, make_mlp, soft_update
from hyper_rl.types import Transition

# The authors' bounds of the Gaussian's log-deviation.
LOWEST_LOG_STD, HIGHEST_LOG_STD = -20.0, 2.0
LOG_2, HALF_LOG_2_PI = math.log(2.0), 0.5 * math.log(2.0 * math.pi)


class SACState(NamedTuple):
    actor: MLP
    critics: MLP
    critics_target: MLP
    log_temperature: Float[Array, ""]
    actor_optimiser: AdamState
    critics_optimiser: AdamState
    temperature_optimiser: AdamState


class SACPolicy(NamedTuple):
    actor: MLP
    critics: MLP


class SAC(eqx.Module):
    """Soft actor-critic."""

    lr: float = 3e-4
    """Learning rate of actor and critics."""
    temperature_lr: float = 3e-4
    """Learning rate of the logarithm of the temperature."""
    gamma: float = 0.99
    """Discount."""
    tau: float = 0.005
    """Speed of the target networks."""
    temperature: float = 1.0
    """Temperature before the first update."""
    target_entropy: float = -1.0
    """Entropy that the temperature aims at, per dimension of the action."""
    batch_size: int = eqx.field(static=True, default=256)
    """Transitions per update."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of actor and critics."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Normalise the critics' hidden layers."""

    def __check_init__(self) -> None:
        require_positive("sac.lr", self.lr)
        require_positive("sac.temperature_lr", self.temperature_lr)
        require(is_number(self.gamma) and 0 <= self.gamma < 1, "sac.gamma", self.gamma, "in [0, 1)")
        require(is_number(self.tau) and 0 < self.tau <= 1, "sac.tau", self.tau, "in (0, 1]")
        require_positive("sac.temperature", self.temperature)
        require_finite("sac.target_entropy", self.target_entropy)
        require_count("sac.batch_size", self.batch_size)
        require_widths("sac.widths", self.widths)

    @property
    def uses_newest(self) -> bool:
        return False

    def check(self, spec: TaskSpec) -> None:
        require_continuous("sac", spec)

    def init(self, key: PRNGKeyArray, spec: TaskSpec, optimism: Float[Array, ""]) -> SACState:
        """`optimism` is for tables; a network has no untried entries to raise."""
        assert isinstance(spec.action, Box) and isinstance(spec.observation, Box)
        observations, actions = spec.observation.size, spec.action.size
        actor_key, critic_key = jax.random.split(key)
        actor = make_mlp(actor_key, (observations, *self.widths, 2 * actions))
        sizes = (observations + actions, *self.widths, 1)
        critics = make_ensemble(lambda k: make_mlp(k, sizes, layer_norm=self.layer_norm), critic_key, 2)
        log_temperature = jnp.log(jnp.asarray(self.temperature, dtype=float))
        return SACState(
            actor=actor,
            critics=critics,
            critics_target=jax.tree.map(jnp.copy, critics),
            log_temperature=log_temperature,
            actor_optimiser=adam_init(actor),
            critics_optimiser=adam_init(critics),
            temperature_optimiser=adam_init(log_temperature),
        )

    def act(self, state: SACState, observation: Float[Array, " obs"], key: PRNGKeyArray) -> Float[Array, " act"]:
        mean, log_std = gaussian(state.actor, observation[None, :])
        return jnp.tanh(mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, dtype=float))[0]

    def judge(
        self, state: SACState | SACPolicy, observation: Float[Array, " obs"], key: PRNGKeyArray
    ) -> Float[Array, " act"]:
        return jnp.tanh(gaussian(state.actor, observation[None, :])[0])[0]

    def estimate(self, state: SACState | SACPolicy, observation: Float[Array, " obs"]) -> Float[Array, ""]:
        """The smaller critic's value of the judged action.

        Critics learn soft values: the entropy that later steps earn is in them, weighted by the temperature.
        """
        action = jnp.tanh(gaussian(state.actor, observation[None, :])[0])
        return smaller_value(state.critics, observation[None, :], action)[0]

    def policy(self, state: SACState) -> SACPolicy:
        return SACPolicy(state.actor, state.critics)

    def observe(self, state: SACState, newest: Transition) -> SACState:
        return state

    def update(
        self,
        state: SACState,
        batch: Transition,
        rewards: Float[Array, " batch"],
        key: PRNGKeyArray,
        index: Int[Array, ""],
    ) -> tuple[SACState, UpdateInfo]:
        noise, next_noise = jax.random.normal(key, (2, *batch.action.shape), dtype=float)
        temperature = jnp.exp(state.log_temperature)

        next_action, next_log_prob = sample(state.actor, batch.next_observation, next_noise)
        next_value = smaller_value(state.critics_target, batch.next_observation, next_action)
        targets = td_target(rewards, batch.terminated, next_value - temperature * next_log_prob, self.gamma)
        loss, grads = jax.value_and_grad(critic_loss)(state.critics, batch.observation, batch.action, targets)
        critics, critics_optimiser = adam_step(state.critics, grads, state.critics_optimiser, self.lr)

        (climbed, log_prob), grads = jax.value_and_grad(actor_loss, has_aux=True)(
            state.actor, critics, batch.observation, noise, temperature
        )
        actor, actor_optimiser = adam_step(state.actor, grads, state.actor_optimiser, self.lr)

        wanted = self.target_entropy * batch.action.shape[1]
        slope = jax.grad(temperature_loss)(state.log_temperature, log_prob, wanted)
        log_temperature, temperature_optimiser = adam_step(
            state.log_temperature, slope, state.temperature_optimiser, self.temperature_lr
        )
        state = SACState(
            actor=actor,
            critics=critics,
            critics_target=soft_update(state.critics_target, critics, self.tau),
            log_temperature=log_temperature,
            actor_optimiser=actor_optimiser,
            critics_optimiser=critics_optimiser,
            temperature_optimiser=temperature_optimiser,
        )
        return state, UpdateInfo(loss, climbed)


def gaussian(
    actor: MLP, observations: Float[Array, "batch obs"]
) -> tuple[Float[Array, "batch act"], Float[Array, "batch act"]]:
    """Mean and log-deviation of u, the action before tanh."""
    mean, log_std = jnp.split(actor(observations), 2, axis=-1)
    return mean, jnp.clip(log_std, LOWEST_LOG_STD, HIGHEST_LOG_STD)


def sample(
    actor: MLP, observations: Float[Array, "batch obs"], noise: Float[Array, "batch act"]
) -> tuple[Float[Array, "batch act"], Float[Array, " batch"]]:
    """Actions from standard normal `noise`, and their log-densities."""
    mean, log_std = gaussian(actor, observations)
    u = mean + jnp.exp(log_std) * noise
    return jnp.tanh(u), squashed_log_prob(u, noise, log_std)


def squashed_log_prob(
    u: Float[Array, "batch act"], noise: Float[Array, "batch act"], log_std: Float[Array, "batch act"]
) -> Float[Array, " batch"]:
    """log-density of a = tanh(u) where u = mean + std noise: log N(u) - sum log(1 - tanh(u)^2).

    The correction is 2 (log 2 - u - softplus(-2u)): the same number, which tanh(u) = 1 in rounding does not spoil.
    """
    normal = -0.5 * jnp.square(noise) - log_std - HALF_LOG_2_PI
    return (normal - 2.0 * (LOG_2 - u - jax.nn.softplus(-2.0 * u))).sum(axis=-1)


def actor_loss(
    actor: MLP,
    critics: MLP,
    observations: Float[Array, "batch obs"],
    noise: Float[Array, "batch act"],
    temperature: Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
    """Mean over the batch of alpha log pi(a | s) - min_j Q_j(s, a), and the log-densities."""
    actions, log_prob = sample(actor, observations, noise)
    values = smaller_value(critics, observations, actions)
    return (temperature * log_prob - values).mean(), log_prob


def temperature_loss(
    log_temperature: Float[Array, ""], log_prob: Float[Array, " batch"], target_entropy: Float[Array, ""] | float
) -> Float[Array, ""]:
    """-log alpha (log pi + target): its slope is the entropy measured less the entropy wanted."""
    return -log_temperature * jax.lax.stop_gradient(log_prob + target_entropy).mean()

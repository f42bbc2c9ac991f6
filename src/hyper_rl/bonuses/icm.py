"""The intrinsic curiosity module (Pathak et al. 2017): surprise about what the agent's own actions can change.

    encoder        phi(s)
    inverse model  guesses a  from phi(s), phi(s')     cross-entropy, or mean squared error for continuous actions
    forward model  guesses phi(s') from phi(s), a      half the squared distance
    b(s, a, s') = 1/2 |forward(phi(s), a) - phi(s')|^2
    loss = (1 - w) inverse + w forward                 means over the rows trained on, w = 0.2

The inverse model makes the encoder keep what tells actions apart and gives it no reason to keep the rest. Readings
where the paper leaves room, taken from its authors' code: the distance is a sum over features, not a mean; the forward
loss reaches the encoder through phi(s) and phi(s') alike, nothing is held fixed (the inverse loss is what keeps the
features from shrinking to a point); Adam at 1e-3 (there 1e-4 on ten times the loss, with the bonus weighted by 0.01,
which here is beta's part). Hidden layers are ReLU and the features the plain output of the last one.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyper_rl.bonuses.rnd import standardised
from hyper_rl.envs.base import TaskSpec
from hyper_rl.errors import is_number, require, require_count, require_positive, require_widths
from hyper_rl.networks import MLP, AdamState, adam_init, adam_step, make_mlp
from hyper_rl.normalise import RunningMoments, moments_add, moments_init
from hyper_rl.observations import as_vectors, feature_size, refuse_images
from hyper_rl.types import Transition


class Networks(NamedTuple):
    encoder: MLP
    inverse: MLP
    forward: MLP


class ICMState(NamedTuple):
    networks: Networks
    optimiser: AdamState
    observations: RunningMoments


class Surprise(NamedTuple):
    """What the two models get wrong on each transition."""

    inverse: Float[Array, " batch"]
    forward: Float[Array, " batch"]


class ICM(eqx.Module):
    """Error of a forward model in features learned by inverse dynamics."""

    lr: float = 1e-3
    """Learning rate of encoder and models."""
    forward_weight: float = 0.2
    """Weight w of the forward loss; the inverse loss has 1 - w."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(256,))
    """Hidden layers of the encoder and of both models."""
    features: int = eqx.field(static=True, default=64)
    """Outputs of the encoder."""
    share: float = eqx.field(static=True, default=0.25)
    """Share of each batch that is trained on."""
    normalise: bool = eqx.field(static=True, default=True)
    """Give the encoder observations in units of their own running deviation, clipped to +-5."""

    def __check_init__(self) -> None:
        require_positive("icm.lr", self.lr)
        require(
            is_number(self.forward_weight) and 0 <= self.forward_weight <= 1,
            "icm.forward_weight",
            self.forward_weight,
            "in [0, 1]",
        )
        require_widths("icm.widths", self.widths)
        require_count("icm.features", self.features)
        require(is_number(self.share) and 0 < self.share <= 1, "icm.share", self.share, "a share in (0, 1]")

    @property
    def largest(self) -> float:
        return 0.0

    def check(self, spec: TaskSpec) -> None:
        """Images; numbered states and actions are taken as one-hot vectors, the others as they are."""
        refuse_images(spec, "bonus", "icm")

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> ICMState:
        size, actions = feature_size(spec.observation), feature_size(spec.action)
        encoder_key, inverse_key, forward_key = jax.random.split(key, 3)
        networks = Networks(
            encoder=make_mlp(encoder_key, (size, *self.widths, self.features)),
            inverse=make_mlp(inverse_key, (2 * self.features, *self.widths, actions)),
            forward=make_mlp(forward_key, (self.features + actions, *self.widths, self.features)),
        )
        return ICMState(networks, adam_init(networks), moments_init(size))

    def observe(self, state: ICMState, newest: Transition) -> ICMState:
        if not self.normalise:
            return state
        vector = as_vectors(newest.next_observation[None], state.observations.mean.shape[0])[0]
        return state._replace(observations=moments_add(state.observations, vector))

    def surprise(self, networks: Networks, seen: RunningMoments, batch: Transition) -> Surprise:
        """`seen`: the statistics of the observations."""
        rows, size = batch.reward.shape[0], seen.mean.shape[0]
        # Both ends of the transition through the encoder at once: one product per layer.
        vectors = as_vectors(jnp.concatenate([batch.observation, batch.next_observation]), size)
        encoded = networks.encoder(standardised(seen, vectors) if self.normalise else vectors)
        before, after = encoded[:rows], encoded[rows:]
        actions = as_vectors(batch.action, networks.inverse.biases[-1].shape[0])
        guess = networks.inverse(jnp.concatenate([before, after], axis=-1))
        if batch.action.ndim == 1:
            inverse = -(actions * jax.nn.log_softmax(guess)).sum(axis=-1)
        else:
            inverse = jnp.square(guess - actions).mean(axis=-1)
        error = networks.forward(jnp.concatenate([before, actions], axis=-1)) - after
        return Surprise(inverse, 0.5 * jnp.square(error).sum(axis=-1))

    def reward(self, state: ICMState, batch: Transition) -> Float[Array, " batch"]:
        return self.surprise(state.networks, state.observations, batch).forward

    def loss(
        self, networks: Networks, seen: RunningMoments, batch: Transition
    ) -> tuple[Float[Array, ""], Float[Array, " batch"]]:
        """The loss, and the bonus of each transition from the same forward pass."""
        wrong = self.surprise(networks, seen, batch)
        weight = self.forward_weight
        return (1 - weight) * wrong.inverse.mean() + weight * wrong.forward.mean(), wrong.forward

    def learn(
        self, state: ICMState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], ICMState, Float[Array, ""]]:
        # The batch is an independent uniform draw, so its first rows are one too. The rest is passed forward only.
        total = batch.reward.shape[0]
        rows = max(1, round(self.share * total))
        own = jax.tree.map(lambda leaf: leaf[:rows], batch)
        (loss, bonus), grads = jax.value_and_grad(self.loss, has_aux=True)(state.networks, state.observations, own)
        if rows < total:
            rest = jax.tree.map(lambda leaf: leaf[rows:], batch)
            bonus = jnp.concatenate([bonus, self.reward(state, rest)])
        networks, optimiser = adam_step(state.networks, grads, state.optimiser, self.lr)
        return bonus, state._replace(networks=networks, optimiser=optimiser), loss

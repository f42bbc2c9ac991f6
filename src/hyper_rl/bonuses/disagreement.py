"""Disagreement (Pathak et al. 2019): the variance of an ensemble's predictions of what comes next.

    b(s, a) = mean over dimensions of Var over models of f_i(s, a)

Each model sees its own 25% of every batch (paper, appendix A.6), so the members stay different. The bonus comes from
the models as they are before their update on that batch. Two readings of what is predicted, both as options:

* `target="next"`, `normalise=False` (preset `paper`): raw input, raw next observation;
* `target="change"`, `normalise=True` (preset `robust`): input and change in units of their own running deviation, so
  that the bonus does not depend on the units of the observation.

Normalised inputs are clipped, as learners' observations are. With `target="next"` and `normalise=True` one set of
statistics serves input and next observation, so both count in it, and what is predicted is clipped, too: a coordinate
may move in the last step of rare episodes only.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from hyper_rl import backend
from hyper_rl.envs.base import TaskSpec
from hyper_rl.errors import require, require_choice, require_count, require_positive
from hyper_rl.learners.normalised import LARGEST
from hyper_rl.networks import MLP, AdamState, adam_init, adam_step, make_ensemble, make_mlp, mlp_gradient
from hyper_rl.normalise import RunningMoments, moments_add, moments_deviation, moments_init
from hyper_rl.observations import as_vectors, feature_size, refuse_images
from hyper_rl.types import Transition


class DisagreementState(NamedTuple):
    models: MLP
    optimiser: AdamState
    observations: RunningMoments
    changes: RunningMoments


class Disagreement(eqx.Module):
    """An ensemble of forward models."""

    lr: float = 1e-4
    """Learning rate of the models."""
    models: int = eqx.field(static=True, default=5)
    """Ensemble size."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of each model."""
    share: float = eqx.field(static=True, default=0.25)
    """Share of each batch that a model trains on."""
    selection: Literal["subset", "mask"] = eqx.field(static=True, default="subset")
    """How each model gets its share: its own window of the batch, or an independent coin per transition."""
    target: Literal["next", "change"] = eqx.field(static=True, default="next")
    """What the models predict: the next observation or its change."""
    normalise: bool = eqx.field(static=True, default=False)
    """Scale inputs and targets by running statistics of the observations."""
    half_products: bool = eqx.field(static=True, default=False)
    """Products from operands rounded to bfloat16, for GPUs; parameters stay as they are."""

    def __check_init__(self) -> None:
        require_positive("disagreement.lr", self.lr)
        require_count("disagreement.models", self.models, low=2)
        require(bool(self.widths) and min(self.widths) >= 1, "disagreement.widths", self.widths, "positive layer sizes")
        require(0 < self.share <= 1, "disagreement.share", self.share, "a share in (0, 1]")
        require_choice("disagreement.selection", self.selection, ("subset", "mask"))
        require_choice("disagreement.target", self.target, ("next", "change"))

    @property
    def largest(self) -> float:
        return 0.0

    def check(self, spec: TaskSpec) -> None:
        """Images; vectors are taken as they are, numbered states and actions as one-hot vectors."""
        refuse_images(spec, "bonus", "disagreement")

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> DisagreementState:
        size, actions = feature_size(spec.observation), feature_size(spec.action)
        sizes = (size + actions, *self.widths, size)
        models = make_ensemble(lambda k: make_mlp(k, sizes, half=self.half_products), key, self.models)
        return DisagreementState(models, adam_init(models), moments_init(size), moments_init(size))

    def observe(self, state: DisagreementState, newest: Transition) -> DisagreementState:
        if not self.normalise:
            return state
        before, after = _observations(state, jax.tree.map(lambda leaf: leaf[None], newest))
        observations = moments_add(state.observations, before[0])
        if self.target == "next":
            # Divided by the same statistics. A coordinate that moves at the end of episodes alone would never count.
            observations = moments_add(observations, after[0])
        return state._replace(observations=observations, changes=moments_add(state.changes, after[0] - before[0]))

    def inputs(self, state: DisagreementState, batch: Transition) -> Float[Array, "batch fan_in"]:
        observation, _ = _observations(state, batch)
        action = as_vectors(batch.action, state.models.weights[0].shape[-2] - observation.shape[-1])
        if self.normalise:
            mean, deviation = state.observations.mean, moments_deviation(state.observations)
            # One rare event, a coordinate that has never moved before, would otherwise be thousands of deviations away,
            # and its bonus would drown all others for as long as the running scale remembers it.
            observation = jnp.clip((observation - mean[None, :]) / deviation[None, :], -LARGEST, LARGEST)
        return jnp.concatenate([observation, action], axis=-1)

    def targets(self, state: DisagreementState, batch: Transition) -> Float[Array, "batch n"]:
        before, after = _observations(state, batch)
        change = after - before
        if self.target == "next":
            if not self.normalise:
                return after
            mean, deviation = state.observations.mean, moments_deviation(state.observations)
            return jnp.clip((after - mean[None, :]) / deviation[None, :], -LARGEST, LARGEST)
        return change / moments_deviation(state.changes)[None, :] if self.normalise else change

    def reward(self, state: DisagreementState, batch: Transition) -> Float[Array, " batch"]:
        inputs = self.inputs(state, batch)
        predictions = jax.vmap(lambda model: model(inputs))(state.models)
        return disagreement(predictions)

    def learn(
        self, state: DisagreementState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], DisagreementState, Float[Array, ""]]:
        inputs, targets = self.inputs(state, batch), self.targets(state, batch)
        # Each model learns from its own rows of the forward pass that the bonus needs anyway.
        predictions, layers = jax.vmap(lambda model: model.with_layers(inputs))(state.models)
        errors = self._own_rows(predictions - targets[None])
        weights = self._weights(key, errors.shape[1])
        losses, slopes = jax.vmap(weighted_squared_error)(errors, weights)
        grads = jax.vmap(mlp_gradient)(state.models, jax.tree.map(self._own_rows, layers), slopes)
        models, optimiser = adam_step(state.models, grads, state.optimiser, self.lr)
        return disagreement(predictions), state._replace(models=models, optimiser=optimiser), losses.mean()

    def _own_rows(self, leaf: Float[Array, "models batch n"]) -> Float[Array, "models rows n"]:
        """The rows of the batch that each model may learn from.

        The batch is an independent uniform draw, so any fixed share of it is one too. Evenly spaced windows give each
        model its own (with 5 models and a quarter, neighbours share a quarter of theirs), without a draw or a gather.
        """
        if self.selection == "mask":
            return leaf
        total = leaf.shape[1]
        chosen = max(1, round(self.share * total))
        starts = [round(m * (total - chosen) / (self.models - 1)) for m in range(self.models)]
        windows = [leaf[m, start : start + chosen] for m, start in enumerate(starts)]
        if not backend.on_gpu():
            return jnp.stack(windows)
        # A GPU would keep the stack model-major and turn it round again for every product; on a CPU this is 3% slower.
        return jnp.concatenate(windows).reshape(self.models, chosen, leaf.shape[2])

    def _weights(self, key: PRNGKeyArray, rows: int) -> Float[Array, "models rows"]:
        if self.selection == "subset":
            return jnp.full((self.models, rows), 1.0 / rows, float)
        mask = jax.random.bernoulli(key, self.share, (self.models, rows)).astype(float)
        return mask / jnp.maximum(mask.sum(axis=1, keepdims=True), 1.0)


def _observations(
    state: DisagreementState, batch: Transition
) -> tuple[Float[Array, "batch n"], Float[Array, "batch n"]]:
    size = state.observations.mean.shape[-1]
    return as_vectors(batch.observation, size), as_vectors(batch.next_observation, size)


def disagreement(predictions: Float[Array, "models batch n"]) -> Float[Array, " batch"]:
    """Population variance over models, mean over dimensions."""
    return predictions.var(axis=0).mean(axis=-1)


def weighted_squared_error(
    errors: Float[Array, "rows n"], weights: Float[Array, " rows"]
) -> tuple[Float[Array, ""], Float[Array, "rows n"]]:
    """Weighted mean over rows of the mean squared error over dimensions, and its slope in the errors."""
    loss = (jnp.square(errors).mean(axis=-1) * weights).sum()
    return loss, errors * (2.0 / errors.shape[-1]) * weights[:, None]

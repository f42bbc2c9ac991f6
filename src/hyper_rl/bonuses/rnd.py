"""Random network distillation (Burda et al. 2019): how badly a trained network copies a frozen random one.

    b(s') = mean over outputs of (predictor(s') - target(s'))^2

The predictor is trained on the states that were reached, so it copies the target there and nowhere else. The input is
the *next* observation: a transition is paid for where it leads. Two variants:

* `standard`: input in units of its own running deviation, clipped to +-5 (a random network answers to units it was not
  made for with almost nothing or with one saturated direction), predictor trained on a share of each batch. The bonus
  is the plain error: dividing it by its running deviation is the business of `ExplorerReward.bonus_scale`. Of images
  every byte has its own deviation, and target and predictor have convolutions below their layers.
* `lesson`: as in LESSON (Kim et al. 2023). Raw input, one frozen random trunk under both networks, heads of the
  published sizes, the whole batch. Its bonus is centred, (e - mean) / deviation, and so negative where the error is
  below average. Centring shifts a reward instead of scaling it, so it lives here, with its own running statistics:
  one value for every new transition and one for every batch trained on, as in the published method. There the
  bonus is stored when it is met; here it is recomputed on the batch like every other.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from hyper_rl.bonuses.disagreement import weighted_squared_error
from hyper_rl.convolutions import ImageNetwork, make_network, run_network
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import is_number, require, require_choice, require_count, require_positive, require_widths
from hyper_rl.networks import MLP, AdamState, adam_init, adam_step, make_mlp, mlp_gradient
from hyper_rl.normalise import RunningMoments, moments_add, moments_deviation, moments_init
from hyper_rl.observations import as_vectors, feature_size
from hyper_rl.types import Transition

CLIP = 5.0
LESSON_TRUNK = (73, 36, 64)
LESSON_WIDTHS = (64,)
LESSON_OUTPUTS = 16


class RNDState(NamedTuple):
    trunk: MLP | ImageNetwork | None
    """Frozen, and under both networks; none in the standard variant."""
    target: MLP | ImageNetwork
    """Frozen."""
    predictor: MLP | ImageNetwork
    optimiser: AdamState
    observations: RunningMoments
    """Of the next observations; kept where the input is normalised."""
    errors: RunningMoments
    """Of the prediction errors; kept where the bonus is centred."""


class RND(eqx.Module):
    """Prediction error of a random network on the next observation."""

    lr: float = 1e-4
    """Learning rate of the predictor."""
    variant: Literal["standard", "lesson"] = eqx.field(static=True, default="standard")
    """Normalised input and a plain error, or LESSON's: raw input, shared trunk, whole batch, centred bonus."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers of target and predictor; standard variant only."""
    outputs: int = eqx.field(static=True, default=64)
    """Outputs of target and predictor; standard variant only."""
    share: float = eqx.field(static=True, default=0.25)
    """Share of each batch that the predictor trains on; standard variant only."""

    def __check_init__(self) -> None:
        require_positive("rnd.lr", self.lr)
        require_choice("rnd.variant", self.variant, ("standard", "lesson"))
        require_widths("rnd.widths", self.widths)
        require_count("rnd.outputs", self.outputs)
        require(is_number(self.share) and 0 < self.share <= 1, "rnd.share", self.share, "a share in (0, 1]")
        if self.variant == "lesson":
            for name, default in (("widths", (256, 256)), ("outputs", 64), ("share", 0.25)):
                value = getattr(self, name)
                require(value == default, f"rnd.{name}", value, "left out with rnd.variant 'lesson', which fixes it")

    @property
    def largest(self) -> float:
        return 0.0

    def check(self, spec: TaskSpec) -> None:
        """Nothing to refuse: numbers are taken as they are, numbered states as one-hot vectors, actions not at all."""

    def init(self, key: PRNGKeyArray, spec: TaskSpec) -> RNDState:
        seen, size = spec.observation, feature_size(spec.observation)
        trunk_key, target_key, predictor_key = jax.random.split(key, 3)
        trunk: MLP | ImageNetwork | None = None
        target: MLP | ImageNetwork
        predictor: MLP | ImageNetwork
        if self.variant == "lesson":
            trunk = _over(seen, trunk_key, LESSON_TRUNK)
            sizes = (LESSON_TRUNK[-1], *LESSON_WIDTHS, LESSON_OUTPUTS)
            target, predictor = (make_mlp(key, sizes) for key in (target_key, predictor_key))
        else:
            target, predictor = (_over(seen, key, (*self.widths, self.outputs)) for key in (target_key, predictor_key))
        return RNDState(trunk, target, predictor, adam_init(predictor), moments_init(size), moments_init(1))

    def observe(self, state: RNDState, newest: Transition) -> RNDState:
        if self.variant == "standard":
            vector = as_vectors(newest.next_observation[None], state.observations.mean.shape[0])[0]
            return state._replace(observations=moments_add(state.observations, vector))
        error = self.errors(state, newest.next_observation[None])
        return state._replace(errors=moments_add(state.errors, error))

    def inputs(self, state: RNDState, observations: Shaped[Array, "batch ..."]) -> Float[Array, "batch n"]:
        """What target and predictor are given."""
        if state.trunk is not None:
            return jax.nn.relu(run_network(state.trunk, observations))
        return standardised(state.observations, as_vectors(observations, state.observations.mean.shape[0]))

    def errors(self, state: RNDState, observations: Shaped[Array, "batch ..."]) -> Float[Array, " batch"]:
        """The raw prediction error."""
        inputs = self.inputs(state, observations)
        return jnp.square(state.predictor(inputs) - state.target(inputs)).mean(axis=-1)

    def reward(self, state: RNDState, batch: Transition) -> Float[Array, " batch"]:
        return self._paid(state, self.errors(state, batch.next_observation))

    def learn(
        self, state: RNDState, batch: Transition, key: PRNGKeyArray
    ) -> tuple[Float[Array, " batch"], RNDState, Float[Array, ""]]:
        inputs = self.inputs(state, batch.next_observation)
        wanted = state.target(inputs)
        # The batch is an independent uniform draw, so its first rows are one too: no draw and no gather.
        share = self.share if self.variant == "standard" else 1.0
        rows = max(1, round(share * inputs.shape[0]))
        errors, loss, grads = learn_rows(state.predictor, inputs, wanted, rows)
        predictor, optimiser = adam_step(state.predictor, grads, state.optimiser, self.lr)
        after = state._replace(predictor=predictor, optimiser=optimiser)
        if self.variant == "lesson":
            after = after._replace(errors=moments_add(state.errors, errors.mean()[None]))
        return self._paid(state, errors), after, loss

    def _paid(self, state: RNDState, errors: Float[Array, " batch"]) -> Float[Array, " batch"]:
        return centred(state.errors, errors) if self.variant == "lesson" else errors


def learn_rows(
    predictor: MLP | ImageNetwork, inputs: Float[Array, "batch n"], wanted: Float[Array, "batch outputs"], rows: int
) -> tuple[Float[Array, " batch"], Float[Array, ""], MLP | ImageNetwork]:
    """Errors of the whole batch; the mean error of its first `rows` and its slopes in the predictor."""
    if isinstance(predictor, ImageNetwork):

        def mean_error(predictor: ImageNetwork) -> tuple[Float[Array, ""], Float[Array, " rows"]]:
            errors = jnp.square(predictor(inputs[:rows]) - wanted[:rows]).mean(axis=-1)
            return errors.mean(), errors

        (loss, first), grads = jax.value_and_grad(mean_error, has_aux=True)(predictor)
        others = jnp.square(predictor(inputs[rows:]) - wanted[rows:]).mean(axis=-1)
        return jnp.concatenate([first, others]), loss, grads
    predictions, layers = predictor.with_layers(inputs)
    differences = predictions - wanted
    errors = jnp.square(differences).mean(axis=-1)
    loss, slopes = weighted_squared_error(differences[:rows], jnp.full((rows,), 1.0 / rows, float))
    return errors, loss, mlp_gradient(predictor, tuple(layer[:rows] for layer in layers), slopes)


def _over(seen: Box | Discrete, key: PRNGKeyArray, widths: tuple[int, ...]) -> MLP | ImageNetwork:
    """A network over observations; the last width is its output's."""
    return make_network(key, seen, lambda key, inputs: make_mlp(key, (inputs, *widths)))


def standardised(seen: RunningMoments, vectors: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
    """In units of their own running deviation around the running mean, clipped."""
    return jnp.clip((vectors - seen.mean[None, :]) / moments_deviation(seen)[None, :], -CLIP, CLIP)


def centred(seen: RunningMoments, values: Float[Array, " batch"]) -> Float[Array, " batch"]:
    """(values - running mean) / (running sample deviation + 1e-10); 0 until two values have been seen.

    A deviation that is only the rounding of the mean is not one to divide by: with observations that never change it
    would turn the last bit of the error into a reward.
    """
    count = seen.seen.astype(values.dtype)
    deviation = jnp.sqrt(seen.squares / jnp.maximum(count - 1.0, 1.0))
    divisor = jnp.maximum(deviation, 1e-5 * jnp.abs(seen.mean)) + 1e-10
    return jnp.where(seen.seen > 1, (values - seen.mean) / divisor, jnp.zeros_like(values))

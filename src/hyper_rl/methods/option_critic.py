"""An option critic: what each option is worth in a state, and whether the one at work should end (Kim et al. 2023).

With r the reward, o the option that acted, t(s, o) the termination probability and Q' a copy of Q now and then:

1. a new option is drawn from softmax(factor Q(s, .) / max(max Q(s, .), 1)), every probability clipped to [low, high],
   by walking along their sum; they no longer sum to one, so the order of the options matters (`sample_in_order`)
2. the option at work ends with probability t(s, o), clipped
3. Q(s, o) regresses on  r + gamma (1 - terminated) [(1 - t(s', o)) Q'(s', o) + t(s', o) max Q'(s', .)],  t clipped
4. t descends on  t(s, o) (A - mean A) (1 - terminated),  A = Q'(s, o) - max Q'(s, .) <= 0: an option that is worse
   than the best by more than the batch is on average becomes likelier to end, one that is better less likely

Numbers in, numbers out: nothing here knows what the options do.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.convolutions import ImageNetwork, make_network, run_network
from hyper_rl.envs.base import Box, Discrete
from hyper_rl.networks import MLP, make_mlp

Number = Float[Array, ""] | float


class Opinion(NamedTuple):
    """What the critic says of each option in each state."""

    values: Float[Array, "batch options"]
    terminations: Float[Array, "batch options"]
    """Probability that the option ends there, not clipped."""


class OptionCritic(eqx.Module):
    """One trunk under both answers: option values through a tanh layer, terminations straight from the trunk."""

    trunk: MLP | ImageNetwork
    hidden: MLP
    value: MLP
    termination: MLP

    def __call__(self, observations: Shaped[Array, "batch ..."]) -> Opinion:
        seen = jax.nn.relu(run_network(self.trunk, observations))
        return Opinion(self.value(jnp.tanh(self.hidden(seen))), jax.nn.sigmoid(self.termination(seen)))


def make_option_critic(key: PRNGKeyArray, seen: Box | Discrete, widths: tuple[int, ...], options: int) -> OptionCritic:
    """`seen`: the space of observations; `widths`: of the trunk; the tanh layer is as wide as its last."""
    key, other, width = *jax.random.split(key), widths[-1]
    # The layers from the observation to the values in one draw, because each draw takes seconds to compile.
    whole = make_network(key, seen, lambda key, inputs: make_mlp(key, (inputs, *widths, width, options)))
    chain = whole.layers if isinstance(whole, ImageNetwork) else whole
    lower, hidden, value = (
        MLP(chain.weights[part], chain.biases[part], False) for part in (slice(-2), slice(-2, -1), slice(-1, None))
    )
    trunk = ImageNetwork(whole.convolutions, lower) if isinstance(whole, ImageNetwork) else lower
    return OptionCritic(trunk, hidden, value, make_mlp(other, (width, options)))


def selection_probabilities(
    values: Float[Array, " options"], factor: Number, low: Number, high: Number
) -> Float[Array, " options"]:
    """Softmax of the values relative to a largest one above 1, clipped: what `sample_in_order` walks along."""
    relative = values / jnp.maximum(values.max(), 1.0)
    return jnp.clip(jax.nn.softmax(factor * relative), low, high)


def sample_in_order(u: Float[Array, ""], probabilities: Float[Array, " options"]) -> Int[Array, ""]:
    """The first option whose cumulative sum exceeds `u`, uniform in [0, 1); the last one where none does.

    Clipped probabilities may sum to more than one; what lies beyond one is never reached. So the option at index i,
    whose predecessors keep at least `low` each, is chosen with probability `largest_share` at most, and the options
    behind a clear winner get what is left of one: possibly nothing.
    """
    passed = u >= jnp.cumsum(probabilities)
    return jnp.minimum(passed.sum(dtype=jnp.int32), probabilities.shape[0] - 1)


def largest_share(index: int, low: float, high: float) -> float:
    """The most often the option at `index` can be chosen: min(high, 1 - index low)."""
    return min(high, 1 - index * low)


def option_target(
    reward: Float[Array, " batch"],
    terminated: Bool[Array, " batch"],
    end: Float[Array, " batch"],
    going_on: Float[Array, " batch"],
    best: Float[Array, " batch"],
    gamma: Number,
) -> Float[Array, " batch"]:
    """r + gamma (1 - terminated) [(1 - end) Q'(s', o) + end max Q'(s', .)]; `going_on`: Q'(s', o), `best`: the max."""
    after = (1 - end) * going_on + end * best
    return reward + gamma * jnp.where(terminated, jnp.zeros_like(after), after)


def termination_weight(
    value: Float[Array, " batch"], best: Float[Array, " batch"], terminated: Bool[Array, " batch"]
) -> Float[Array, " batch"]:
    """(A - mean A) (1 - terminated) with A = Q'(s, o) - max Q'(s, .): what t(s, o) costs, negative where A is poor."""
    advantage = value - best
    centred = advantage - advantage.mean()
    return jnp.where(terminated, jnp.zeros_like(centred), centred)


def option_loss(
    critic: OptionCritic,
    observations: Shaped[Array, "batch ..."],
    options: Int[Array, " batch"],
    targets: Float[Array, " batch"],
    weights: Float[Array, " batch"],
) -> Float[Array, ""]:
    """Half the squared error of the values plus the cost of ending, each a mean over the batch."""
    said = critic(observations)
    errors = of_option(said.values, options) - targets
    return 0.5 * jnp.square(errors).mean() + (of_option(said.terminations, options) * weights).mean()


def of_option(table: Float[Array, "batch options"], options: Int[Array, " batch"]) -> Float[Array, " batch"]:
    """Each row's entry of the option taken, as a masked sum: its derivative is a product instead of a scatter."""
    taken = options[:, None] == jnp.arange(table.shape[1], dtype=jnp.int32)[None, :]
    return jnp.where(taken, table, jnp.zeros_like(table)).sum(axis=1)

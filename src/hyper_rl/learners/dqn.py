"""DQN (Mnih et al. 2015), by default with Double-DQN targets (van Hasselt et al. 2016) and a softly moving target.

1. y = r + gamma (1 - terminated) Q'(s', argmax_a Q(s', a)); with `double` off, y takes max_a Q'(s', a)
2. Q(s, a) regresses on y, Huber or squared
3. the target moves by tau at every update, or is copied at every n-th
4. acting: greedy, or with probability epsilon uniform; judged greedily; ties at random

Epsilon is for a learner that collects its data alone (method `exploit`). Where a method has an explorer, exploring is
the explorer's business: there both epsilons are 0. The observation is a vector, one of n choices (one-hot) or an
image, which goes through convolutions first.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.convolutions import ImageNetwork, make_network, run_network
from hyper_rl.envs.base import Discrete, TaskSpec
from hyper_rl.errors import (
    UserError,
    is_number,
    require,
    require_choice,
    require_count,
    require_finite,
    require_positive,
    require_widths,
)
from hyper_rl.learners.base import UpdateInfo
from hyper_rl.learners.tabular_q import greedy_random_ties
from hyper_rl.learners.td3 import td_target
from hyper_rl.networks import MLP, AdamState, adam_init, adam_step, make_mlp, soft_update
from hyper_rl.observations import image_of
from hyper_rl.optimisers import RMSpropState, rmsprop_init, rmsprop_step
from hyper_rl.products import affine
from hyper_rl.types import Transition

TANH_WIDTH = 64


class QNetwork(eqx.Module):
    """Q(s, .): a perceptron, under images with convolutions below it; with a head, its output through tanh and one
    more layer."""

    trunk: MLP | ImageNetwork
    head: MLP | None

    def __call__(self, observations: Shaped[Array, "batch ..."]) -> Float[Array, "batch actions"]:
        x = run_network(self.trunk, observations)
        return x if self.head is None else affine(jnp.tanh(x), self.head.weights[0], self.head.biases[0])


class DQNState(NamedTuple):
    network: QNetwork
    target: QNetwork
    optimiser: AdamState | RMSpropState
    """Its step count is the number of updates made, which epsilon follows."""


class DQNPolicy(NamedTuple):
    network: QNetwork


class DQN(eqx.Module):
    """Deep Q-learning over a finite set of actions."""

    lr: float = 3e-4
    """Learning rate."""
    gamma: float = 0.99
    """Discount."""
    tau: float = 0.005
    """Speed of a soft target."""
    reward_factor: float = 1.0
    """What rewards are multiplied by before they are learned from: values then stand out from where they start."""
    epsilon_start: float = 1.0
    """Share of random actions before the first update (method exploit only)."""
    epsilon_end: float = 0.05
    """Share of random actions after `epsilon_updates` updates (method exploit only)."""
    epsilon_updates: int = eqx.field(static=True, default=10_000)
    """Updates over which the share of random actions falls, in a straight line."""
    batch_size: int = eqx.field(static=True, default=128)
    """Transitions per update."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(256, 256))
    """Hidden layers."""
    layer_norm: bool = eqx.field(static=True, default=False)
    """Normalise the hidden layers."""
    head: Literal["plain", "tanh64"] = eqx.field(static=True, default="plain")
    """'tanh64' puts a tanh layer of 64 units between the hidden layers and the action values."""
    first_weights: Literal["uniform", "unit-rows"] = eqx.field(static=True, default="uniform")
    """PyTorch's uniform ones, or Gaussian with incoming weights of norm 1 and no bias."""
    double: bool = eqx.field(static=True, default=True)
    """The online network picks the next action and the target network values it."""
    target: Literal["soft", "hard"] = eqx.field(static=True, default="soft")
    """'soft' moves the target by tau at every update, 'hard' copies it at every `target_every`-th."""
    target_every: int = eqx.field(static=True, default=100)
    """Updates between two copies of a hard target."""
    loss: Literal["huber", "mse"] = eqx.field(static=True, default="huber")
    """Loss of an error: Huber with its corner at 1, or the square."""
    optimiser: Literal["adam", "rmsprop"] = eqx.field(static=True, default="adam")
    """Adam or RMSprop, as PyTorch computes them."""

    def __check_init__(self) -> None:
        require_positive("dqn.lr", self.lr)
        require(is_number(self.gamma) and 0 <= self.gamma < 1, "dqn.gamma", self.gamma, "in [0, 1)")
        require(is_number(self.tau) and 0 < self.tau <= 1, "dqn.tau", self.tau, "in (0, 1]")
        require_positive("dqn.reward_factor", self.reward_factor)
        require_finite("dqn.epsilon_start", self.epsilon_start, low=0.0, high=1.0)
        require_finite("dqn.epsilon_end", self.epsilon_end, low=0.0, high=1.0)
        require_count("dqn.epsilon_updates", self.epsilon_updates)
        require_count("dqn.batch_size", self.batch_size)
        require_widths("dqn.widths", self.widths)
        require_choice("dqn.head", self.head, ("plain", "tanh64"))
        require_choice("dqn.first_weights", self.first_weights, ("uniform", "unit-rows"))
        require_choice("dqn.target", self.target, ("soft", "hard"))
        require_count("dqn.target_every", self.target_every)
        require_choice("dqn.loss", self.loss, ("huber", "mse"))
        require_choice("dqn.optimiser", self.optimiser, ("adam", "rmsprop"))

    @property
    def uses_newest(self) -> bool:
        return False

    def check(self, spec: TaskSpec) -> None:
        if not isinstance(spec.action, Discrete):
            if image_of(spec.observation) is not None:
                raise UserError(
                    f"learner: 'dqn' needs a finite set of actions, and {spec.name} has continuous ones; no learner "
                    "here takes those together with images, so give the environment a wrapper"
                )
            raise UserError(
                f"learner: 'dqn' needs a finite set of actions, and {spec.name} has continuous ones; use 'td3' or 'sac'"
            )

    def init(self, key: PRNGKeyArray, spec: TaskSpec, optimism: Float[Array, ""]) -> DQNState:
        """`optimism` is for tables; a network has no untried entries to raise."""
        assert isinstance(spec.action, Discrete)
        actions = spec.action.n
        make = make_mlp if self.first_weights == "uniform" else make_unit_rows_mlp

        def trunk(key: PRNGKeyArray, outputs: int) -> MLP | ImageNetwork:
            def above(key: PRNGKeyArray, inputs: int) -> MLP:
                return make(key, (inputs, *self.widths, outputs), layer_norm=self.layer_norm)

            return make_network(key, spec.observation, above)

        if self.head == "plain":
            network = QNetwork(trunk(key, actions), None)
        else:
            trunk_key, head_key = jax.random.split(key)
            network = QNetwork(trunk(trunk_key, TANH_WIDTH), make(head_key, (TANH_WIDTH, actions)))
        start = adam_init if self.optimiser == "adam" else rmsprop_init
        return DQNState(network, jax.tree.map(jnp.copy, network), start(network))

    def act(self, state: DQNState, observation: Shaped[Array, "..."], key: PRNGKeyArray) -> Int[Array, ""]:
        coin_key, random_key, tie_key = jax.random.split(key, 3)
        values = state.network(observation[None])[0]
        anything = jax.random.randint(random_key, (), 0, values.shape[0], dtype=jnp.int32)
        wander = jax.random.uniform(coin_key, dtype=float) < self.epsilon(state.optimiser.steps)
        return jnp.where(wander, anything, greedy_random_ties(values, tie_key))

    def epsilon(self, updates: Int[Array, ""]) -> Float[Array, ""]:
        """Share of random actions after so many updates."""
        done = jnp.minimum(updates.astype(float) / self.epsilon_updates, 1.0)
        return self.epsilon_start + (self.epsilon_end - self.epsilon_start) * done

    def judge(
        self, state: DQNState | DQNPolicy, observation: Shaped[Array, "..."], key: PRNGKeyArray
    ) -> Int[Array, ""]:
        return greedy_random_ties(state.network(observation[None])[0], key)

    def estimate(self, state: DQNState | DQNPolicy, observation: Shaped[Array, "..."]) -> Float[Array, ""]:
        return state.network(observation[None])[0].max() / self.reward_factor

    def policy(self, state: DQNState) -> DQNPolicy:
        return DQNPolicy(state.network)

    def observe(self, state: DQNState, newest: Transition) -> DQNState:
        return state

    def update(
        self,
        state: DQNState,
        batch: Transition,
        rewards: Float[Array, " batch"],
        key: PRNGKeyArray,
        index: Int[Array, ""],
    ) -> tuple[DQNState, UpdateInfo]:
        theirs = state.target(batch.next_observation)
        picks = state.network(batch.next_observation) if self.double else theirs
        paid = self.reward_factor * rewards
        targets = td_target(paid, batch.terminated, next_value(picks, theirs), self.gamma)

        loss, grads = jax.value_and_grad(q_loss)(state.network, batch.observation, batch.action, targets, self.loss)
        network, optimiser = optimise(state.network, grads, state.optimiser, self.lr)
        if self.target == "soft":
            target = soft_update(state.target, network, self.tau)
        else:
            # `index` is shared by all runs, so this stays a true branch under vmap.
            copies = index % self.target_every == 0
            target = jax.lax.cond(copies, lambda online, _: online, lambda _, old: old, network, state.target)
        return DQNState(network, target, optimiser), UpdateInfo(loss, jnp.zeros((), float))


def minigrid_dqn() -> DQN:
    """The network and the optimiser of LESSON (Kim et al. 2023) for MiniGrid's 7 x 7 x 3 numbers; two things are ours.

    Its code has a Huber loss with its corner at 1 under rewards of 10, which learns medians: a reward that a view earns
    one time in three is none. And at gamma 0.99 a wasted step costs one percent of a value, less than the network's
    error in a layout it has not seen, so that greedy policies stand still or turn on the spot (results/minigrid).
    """
    return DQN(
        lr=1e-4,
        gamma=0.9,
        reward_factor=10.0,
        batch_size=256,
        widths=(73, 36, 64),
        head="tanh64",
        first_weights="unit-rows",
        double=False,
        target="hard",
        target_every=100,
        loss="mse",
        optimiser="rmsprop",
    )


def next_value(picks: Float[Array, "batch actions"], values: Float[Array, "batch actions"]) -> Float[Array, " batch"]:
    """The value of the action that `picks` prefers: with picks = values, the maximum."""
    return value_of(values, jnp.argmax(picks, axis=-1).astype(jnp.int32))


def value_of(values: Float[Array, "batch actions"], actions: Int[Array, " batch"]) -> Float[Array, " batch"]:
    """Written as a masked sum: its derivative is a product, where that of a gather is a slow scatter."""
    taken: Bool[Array, "batch actions"] = actions[:, None] == jnp.arange(values.shape[1], dtype=jnp.int32)[None, :]
    return jnp.where(taken, values, jnp.zeros_like(values)).sum(axis=1)


def q_loss(
    network: QNetwork,
    observations: Shaped[Array, "batch ..."],
    actions: Int[Array, " batch"],
    targets: Float[Array, " batch"],
    kind: Literal["huber", "mse"],
) -> Float[Array, ""]:
    errors = value_of(network(observations), actions) - targets
    return (huber(errors) if kind == "huber" else jnp.square(errors)).mean()


def huber(error: Float[Array, "..."]) -> Float[Array, "..."]:
    """error^2 / 2 up to 1, |error| - 1/2 beyond."""
    size = jnp.abs(error)
    return jnp.where(size < 1, 0.5 * jnp.square(error), size - 0.5)


def optimise(
    network: QNetwork, grads: QNetwork, state: AdamState | RMSpropState, lr: float
) -> tuple[QNetwork, AdamState | RMSpropState]:
    if isinstance(state, RMSpropState):
        return rmsprop_step(network, grads, state, lr)
    return adam_step(network, grads, state, lr)


def make_unit_rows_mlp(key: PRNGKeyArray, sizes: tuple[int, ...], *, layer_norm: bool = False) -> MLP:
    """Gaussian weights, those into one unit scaled to norm 1, and no bias."""
    layers = list(pairwise(sizes))
    drawn = jax.random.normal(key, (sum(m * n for m, n in layers),), dtype=float)
    weights, used = [], 0
    for fan_in, fan_out in layers:
        here = drawn[used : used + fan_in * fan_out].reshape(fan_in, fan_out)
        weights.append(here / jnp.sqrt(jnp.square(here).sum(axis=0, keepdims=True)))
        used += fan_in * fan_out
    return MLP(tuple(weights), tuple(jnp.zeros((n,), float) for _, n in layers), layer_norm)

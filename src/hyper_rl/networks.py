"""The only network the core needs: a multi-layer perceptron over a batch, and Adam with its rate as data.

Weights start as PyTorch's `Linear` starts them (uniform, 1/sqrt(fan-in)), because the published TD3 numbers were made
with that start. The learning rate is an argument and not baked into an optimiser, so that a sweep over it is a `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.hidden_layers import hidden
from hyper_rl.products import affine, affine_backward
from hyper_rl.types import PyTree


class MLP(eqx.Module):
    """Affine layers with ReLU between them; optionally layer-normalised before each ReLU.

    The normalisation has no learned scale or shift: its purpose here is to bound the critic's features, and the next
    layer's weights can undo any fixed scale.

    `half` computes products from operands rounded to bfloat16 and keeps what goes from layer to layer in it: half the
    memory traffic, which is what bounds a GPU here. Parameters, their gradients and the output keep their precision.
    """

    weights: tuple[Float[Array, "fan_in fan_out"], ...]
    biases: tuple[Float[Array, " fan_out"], ...]
    layer_norm: bool = eqx.field(static=True)
    half: bool = eqx.field(static=True, default=False)

    def __call__(self, x: Float[Array, "batch fan_in"]) -> Float[Array, "batch fan_out"]:
        return self.with_layers(x)[0]

    def with_layers(self, x: Float[Array, "batch fan_in"]) -> tuple[Float[Array, "batch fan_out"], tuple[Array, ...]]:
        """The output, and what went into each layer."""
        last = len(self.weights) - 1
        inputs, full = [], x.dtype
        x = x.astype(jnp.bfloat16) if self.half else x
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs.append(x)
            if i == last:
                return affine(x, weight, bias, full), tuple(inputs)
            x = hidden(x, weight, bias, normalised=self.layer_norm)
        raise AssertionError("a network has at least one layer")


def mlp_gradient(mlp: MLP, inputs: tuple[Array, ...], dy: Float[Array, "batch fan_out"]) -> MLP:
    """Gradient of sum(output * dy) in the parameters, from layer inputs that are already there.

    For when the forward pass of a larger batch has been made anyway and only some of its rows are to be learned from.
    """
    assert not mlp.layer_norm, "written for plain layers"
    weights, biases = [], []
    for weight, x in zip(reversed(mlp.weights), reversed(inputs), strict=True):
        dx, dweight, dbias = affine_backward(None, (x, weight), dy)
        weights.append(dweight)
        biases.append(dbias)
        dy = jnp.where(x > 0, dx, jnp.zeros_like(dx))  # x came out of a ReLU; for the first layer dy is not used again
    return MLP(tuple(reversed(weights)), tuple(reversed(biases)), False, mlp.half)


def make_mlp(key: PRNGKeyArray, sizes: tuple[int, ...], *, layer_norm: bool = False, half: bool = False) -> MLP:
    """`sizes` = (inputs, hidden..., outputs). One draw for all layers: each further one costs seconds to compile."""
    layers = list(pairwise(sizes))
    count = sum((m + 1) * n for m, n in layers)
    drawn = jax.random.uniform(key, (count,), minval=-1.0, maxval=1.0, dtype=float)
    weights, biases, used = [], [], 0
    for fan_in, fan_out in layers:
        here = drawn[used : used + (fan_in + 1) * fan_out].reshape(fan_in + 1, fan_out) * fan_in**-0.5
        weights.append(here[:fan_in])
        biases.append(here[fan_in])
        used += (fan_in + 1) * fan_out
    return MLP(tuple(weights), tuple(biases), layer_norm, half)


def make_ensemble(make: Callable[[PRNGKeyArray], MLP], key: PRNGKeyArray, members: int) -> MLP:
    """Independent members stacked on a leading axis: their layers become one batched product."""
    return jax.vmap(make)(jax.random.split(key, members))


class AdamState(NamedTuple):
    steps: Int[Array, ""]
    first: PyTree
    second: PyTree


def adam_init(params: PyTree) -> AdamState:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return AdamState(jnp.zeros((), jnp.int32), zeros, jax.tree.map(jnp.copy, zeros))


def adam_step(
    params: PyTree,
    grads: PyTree,
    state: AdamState,
    lr: Float[Array, ""] | float,
    *,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> tuple[PyTree, AdamState]:
    """One step of Adam (Kingma and Ba 2015) with bias correction, as PyTorch computes it."""
    steps = state.steps + 1
    n = steps.astype(float)
    first = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.first, grads)
    second = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state.second, grads)
    step_size = lr / (1 - b1**n)
    root_correction = jax.lax.rsqrt(1 - b2**n)
    params = jax.tree.map(
        lambda p, m, v: p - step_size * m / (jnp.sqrt(v) * root_correction + eps), params, first, second
    )
    return params, AdamState(steps, first, second)


def soft_update(target: PyTree, online: PyTree, tau: Float[Array, ""] | float) -> PyTree:
    """Polyak averaging: target <- (1 - tau) target + tau online."""
    return jax.tree.map(lambda t, o: t + tau * (o - t), target, online)

"""Networks in one kernel, computed without a GPU, against the same networks layer by layer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl import backend, fused_network
from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.envs.base import Box, TaskSpec
from hyper_rl.fused import Mode, fits, forward
from hyper_rl.fused_backward import gradient
from hyper_rl.learners.base import KnownPlace
from hyper_rl.learners.td3 import TD3, actor_loss, critic_loss
from hyper_rl.networks import MLP, make_ensemble, make_mlp
from hyper_rl.types import PyTree, Transition

SPEC = TaskSpec("nowhere", Box(4, -1.0, 1.0), Box(2, -1.0, 1.0), cells=1)


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "fuses", lambda: True)
    monkeypatch.setattr(fused_network, "INTERPRET", True)


def numbers(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape, jnp.float32)


def network(sizes: tuple[int, ...], *, layer_norm: bool = False, half: bool = False) -> MLP:
    made = make_mlp(jax.random.key(0), sizes, layer_norm=layer_norm, half=half)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), made)


def off_by(one: PyTree, other: PyTree) -> float:
    """Largest distance of two leaves, relative to the size of the second."""
    distances = jax.tree.map(lambda a, b: jnp.linalg.norm(a - b) / jnp.linalg.norm(b), one, other)
    return float(max(jax.tree.leaves(distances)))


def layer_by_layer(mlp: MLP, x: jax.Array, dy: jax.Array) -> tuple[jax.Array, MLP, jax.Array]:
    y, backward = jax.vjp(lambda network, rows: network.with_layers(rows)[0], mlp, x)
    return y, *backward(dy)


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("sizes", "rows"), [((6, 32, 64, 4), 64), ((3, 64, 32, 1), 256), ((8, 128, 128, 2), 128)])
def test_it_computes_what_the_layers_do(sizes: tuple[int, ...], rows: int, layer_norm: bool) -> None:
    mlp = network(sizes, layer_norm=layer_norm)
    x, dy = numbers(1, rows, sizes[0]), numbers(2, rows, sizes[-1])
    mode = Mode(layer_norm, False, interpret=True)
    y, dmlp, dx = layer_by_layer(mlp, x, dy)
    slopes = gradient(mlp.weights, mlp.biases, x, dy, mode, needs_x=True)
    assert off_by(forward(mlp.weights, mlp.biases, x, mode), y) < 1e-6
    assert off_by((slopes.weights, slopes.biases, slopes.x), (dmlp.weights, dmlp.biases, dx)) < 3e-6


@pytest.mark.parametrize("layer_norm", [False, True])
def test_half_products_are_no_further_from_the_truth_than_those_of_the_layers(layer_norm: bool) -> None:
    sizes = (6, 128, 128, 2)
    exact = network(sizes, layer_norm=layer_norm)
    rounded = network(sizes, layer_norm=layer_norm, half=True)
    x, dy = numbers(1, 256, 6), numbers(2, 256, 2)
    y, dmlp, dx = layer_by_layer(exact, x, dy)
    y_layers, dmlp_layers, dx_layers = layer_by_layer(rounded, x, dy)
    mode = Mode(layer_norm, True, interpret=True)
    slopes = gradient(rounded.weights, rounded.biases, x, dy, mode, needs_x=True)
    there, here = (y_layers, dmlp_layers.weights, dx_layers), (slopes.weights, slopes.x)
    assert 0 < off_by(forward(rounded.weights, rounded.biases, x, mode), y) < off_by(there[0], y)
    assert 0 < off_by(here, (dmlp.weights, dx)) < off_by(there[1:], (dmlp.weights, dx)) < 0.2


def test_it_is_vectorised_over_networks_that_share_their_rows() -> None:
    models = make_ensemble(lambda key: make_mlp(key, (6, 32, 32, 4)), jax.random.key(0), 3)
    models = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), models)
    x, mode = numbers(1, 128, 6), Mode(False, False, interpret=True)
    together = jax.vmap(lambda m: forward(m.weights, m.biases, x, mode))(models)
    alone = [jax.tree.map(lambda leaf, i=i: leaf[i], models).with_layers(x)[0] for i in range(3)]
    np.testing.assert_allclose(together, jnp.stack(alone), atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_losses_of_td3_are_differentiated_through_it(fused: None, layer_norm: bool) -> None:
    critics = make_ensemble(lambda key: make_mlp(key, (6, 32, 32, 1), layer_norm=layer_norm), jax.random.key(0), 2)
    critics, actor = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32), (critics, make_mlp(jax.random.key(1), (4, 32, 32, 2)))
    )
    observations, actions, targets = numbers(2, 64, 4), jnp.tanh(numbers(3, 64, 2)), numbers(4, 64)

    def both() -> PyTree:
        return (
            jax.value_and_grad(critic_loss)(critics, observations, actions, targets),
            jax.value_and_grad(actor_loss)(actor, critics, observations),
        )

    in_one = both()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "fuses", lambda: False)
        by_layer = both()
    assert off_by(in_one, by_layer) < 3e-6
    text = str(jax.make_jaxpr(jax.grad(critic_loss))(critics, observations, actions, targets))
    assert text.count("pallas_call[") == 4  # forward and the three of the backward pass


def test_learner_and_models_learn_the_same_with_it() -> None:
    learner, bonus = TD3(widths=(32, 32)), Disagreement(widths=(32, 32), normalise=True, target="change")
    key = jax.random.key(0)
    rows, actions = numbers(5, 256, 4), jnp.tanh(numbers(6, 256, 2))
    batch = Transition(rows, actions, jnp.zeros(256), rows + 0.1 * numbers(7, 256, 4), jnp.zeros(256, bool))
    states = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.float64 else leaf,
        (learner.init(key, SPEC, jnp.zeros(())), bonus.init(key, SPEC)),
    )

    def learn() -> PyTree:
        td3, models = states
        rewards, models, loss = bonus.learn(models, batch, key)
        td3, info = learner.update(td3, batch, rewards, key, KnownPlace(jnp.zeros((), jnp.int32), 0, 2))
        # Not the parameters: the first step of Adam is the sign of the slope, and slopes near zero have either.
        return rewards, loss, info, models.optimiser.first, td3.critics_optimiser.first, td3.actor_optimiser.first

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "fuses", lambda: True)
        patch.setattr(fused_network, "INTERPRET", True)
        in_one = learn()
    assert off_by(in_one, learn()) < 1e-4


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [((6, 32, 1), 64), ((6, 32, 32, 32, 1), 64), ((9, 32, 32, 1), 64), ((6, 32, 32, 5), 64), ((6, 48, 32, 1), 64),
     ((6, 32, 512, 1), 64), ((6, 32, 32, 1), 100)],
)  # fmt: skip
def test_what_does_not_fit_is_left_to_the_layers(fused: None, sizes: tuple[int, ...], rows: int) -> None:
    mlp, x = network(sizes), numbers(1, rows, sizes[0])
    assert fits(network((6, 32, 32, 1)).weights, numbers(1, 64, 6))
    assert not fits(mlp.weights, x)
    np.testing.assert_array_equal(mlp(x), mlp.with_layers(x)[0])


def test_other_precisions_are_left_to_the_layers() -> None:
    weights, x = network((6, 32, 32, 1)).weights, numbers(1, 64, 6)
    with jax.default_matmul_precision("highest"):
        assert not fits(weights, x)
    assert not fits(weights, x.astype(jnp.bfloat16))

"""Affine layers: their derivative, rounding, and the sums that stand for thin products on a GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl import backend
from hyper_rl.networks import MLP, make_ensemble, make_mlp
from hyper_rl.products import affine, sum_for_each_output, sum_over_inputs


def test_affine_has_the_automatic_derivative() -> None:
    """Its derivative is written out by hand for speed; it must be the one JAX would find."""
    rng = np.random.default_rng(5)
    x, w, b, dy = (jnp.asarray(rng.normal(size=shape), float) for shape in ((7, 3), (3, 4), (4,), (7, 4)))
    mine = jax.grad(lambda *args: (affine(*args) * dy).sum(), argnums=(0, 1, 2))(x, w, b)
    automatic = jax.grad(lambda x, w, b: ((x @ w + b[None, :]) * dy).sum(), argnums=(0, 1, 2))(x, w, b)
    for one, other in zip(mine, automatic, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("shape", [(6, 32), (32, 4), (6, 2)])
def test_thin_products_as_sums_are_the_same_numbers(shape: tuple[int, int], half: bool) -> None:
    full = jnp.zeros((), float).dtype
    kind = jnp.bfloat16 if half else full
    x = jax.random.normal(jax.random.key(0), (40, shape[0]), float).astype(kind)
    weight = jax.random.normal(jax.random.key(1), shape, float).astype(kind)
    exact = np.asarray(x, np.float64) @ np.asarray(weight, np.float64)
    for thin in (sum_over_inputs, sum_for_each_output):
        found = thin(x, weight, full)
        assert found.dtype == full
        np.testing.assert_allclose(np.asarray(found), exact, rtol=1e-5, atol=1e-5)


def test_networks_with_sums_learn_what_those_without_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU computes, on this machine: the same values and slopes, to rounding, for networks that share inputs."""
    networks = make_ensemble(lambda key: make_mlp(key, (6, 32, 32, 3)), jax.random.key(0), 2)
    x = jax.random.normal(jax.random.key(1), (64, 6), float)

    def loss(inputs: Float[Array, "batch n"], some: MLP) -> Float[Array, ""]:
        return jnp.square(networks_values(some, inputs)).mean()

    slopes = jax.grad(loss, argnums=(0, 1))
    plain = slopes(x, networks)
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    text = str(jax.make_jaxpr(lambda inputs: networks_values(networks, inputs))(x))
    assert text.count("dot_general") == 1, "the middle layer alone is a matrix product"
    summed = slopes(x, networks)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(summed), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-6)


def networks_values(networks: MLP, inputs: Float[Array, "batch n"]) -> Array:
    return jax.vmap(lambda network: network(inputs))(networks)


def test_half_products_are_those_of_rounded_operands() -> None:
    x, weight = (jax.random.normal(jax.random.key(i), (16, 16), float) for i in range(2))
    bias = jnp.zeros((16,), float)
    rounded = [np.asarray(one.astype(jnp.bfloat16).astype(x.dtype), np.float64) for one in (x, weight)]
    given = affine(x.astype(jnp.bfloat16), weight, bias, x.dtype)
    np.testing.assert_allclose(np.asarray(given), rounded[0] @ rounded[1], rtol=1e-4, atol=1e-5)

"""Affine layers: their derivative and rounding."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.products import affine


def test_affine_has_the_automatic_derivative() -> None:
    """Its derivative is written out by hand for speed; it must be the one JAX would find."""
    rng = np.random.default_rng(5)
    x, w, b, dy = (jnp.asarray(rng.normal(size=shape), float) for shape in ((7, 3), (3, 4), (4,), (7, 4)))
    mine = jax.grad(lambda *args: (affine(*args) * dy).sum(), argnums=(0, 1, 2))(x, w, b)
    automatic = jax.grad(lambda x, w, b: ((x @ w + b[None, :]) * dy).sum(), argnums=(0, 1, 2))(x, w, b)
    for one, other in zip(mine, automatic, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)


def test_half_products_are_those_of_rounded_operands() -> None:
    x, weight = (jax.random.normal(jax.random.key(i), (16, 16), float) for i in range(2))
    bias = jnp.zeros((16,), float)
    rounded = [np.asarray(one.astype(jnp.bfloat16).astype(x.dtype), np.float64) for one in (x, weight)]
    given = affine(x.astype(jnp.bfloat16), weight, bias, x.dtype)
    np.testing.assert_allclose(np.asarray(given), rounded[0] @ rounded[1], rtol=1e-4, atol=1e-5)

"""Hidden layers: what they give, and that their written-out derivative is the one JAX would find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from hyper_rl import backend, thin_kernels
from hyper_rl.hidden_layers import EPSILON, hidden, normalised_relu
from hyper_rl.networks import make_ensemble, make_mlp


def plain(x: Array, weight: Array, bias: Array, *, normalised: bool) -> Array:
    """As one would write it down."""
    units = x @ weight + bias[None, :]
    if normalised:
        variance = jnp.square(units - units.mean(axis=1, keepdims=True)).mean(axis=1, keepdims=True)
        units = (units - units.mean(axis=1, keepdims=True)) / jnp.sqrt(variance + EPSILON)
    return jnp.maximum(units, 0.0)


def draw(*shapes: tuple[int, ...]) -> list[Array]:
    return [jax.random.normal(jax.random.key(i), shape, float) for i, shape in enumerate(shapes)]


def test_normalised_units_by_hand() -> None:
    # (1, 2, 3, 6): mean 3, squares (4, 1, 0, 9) -> variance 14 / 4 = 3.5; divided by sqrt(3.5) = 1.8708287
    # A constant row has variance 0 and becomes 0.
    out = normalised_relu(jnp.asarray([[1.0, 2.0, 3.0, 6.0], [5.0, 5.0, 5.0, 5.0]], float))
    np.testing.assert_allclose(np.asarray(out), [[0.0, 0.0, 0.0, 3.0 / 1.8708287], [0.0] * 4], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("gpu", [False, True], ids=["cpu", "gpu"])
@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "normalised"])
@pytest.mark.parametrize("inputs", [6, 32])
def test_values_and_slopes_are_the_automatic_ones(
    inputs: int, normalised: bool, gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, so that nothing hides in rounding; six inputs take the way of thin layers on a GPU."""
    with jax.enable_x64(True):
        monkeypatch.setattr(backend, "on_gpu", lambda: gpu)
        x, weight, bias, dy = draw((40, inputs), (inputs, 24), (24,), (40, 24))
        np.testing.assert_allclose(
            np.asarray(hidden(x, weight, bias, normalised=normalised)),
            np.asarray(plain(x, weight, bias, normalised=normalised)),
            rtol=1e-10, atol=1e-12,
        )  # fmt: skip

        def slopes(layer: Any) -> Any:
            def loss(*given: Array) -> Array:
                return (layer(*given, normalised=normalised) * dy).sum()

            return jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(x, weight, bias)

        for mine, automatic in zip(slopes(hidden), slopes(plain), strict=True):
            np.testing.assert_allclose(np.asarray(mine), np.asarray(automatic), rtol=1e-8, atol=1e-10)


def test_a_unit_at_exactly_zero_has_no_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    weight, bias = draw((3, 5))[0], jnp.zeros((5,), float)
    slope = jax.grad(lambda x: hidden(x, weight, bias, normalised=False).sum())(jnp.zeros((2, 3), float))
    np.testing.assert_array_equal(np.asarray(slope), 0.0)


@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
def test_normalised_networks_learn_the_same_on_either_device(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Critics that share inputs, mapped as a step maps them."""
    networks = make_ensemble(lambda k: make_mlp(k, (6, 32, 32, 1), layer_norm=True, half=half), jax.random.key(0), 2)
    x, y = draw((64, 6), (64, 1))

    def slopes() -> list[Array]:
        def loss(some: Any) -> Array:
            return jnp.square(jax.vmap(lambda network: network(x))(some) - y[None]).mean()

        return jax.tree.leaves(jax.jit(jax.grad(loss))(networks))

    here = slopes()
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    for one, other in zip(here, slopes(), strict=True):
        apart = np.linalg.norm(np.asarray(one) - np.asarray(other)) / np.linalg.norm(np.asarray(one))
        assert apart < (8e-3 if half else 1e-6)  # twice and five times what it is; bfloat16 rounds to 4e-3


@pytest.mark.parametrize("half", [False, True], ids=["full", "half"])
@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "normalised"])
def test_the_kernels_give_the_units_and_slopes_of_the_plain_way(
    normalised: bool, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interpreted, of two networks in each of three runs that share their inputs; two blocks of rows and of units."""
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    monkeypatch.setattr(thin_kernels, "interpreted", lambda: True)
    x, weight, bias, dy = (
        a.astype(jnp.float32) for a in draw((3, 128, 6), (3, 2, 6, 256), (3, 2, 256), (3, 2, 128, 256))
    )
    kind = jnp.bfloat16 if half else jnp.float32
    x, dy = x.astype(kind), dy.astype(kind)
    assert thin_kernels.fits((x[0], weight[0, 0], bias[0, 0]))

    def units_and_slopes() -> list[Array]:
        def one(x: Array, weight: Array, bias: Array, dy: Array) -> Any:
            y, backward = jax.vjp(lambda *layer: hidden(*layer, normalised=normalised), x, weight, bias)
            return y, *backward(dy)

        return list(jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0, 0, 0))))(x, weight, bias, dy))

    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        kernel = getattr(thin_kernels, name)

        def called(*given: Any) -> Any:
            calls.append(name)
            return kernel(*given)

        return called

    for name in ("units", "weight_slopes"):
        monkeypatch.setattr(thin_kernels, name, counted(name))
    by_kernels = units_and_slopes()
    monkeypatch.setattr(thin_kernels, "fits", lambda layer: False)
    without = units_and_slopes()
    assert calls == ["units", "weight_slopes"]  # by the first of the two
    for one, other in zip(without, by_kernels, strict=True):
        assert one.dtype == other.dtype
        mine, plainly = np.asarray(other, np.float64), np.asarray(one, np.float64)
        apart = np.linalg.norm(mine - plainly) / np.linalg.norm(plainly)
        assert apart < (4e-3 if half else 1e-6)  # twice and five times what it is


@pytest.mark.parametrize("normalised", [False, True], ids=["plain", "normalised"])
def test_a_gradient_can_be_differentiated_again(normalised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a penalty on a critic's gradient does: with the kernel as without."""
    x, weight, bias = (a.astype(jnp.float32) for a in draw((64, 6), (6, 32), (32,)))

    def penalty(x: Array, weight: Array, bias: Array) -> Array:
        def loss(*layer: Array) -> Array:
            return jnp.square(hidden(*layer, normalised=normalised)).sum()

        slopes = jax.grad(loss, argnums=(0, 1, 2))(x, weight, bias)
        return jnp.stack([jnp.square(slope).sum() for slope in slopes]).sum()

    def slopes() -> list[Array]:
        return list(jax.jit(jax.grad(penalty, argnums=(0, 1, 2)))(x, weight, bias))

    here = slopes()
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    monkeypatch.setattr(thin_kernels, "interpreted", lambda: True)
    assert thin_kernels.fits((x, weight, bias))
    jax.clear_caches()
    for one, other in zip(here, slopes(), strict=True):
        apart = np.linalg.norm(np.asarray(one) - np.asarray(other)) / np.linalg.norm(np.asarray(one))
        assert apart < 4e-6  # five times what it is


def test_a_layer_that_has_diverged_shows_it_through_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin_kernels, "interpreted", lambda: True)
    x, weight, bias = (a.astype(jnp.float32) for a in draw((64, 6), (6, 32), (32,)))
    y = thin_kernels.units((x.at[3, 1].set(jnp.nan), weight, bias))
    assert np.isnan(y[3]).all() and np.isfinite(np.delete(y, 3, axis=0)).all()


def test_the_kernels_take_whole_blocks_of_short_numbers_only() -> None:
    def fits(batch: int, inputs: int, width: int, kind: Any = jnp.float32) -> bool:
        shapes = ((batch, inputs), (inputs, width), (width,))
        layer: Any = tuple(jax.ShapeDtypeStruct(shape, kind) for shape in shapes)
        return thin_kernels.fits(layer)

    assert fits(256, 6, 256) and fits(64, 11, 16) and fits(256, 6, 384, jnp.bfloat16)
    assert not fits(100, 6, 256)
    assert not fits(256, 12, 256)
    assert not fits(256, 6, 200) and not fits(256, 6, 24) and not fits(256, 6, 8)
    assert not fits(256, 6, 256, jnp.float64) and not fits(256, 6, 256, jnp.float16)

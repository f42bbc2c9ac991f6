"""Networks, Adam and running statistics against numbers worked out by hand and against numpy."""

from __future__ import annotations

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.networks import (
    MLP,
    adam_init,
    adam_step,
    make_ensemble,
    make_mlp,
    soft_update,
)
from hyper_rl.normalise import (
    moments_add,
    moments_deviation,
    moments_init,
    scale_add,
    scale_init,
    scale_rms,
    scale_std,
)

KEY = jax.random.key(0)


def array(*values: object) -> Float[Array, "..."]:
    return jnp.asarray(values, float)


def two_layers(*, layer_norm: bool) -> MLP:
    """2 inputs, 2 hidden units, 1 output."""
    weights = (array([1.0, -1.0], [2.0, 1.0]), array([3.0], [5.0]))
    return MLP(weights, (array(0.5, 0.0), array(-1.0)), layer_norm)


def test_forward_pass_by_hand() -> None:
    # x = (1, 2): hidden = (1*1 + 2*2 + 0.5, -1*1 + 1*2 + 0) = (5.5, 1), out = 3*5.5 + 5*1 - 1 = 20.5
    # x = (2, -1): hidden = (2 - 2 + 0.5, -2 - 1) = (0.5, -3) -> ReLU (0.5, 0), out = 1.5 - 1 = 0.5
    out = two_layers(layer_norm=False)(array([1.0, 2.0], [2.0, -1.0]))
    np.testing.assert_allclose(np.asarray(out), [[20.5], [0.5]], rtol=1e-6)


def test_forward_pass_with_layer_norm_by_hand() -> None:
    # Two features always normalise to +-d / sqrt(d^2 + eps), d half their distance, the larger one positive:
    # x = (1, 2): (5.5, 1), d = 2.25 -> (+1, -1) -> ReLU (1, 0), out = 3 - 1 = 2 (eps 1e-5 takes off 1e-6 of it)
    # x = (2, -1): (0.5, -3), d = 1.75 -> the same 2
    # The output layer itself is never normalised.
    out = two_layers(layer_norm=True)(array([1.0, 2.0], [2.0, -1.0]))
    np.testing.assert_allclose(np.asarray(out), [[2.0], [2.0]], atol=1e-5)


@pytest.mark.parametrize("sizes", [(4, 256, 256, 2), (1, 16, 1)])
def test_initial_weights_are_pytorchs(sizes: tuple[int, ...]) -> None:
    """Uniform on +-1/sqrt(fan-in), weights and biases alike."""
    network = make_mlp(KEY, sizes)
    assert [w.shape for w in network.weights] == list(pairwise(sizes))
    assert [b.shape for b in network.biases] == [(n,) for n in sizes[1:]]
    for fan_in, weight, bias in zip(sizes, network.weights, network.biases, strict=False):
        bound = 1 / np.sqrt(fan_in)
        for values in (np.asarray(weight).ravel(), np.asarray(bias)):
            assert np.abs(values).max() <= bound * (1 + 1e-6)
            scaled = np.sort(values) / (2 * bound) + 0.5
            # Kolmogorov-Smirnov distance from the uniform law; 2.2 / sqrt(n) is exceeded once in 8000.
            distance = np.abs(scaled - (np.arange(len(scaled)) + 0.5) / len(scaled)).max()
            assert distance < 2.2 / np.sqrt(len(scaled))


def test_ensemble_members_are_networks_of_their_own() -> None:
    ensemble = make_ensemble(lambda key: make_mlp(key, (3, 2)), KEY, 2)
    x = jax.random.normal(jax.random.key(1), (5, 3), dtype=float)
    together = np.asarray(jax.vmap(lambda member: member(x))(ensemble))
    for i, key in enumerate(jax.random.split(KEY, 2)):
        np.testing.assert_allclose(together[i], np.asarray(make_mlp(key, (3, 2))(x)), rtol=1e-5, atol=1e-6)
    assert np.abs(together[0] - together[1]).max() > 0.01


def test_adams_first_two_steps_by_hand() -> None:
    # lr 0.1, b1 0.9, b2 0.999, gradients 2 then -1, parameter 1.
    # Step 1: m = 0.2, v = 0.004; corrected m 2, v 4; step 0.1 * 2 / 2 = 0.1 -> 0.9
    # Step 2: m = 0.9*0.2 - 0.1 = 0.08, v = 0.999*0.004 + 0.001 = 0.004996;
    #         corrected m 0.08 / 0.19 = 0.42105263, v 0.004996 / 0.001999 = 2.49924962, root 1.58090152;
    #         step 0.1 * 0.42105263 / 1.58090152 = 0.02663371 -> 0.87336629
    # The second parameter never has a gradient and never moves.
    params, state = {"a": array(1.0), "b": array(7.0)}, adam_init({"a": array(1.0), "b": array(7.0)})
    params, state = adam_step(params, {"a": array(2.0), "b": array(0.0)}, state, 0.1)
    assert float(params["a"][0]) == pytest.approx(0.9, abs=1e-6) and float(params["b"][0]) == 7.0
    params, state = adam_step(params, {"a": array(-1.0), "b": array(0.0)}, state, 0.1)
    assert float(params["a"][0]) == pytest.approx(0.87336629, abs=1e-6) and float(params["b"][0]) == 7.0
    assert int(state.steps) == 2
    assert float(state.first["a"][0]) == pytest.approx(0.08, rel=1e-6)
    assert float(state.second["a"][0]) == pytest.approx(0.004996, rel=1e-6)


def test_adams_first_step_has_the_size_of_the_rate_whatever_the_gradient() -> None:
    params, grads = array(0.0, 0.0, 0.0), array(1e-3, -50.0, 4.0)
    moved, _ = adam_step(params, grads, adam_init(params), jnp.asarray(3e-4, float))
    np.testing.assert_allclose(np.asarray(moved), [-3e-4, 3e-4, -3e-4], rtol=1e-4)


def test_adams_hundred_steps_against_numpy() -> None:
    """Written out a second time in float64, including the small-gradient corner where eps matters."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        params = jnp.asarray(rng.normal(size=5))
        state, theirs = adam_init(params), np.array(params)
        first, second = np.zeros(5), np.zeros(5)
        for n in range(1, 101):
            grad = rng.normal(size=5) * np.array([1.0, 1e3, 1e-3, 1e-8, 0.0])
            params, state = adam_step(params, jnp.asarray(grad), state, 0.01)
            first, second = 0.9 * first + 0.1 * grad, 0.999 * second + 0.001 * grad**2
            theirs = theirs - 0.01 * (first / (1 - 0.9**n)) / (np.sqrt(second / (1 - 0.999**n)) + 1e-8)
        np.testing.assert_allclose(np.asarray(params), theirs, rtol=1e-10)


def test_soft_update_by_hand() -> None:
    # 0.75 * 4 + 0.25 * 8 = 5 and 0.75 * -2 + 0.25 * 2 = -1
    moved = soft_update((array(4.0), array(-2.0)), (array(8.0), array(2.0)), 0.25)
    assert float(moved[0][0]) == 5.0 and float(moved[1][0]) == -1.0
    same = soft_update(array(3.0), array(9.0), jnp.asarray(1.0, float))
    assert float(same[0]) == 9.0


def test_running_moments_against_numpy() -> None:
    values = np.random.default_rng(1).normal([0.0, 50.0, -3.0], [1.0, 0.5, 20.0], (500, 3))
    state = jax.lax.scan(lambda m, v: (moments_add(m, v), None), moments_init(3), jnp.asarray(values, float))[0]
    assert int(state.seen) == 500
    np.testing.assert_allclose(np.asarray(state.mean), values.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.asarray(moments_deviation(state)), values.std(0), rtol=1e-4)


def test_running_moments_before_there_is_anything_to_measure() -> None:
    # No value and one value: deviation 1. The values 2 and 4: mean 3, deviation 1; a constant: the floor.
    state = moments_init(2)
    np.testing.assert_array_equal(np.asarray(moments_deviation(state)), [1.0, 1.0])
    state = moments_add(state, array(2.0, 5.0))
    np.testing.assert_array_equal(np.asarray(moments_deviation(state)), [1.0, 1.0])
    state = moments_add(state, array(4.0, 5.0))
    np.testing.assert_allclose(np.asarray(state.mean), [3.0, 5.0])
    np.testing.assert_allclose(np.asarray(moments_deviation(state)), [1.0, 1e-6])


def test_running_scale_by_hand() -> None:
    # rate 0.5. Batch (1, 3): mean 2, mean square 5 -> weight 0.5, first 1, second 2.5; corrected 2 and 5:
    #   rms sqrt(5), std sqrt(5 - 4) = 1.
    # Batch (0, 4): mean 2, mean square 8 -> weight 0.75, first 0.5 + 1 = 1.5, second 1.25 + 4 = 5.25; corrected 2, 7:
    #   rms sqrt(7), std sqrt(7 - 4).
    scale = scale_add(scale_init(), array(1.0, 3.0), 0.5)
    assert float(scale_rms(scale)) == pytest.approx(5**0.5, rel=1e-6)
    assert float(scale_std(scale)) == pytest.approx(1.0, rel=1e-5)
    scale = scale_add(scale, array(0.0, 4.0), 0.5)
    assert float(scale_rms(scale)) == pytest.approx(7**0.5, rel=1e-6)
    assert float(scale_std(scale)) == pytest.approx(3**0.5, rel=1e-5)


def test_running_scale_forgets() -> None:
    scale = scale_add(scale_init(), array(100.0), 0.1)
    for _ in range(200):
        scale = scale_add(scale, array(-2.0, 2.0), 0.1)
    # 100^2 is left with weight 0.9^200 = 7e-10.
    assert float(scale_rms(scale)) == pytest.approx(2.0, rel=1e-4)
    assert float(scale_std(scale)) == pytest.approx(2.0, rel=1e-4)


def test_running_scale_of_nothing_divides_safely() -> None:
    for scale in (scale_init(), scale_add(scale_init(), array(0.0, 0.0), 0.1)):
        assert 0 < float(scale_rms(scale)) < 1e-6 and 0 < float(scale_std(scale)) < 1e-6


@pytest.mark.parametrize("layer_norm", [False, True])
def test_half_products_round_what_goes_between_layers_and_nothing_else(layer_norm: bool) -> None:
    full = make_mlp(KEY, (6, 64, 64, 1), layer_norm=layer_norm)
    half = MLP(full.weights, full.biases, layer_norm, half=True)
    x = jax.random.normal(jax.random.key(1), (128, 6), float)

    def loss(mlp: MLP) -> Float[Array, ""]:
        return jnp.square(mlp(x) - 0.3).mean()

    out, inputs = half.with_layers(x)
    assert out.dtype == x.dtype and [one.dtype for one in inputs] == [jnp.bfloat16] * 3
    # bfloat16 keeps 8 bits: a rounding is worth up to 0.4%, three layers of them a little more.
    np.testing.assert_allclose(out, full(x), atol=0.02 * float(jnp.abs(full(x)).max()))
    assert float(jnp.abs(out - out.astype(jnp.bfloat16).astype(x.dtype)).max()) > 0  # the output is not rounded
    slopes, exact = (jax.tree.leaves(jax.grad(loss)(mlp)) for mlp in (half, full))
    for mine, theirs in zip(slopes, exact, strict=True):
        assert mine.dtype == theirs.dtype
        along = float((mine * theirs).sum() / (jnp.linalg.norm(mine) * jnp.linalg.norm(theirs)))
        assert along > 0.999

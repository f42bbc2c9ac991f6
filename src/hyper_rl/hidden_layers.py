"""A hidden layer: x W + b, where asked normalised over its units, then ReLU; with its derivative written out.

The backward pass computes again what it needs to know of the forward pass instead of keeping it: whether a unit was
positive, and a normalised unit's value. On a GPU, where memory traffic is what a step's time goes to, a layer of a few
inputs (the first of every network for a small task) is computed again from those inputs where it can be, and it and
its gradient come from one kernel each (`thin_kernels`) where its sizes fit those.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hyper_rl import backend, thin_kernels
from hyper_rl.products import THIN_INPUTS, affine, affine_backward, as_if_other, sum_over_inputs, wide
from hyper_rl.thin_kernels import Column, Layer, normalise_slopes

EPSILON = 1e-5
"""Added to the variance of a layer's units."""


def hidden(
    x: Float[Array, "batch fan_in"],
    weight: Float[Array, "fan_in fan_out"],
    bias: Float[Array, " fan_out"],
    *,
    normalised: bool,
) -> Float[Array, "batch fan_out"]:
    """In the number format of x."""
    if backend.on_gpu() and weight.shape[0] <= THIN_INPUTS:
        return _thin_normalised(x, weight, bias) if normalised else _thin(x, weight, bias)
    product = affine(x, weight, bias)
    return normalised_relu(product) if normalised else jax.nn.relu(product)


def moments(units: Float[Array, "batch n"]) -> tuple[Column, Column]:
    """Mean over the units of each sample, and one over their deviation.

    The variance is E[x^2] - E[x]^2, so that one reduction over the layer is enough; pre-activations have means of the
    order of their deviations, where this loses nothing that matters.
    """
    mean, square = _two_means(units, jnp.square(units))
    return mean, _one_over_root(square - jnp.square(mean))


def thin_moments(layer: Layer) -> tuple[Column, Column]:
    """The same of a layer with few inputs, from those: its mean is linear in them and its variance quadratic.

    Written as sums, because products may be rounded to TF32, which large terms that cancel do not forgive.
    """
    x, weight, bias = (part.astype(wide(layer[0].dtype)) for part in layer)
    inputs = jnp.concatenate([x, jnp.ones((x.shape[0], 1), x.dtype)], axis=1)
    rows = jnp.concatenate([weight, bias[None]], axis=0)
    row_means = rows.mean(axis=1)
    rows = rows - row_means[:, None]
    covariance = (rows[:, None, :] * rows[None, :, :]).mean(axis=2)
    mean = (inputs * row_means[None]).sum(axis=1, keepdims=True)
    variance = (sum_over_inputs(inputs, covariance, x.dtype) * inputs).sum(axis=1, keepdims=True)
    return mean, _one_over_root(variance)


def _two_means(one: Array, other: Array) -> tuple[Column, Column]:
    """Over each sample. On a GPU written as one reduction: it would make two, and read the layer for each."""
    if not backend.on_gpu():
        return one.mean(axis=-1, keepdims=True), other.mean(axis=-1, keepdims=True)
    zero = jnp.zeros((), one.dtype)
    first, second = jax.lax.reduce((one, other), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), (1,))
    return first[:, None] / one.shape[1], second[:, None] / one.shape[1]


def _one_over_root(variance: Column) -> Column:
    return jax.lax.rsqrt(jnp.maximum(variance, 0.0) + EPSILON)


@jax.custom_vjp
def normalised_relu(units: Float[Array, "batch n"]) -> Float[Array, "batch n"]:
    """max(units, 0) of units with mean 0 and variance 1 over each sample."""
    return _normalised_relu_forward(units)[0]


def _normalised_relu_forward(units: Array) -> tuple[Array, tuple[Array, Column, Column]]:
    full = units.astype(wide(units.dtype))
    mean, scale = moments(full)
    return jax.nn.relu((full - mean) * scale).astype(units.dtype), (units, mean, scale)


def _normalised_relu_backward(saved: tuple[Array, Column, Column], dy: Array) -> tuple[Array]:
    # Behind a barrier, or the compiler would write the normalised layer down in the forward pass, to read it here.
    units, (mean, scale) = saved[0], jax.lax.optimization_barrier(saved[1:])
    normal, dy = (units.astype(mean.dtype) - mean) * scale, dy.astype(mean.dtype)
    g = jnp.where(normal > 0, dy, 0.0)
    sums = _two_means(g, g * normal)
    return (normalise_slopes(dy, normal, scale, *sums).astype(units.dtype),)


normalised_relu.defvjp(_normalised_relu_forward, _normalised_relu_backward)


@jax.custom_vjp
def _thin(x: Array, weight: Array, bias: Array) -> Array:
    return _thin_units((x, weight, bias))


def _thin_forward(x: Array, weight: Array, bias: Array) -> tuple[Array, Layer]:
    return _thin(x, weight, bias), (x, weight, bias)


def _thin_backward(layer: Layer, dy: Array) -> Layer:
    return _thin_slopes(layer, dy)


_thin.defvjp(_thin_forward, _thin_backward)


@jax.custom_vjp
def _thin_normalised(x: Array, weight: Array, bias: Array) -> Array:
    return _thin_normalised_forward(x, weight, bias)[0]


def _thin_normalised_forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Layer, Column, Column, Array]]:
    layer = (x, weight, bias)
    mean, scale = thin_moments(layer)
    y = _thin_units(layer, (mean, scale))
    return y, (layer, mean, scale, y)


def _thin_normalised_backward(saved: tuple[Layer, Column, Column, Array], dy: Array) -> Layer:
    layer, mean, scale, y = saved
    full = dy.astype(mean.dtype)
    # y is there, being what the next layer reads, and says where g is dy and, wherever that is, what the unit is.
    sums = _two_means(jnp.where(y > 0, full, 0.0), full * y.astype(mean.dtype))
    return _thin_slopes(layer, dy, (mean, scale, *sums))


_thin_normalised.defvjp(_thin_normalised_forward, _thin_normalised_backward)


def _thin_units(layer: Layer, rows: tuple[Column, ...] = ()) -> Array:
    """After the ReLU; `rows` of a normalised layer are what `thin_kernels` says."""
    return _kernel_units(layer, rows) if _kernels_take(layer) else _plain_units(layer, rows)


def _kernels_take(layer: Layer) -> bool:
    return backend.on_gpu() and thin_kernels.runs_here() and thin_kernels.fits(layer)


def _plain_units(layer: Layer, rows: tuple[Column, ...]) -> Array:
    result = affine(*layer)
    if rows:
        mean, scale = rows
        result = (result.astype(mean.dtype) - mean) * scale
    return jax.nn.relu(result).astype(layer[0].dtype)


@jax.custom_vjp
def _kernel_units(layer: Layer, rows: tuple[Column, ...]) -> Array:
    """Differentiated only where somebody differentiates a gradient, as a penalty on it does: then as the plain way."""
    return thin_kernels.units(layer, rows)


_kernel_units.defvjp(
    lambda *given: (_kernel_units(*given), given), lambda given, slopes: jax.vjp(_plain_units, *given)[1](slopes)
)


def _thin_slopes(layer: Layer, dy: Array, rows: tuple[Column, ...] = ()) -> Layer:
    """In x, W and b, from those after the ReLU; `rows` of a normalised layer are what `thin_kernels` says.

    Those in x are not computed where nobody uses them, as for critics that learn.
    """
    dx, *others = affine_backward(None, layer[:2], _before_relu(layer, dy, rows))
    if _kernels_take(layer):
        others = [*_kernel_slopes(layer, dy, rows)]
    return dx, others[0], others[1]


def _before_relu(layer: Layer, dy: Array, rows: tuple[Column, ...]) -> Array:
    units = _again(layer)
    if not rows:
        return jnp.where(units > 0, dy, jnp.zeros_like(dy))
    mean, scale, *sums = rows
    normal = (units.astype(mean.dtype) - mean) * scale
    return normalise_slopes(dy.astype(mean.dtype), normal, scale, *sums).astype(units.dtype)


@jax.custom_vjp
def _kernel_slopes(layer: Layer, dy: Array, rows: tuple[Column, ...]) -> tuple[Array, Array]:
    """In W and b. Whoever differentiates a gradient gets the slopes of the plain way here, too."""
    return thin_kernels.weight_slopes(layer, dy, rows)


def _plain_slopes(layer: Layer, dy: Array, rows: tuple[Column, ...]) -> tuple[Array, Array]:
    _, dweight, dbias = affine_backward(None, layer[:2], _before_relu(layer, dy, rows))
    return dweight, dbias


_kernel_slopes.defvjp(
    lambda *given: (_kernel_slopes(*given), given), lambda given, slopes: jax.vjp(_plain_slopes, *given)[1](slopes)
)


def _again(layer: Layer) -> Array:
    """The layer before its ReLU, so written that the compiler does not keep the one it has computed."""
    x, weight, bias = layer
    return affine(as_if_other(x, weight), weight, bias)

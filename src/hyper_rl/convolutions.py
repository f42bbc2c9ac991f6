"""The network under images: convolutions, then the layers of any other network.

An image comes as a flat vector, row by row, the channels of a pixel side by side. Images of at least 36 pixels on each
side get the three layers of Mnih et al. (2015), smaller ones two or three of 3 x 3.

A convolution is computed as a product of matrices: blocks of stride x stride pixels become channels, which leaves a
small kernel of stride 1, and what lies under that kernel at each place becomes a row. Mapped over runs and roles that
is a batch of products, where the library's own convolution becomes one in groups: measured on two cores, a gradient of
two roles takes 0.6 of its time, and with small images half.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete
from hyper_rl.envs.image_reader import SMALLEST_SIDE
from hyper_rl.networks import MLP
from hyper_rl.observations import as_vectors, feature_size, image_of
from hyper_rl.products import affine

BYTE = 255.0


class Layer(NamedTuple):
    channels: int
    kernel: int
    stride: int

    def length(self, side: int) -> int:
        """Pixels that are left of `side`."""
        return (side - self.kernel) // self.stride + 1


NATURE = (Layer(32, 8, 4), Layer(64, 4, 2), Layer(64, 3, 1))
SMALL = (Layer(16, 3, 1), Layer(32, 3, 2))
FURTHER = Layer(32, 3, 2)
"""Added to the small ones where they leave at least 7 x 7 pixels."""


def layers_for(image: tuple[int, int, int]) -> tuple[Layer, ...]:
    height, width, _ = image
    assert min(height, width) >= SMALLEST_SIDE, "what is smaller is read as a vector"
    if min(height, width) >= 36:
        return NATURE
    left = [SMALL[1].length(SMALL[0].length(side)) for side in (height, width)]
    return (*SMALL, FURTHER) if min(left) >= 7 else SMALL


class Convolutions(eqx.Module):
    """Convolutions with ReLU behind each; the answer is flat, like the image."""

    weights: tuple[Float[Array, "kernel kernel channels_in channels_out"], ...]
    biases: tuple[Float[Array, " channels_out"], ...]
    image: tuple[int, int, int] = eqx.field(static=True)
    """Height, width, channels."""

    def __call__(self, images: Float[Array, "batch size"]) -> Float[Array, "batch features"]:
        x = images.reshape(images.shape[0], *self.image)
        for layer, weight, bias in zip(layers_for(self.image), self.weights, self.biases, strict=True):
            x = jax.nn.relu(_convolve(x, weight, bias, layer.stride))
        return x.reshape(x.shape[0], math.prod(x.shape[1:]))  # which a batch of no images has, too


class ImageNetwork(eqx.Module):
    """Convolutions and a perceptron on what they answer."""

    convolutions: Convolutions
    layers: MLP

    def __call__(self, images: Shaped[Array, "batch size"]) -> Float[Array, "batch fan_out"]:
        """Bytes are brought to [0, 1]; what comes as real numbers has been scaled by somebody else."""
        scaled = images if jnp.issubdtype(images.dtype, jnp.floating) else images.astype(float) / BYTE
        return self.layers(self.convolutions(scaled))


def make_convolutions(key: PRNGKeyArray, image: tuple[int, int, int]) -> Convolutions:
    """Weights as PyTorch's `Conv2d` starts them (uniform, 1/sqrt(fan-in)), all from one draw."""
    layers, shapes, channels = layers_for(image), [], image[2]
    for layer in layers:
        shapes.append((layer.kernel, layer.kernel, channels, layer.channels))
        channels = layer.channels
    fans = [kernel * kernel * fan for kernel, _, fan, _ in shapes]
    count = sum((fan + 1) * layer.channels for fan, layer in zip(fans, layers, strict=True))
    drawn = jax.random.uniform(key, (count,), minval=-1.0, maxval=1.0, dtype=float)
    weights, biases, used = [], [], 0
    for shape, fan in zip(shapes, fans, strict=True):
        out = shape[-1]
        here = drawn[used : used + (fan + 1) * out].reshape(fan + 1, out) * fan**-0.5
        weights.append(here[:fan].reshape(shape))
        biases.append(here[fan])
        used += (fan + 1) * out
    return Convolutions(tuple(weights), tuple(biases), image)


def make_network(
    key: PRNGKeyArray, space: Box | Discrete, above: Callable[[PRNGKeyArray, int], MLP]
) -> MLP | ImageNetwork:
    """A network over observations of this space; `above(key, inputs)` makes the perceptron."""
    image = image_of(space)
    if image is None:
        return above(key, feature_size(space))
    below_key, above_key = jax.random.split(key)
    return ImageNetwork(make_convolutions(below_key, image), above(above_key, convolved_size(image)))


def run_network(network: MLP | ImageNetwork, observations: Shaped[Array, "batch ..."]) -> Float[Array, "batch fan_out"]:
    """The network on observations as they come: vectors, choices or images."""
    if isinstance(network, ImageNetwork):
        return network(observations)
    return network(as_vectors(observations, network.weights[0].shape[0]))


def convolved_size(image: tuple[int, int, int]) -> int:
    """Numbers that `Convolutions` answers with."""
    height, width, channels = image
    for layer in layers_for(image):
        height, width, channels = layer.length(height), layer.length(width), layer.channels
    return height * width * channels


def _convolve(
    x: Float[Array, "batch height width channels"],
    weight: Float[Array, "kernel kernel channels out"],
    bias: Float[Array, " out"],
    stride: int,
) -> Float[Array, "batch rows columns out"]:
    kernel, out = weight.shape[0], weight.shape[-1]
    if stride > 1 and kernel % stride == 0:
        x, weight = _blocks_as_channels(x, weight, stride)
        kernel, stride = kernel // stride, 1
    places = _under_kernel(x, kernel, stride)
    rows = places.reshape(-1, places.shape[-1])
    return affine(rows, weight.reshape(-1, out), bias).reshape(*places.shape[:3], out)


def _blocks_as_channels(x: Array, weight: Array, stride: int) -> tuple[Array, Array]:
    """The same convolution with stride 1, over blocks of stride x stride pixels; what no kernel reaches is cut off."""
    kernel, _, channels, out = weight.shape
    blocks = kernel // stride
    batch, height, width, _ = x.shape
    rows, columns = ((side - kernel) // stride + blocks for side in (height, width))
    x = x[:, : rows * stride, : columns * stride].reshape(batch, rows, stride, columns, stride, channels)
    weight = weight.reshape(blocks, stride, blocks, stride, channels, out)
    inside = stride * stride * channels
    return (
        x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, inside),
        weight.transpose(0, 2, 1, 3, 4, 5).reshape(blocks, blocks, inside, out),
    )


def _under_kernel(x: Array, kernel: int, stride: int) -> Float[Array, "batch rows columns n"]:
    """What the kernel sees at each place, in the order of its weights."""
    height, width = ((side - kernel) // stride * stride + 1 for side in x.shape[1:3])
    steps = range(kernel)
    return jnp.concatenate([x[:, i : i + height : stride, j : j + width : stride] for i in steps for j in steps], -1)

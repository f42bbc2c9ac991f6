"""JAX's default random numbers, bit by bit, several times faster on a CPU.

JAX's threefry (Salmon et al. 2011) runs on CPUs as a loop over its rounds, each iteration a handful of tiny kernels:
some 40 microseconds a draw, many times a training step. Written out as straight arithmetic the whole cipher becomes
one vectorised kernel, usually part of whatever uses the numbers. Keys of this implementation give exactly the streams
of `jax.random.key(seed)`; a test holds the two against each other.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as extend_random
from jaxtyping import Array, PRNGKeyArray, UInt32

from hyper_rl import backend

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = np.uint32(0x1BD11BDA)
NEVER_NESTED = jax.__version_info__ >= (0, 11)
"""A compiler may put the cipher that makes a key into the one that uses it. On CPUs jax 0.10 gains a third in the room
by that; 0.11 and 0.12 do it for every use and then compile for longer than anyone waits."""

Words = UInt32[Array, "..."]


def threefry_2x32(key: UInt32[Array, "2"], x0: Words, x1: Words) -> tuple[Words, Words]:
    """Twenty rounds of Threefry-2x32 on every pair of words."""
    if NEVER_NESTED and not backend.on_gpu():
        key = jax.lax.optimization_barrier(key)  # there before it is used
    k0, k1 = key[0], key[1]
    schedule = (k0, k1, k0 ^ k1 ^ PARITY)
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ ((x1 << np.uint32(distance)) | (x1 >> np.uint32(32 - distance)))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _counters(shape: tuple[int, ...]) -> tuple[Words, Words]:
    """0, 1, 2, ... as two words each."""
    count = int(np.prod(shape, dtype=np.int64))
    assert count < 2**32, "more random numbers in one draw than anything here asks for"
    low = jnp.arange(count, dtype=jnp.uint32).reshape(shape)
    return jnp.zeros_like(low), low


def _seed(seed: Array) -> UInt32[Array, "2"]:
    low = seed.astype(jnp.uint32)
    high = jnp.zeros_like(low)
    if seed.dtype.itemsize == 8:
        high = jax.lax.shift_right_logical(seed, jnp.asarray(32, seed.dtype)).astype(jnp.uint32)
    return jnp.stack([high, low])


def _split(key: UInt32[Array, "2"], shape: tuple[int, ...]) -> UInt32[Array, "... 2"]:
    return jnp.stack(threefry_2x32(key, *_counters(shape)), axis=-1)


def _random_bits(key: UInt32[Array, "2"], bit_width: int, shape: tuple[int, ...]) -> Array:
    high, low = threefry_2x32(key, *_counters(shape))
    if bit_width == 64:
        wide = jnp.uint64
        return jax.lax.shift_left(high.astype(wide), jnp.asarray(32, wide)) | low.astype(wide)
    return (high ^ low).astype({8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}[bit_width])


def _fold_in(key: UInt32[Array, "2"], data: int) -> UInt32[Array, "2"]:
    high, low = _seed(jnp.asarray(data, jnp.uint32))
    return jnp.stack(threefry_2x32(key, high, low))


FLAT_THREEFRY = extend_random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="flat_threefry",
    tag="fltfry",
)


def make_key(seed: int) -> PRNGKeyArray:
    """The key `jax.random.key(seed)` would give, in the faster form."""
    return jax.random.wrap_key_data(jax.random.key_data(jax.random.key(seed)), impl=FLAT_THREEFRY)


def seed_of(key: PRNGKeyArray) -> UInt32[Array, ""]:
    """A seed for a Gymnasium environment from a key; 31 bits, because some environments take no more."""
    return jax.random.key_data(key)[..., 1] >> np.uint32(1)


def key_of(seed: UInt32[Array, ""]) -> PRNGKeyArray:
    """`make_key(seed)` for a seed that is computed on the device."""
    return jax.random.wrap_key_data(jnp.stack([jnp.zeros_like(seed), seed], axis=-1), impl=FLAT_THREEFRY)

"""The faster random numbers are JAX's own, bit by bit."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from hyper_rl import threefry
from hyper_rl.threefry import make_key

SEEDS = (0, 1, 12345, 2**32 - 1)
DRAWS: dict[str, Callable[[Array], Array]] = {
    "bits": lambda key: jax.random.bits(key, (5, 7)),
    "bits of 8": lambda key: jax.random.bits(key, (9,), jnp.uint8),
    "uniform": lambda key: jax.random.uniform(key, (1000,), dtype=float),
    "one uniform": lambda key: jax.random.uniform(key, dtype=float),
    "normal": lambda key: jax.random.normal(key, (3, 4), dtype=float),
    "randint": lambda key: jax.random.randint(key, (100,), 0, 12345),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.25, (50,)).astype(jnp.int32),
    "split": lambda key: jax.random.uniform(jax.random.split(key, 3)[2], (4,), dtype=float),
    "fold_in": lambda key: jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (4,), dtype=float),
    "mapped": lambda key: jax.vmap(lambda k: jax.random.normal(k, (2,), dtype=float))(jax.random.split(key, 5)),
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("nested", [False, True])
def test_equals_jaxs_default(draw: str, x64: bool, nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if nested and threefry.NEVER_NESTED:
        pytest.skip("this jax never ends compiling nested ciphers, so nothing here nests them (threefry.NEVER_NESTED)")
    monkeypatch.setattr(threefry, "NEVER_NESTED", not nested)
    with jax.enable_x64(x64):
        for seed in SEEDS:
            mine, theirs = (jax.jit(DRAWS[draw])(key) for key in (make_key(seed), jax.random.key(seed)))
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))

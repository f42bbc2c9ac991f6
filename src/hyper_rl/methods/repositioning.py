"""How long the exploitation policy acts before the exploration policy takes over (paper, sections 5.2 and 5.3).

    L ~ BoundedGeometric(p, H) on {1..H},   P(L = l) = p (1-p)^(l-1) / (1 - (1-p)^H)

and steps i = 1..L-1 of the episode reposition. Sampling inverts the CDF, F(l) = (1 - q^l) / (1 - q^H) with
q = 1-p: one uniform number u, l = ceil(log(1 - u (1 - q^H)) / log q). Everything goes through log1p and expm1, so p
may be as small as 1e-6, where the distribution is all but uniform and the naive formula has lost every digit.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.types import precision

EPS = {"float32": 2.0**-23, "float64": 2.0**-52}
TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}

Scalar = Float[Array, ""] | float


def bounded_geometric_quantile(
    u: Float[Array, "..."], p: Shaped[Array, "..."], horizon: Int[Array, "..."]
) -> Int[Array, "..."]:
    """The smallest l in {1..H} with F(l) >= u; exact up to the rounding of `u` itself."""
    dtype = u.dtype
    p, h = p.astype(dtype), horizon.astype(dtype)
    log_q = jnp.log1p(-jnp.minimum(p, 1 - EPS[dtype.name]))
    mass = -jnp.expm1(h * log_q)  # 1 - q^H, without cancellation
    length = jnp.ceil(jnp.log1p(-u * mass) / log_q)
    length = jnp.where(p >= 1, jnp.ones_like(length), length)
    return jnp.clip(length, jnp.ones_like(h), h).astype(jnp.int32)


def plain_geometric_quantile(
    u: Float[Array, "..."], p: Shaped[Array, "..."], horizon: Int[Array, "..."]
) -> Int[Array, "..."]:
    """The geometric distribution the paper argues against: everything beyond H piles up at H."""
    dtype = u.dtype
    p = p.astype(dtype)
    log_q = jnp.log1p(-jnp.minimum(p, 1 - EPS[dtype.name]))
    length = jnp.ceil(jnp.log1p(-u) / log_q)
    length = jnp.where(p >= 1, jnp.ones_like(length), length)
    return jnp.clip(length, jnp.ones_like(length), horizon.astype(dtype)).astype(jnp.int32)


def uniform_for_quantile(key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
    """Uniform in (0, 1): JAX draws from [0, 1) and u = 0 would ask for the zeroth value."""
    tiny = TINY[precision()]
    return jax.random.uniform(key, shape, minval=tiny, maxval=1.0, dtype=float)


def sample_length(
    key: PRNGKeyArray, p: Float[Array, ""], horizon: Int[Array, ""], *, bounded: bool = True
) -> Int[Array, ""]:
    quantile = bounded_geometric_quantile if bounded else plain_geometric_quantile
    return quantile(uniform_for_quantile(key), p, horizon)


def decayed_probability(
    step: Shaped[Array, ""], total: Shaped[Array, ""], p_start: Scalar, p_end: Scalar
) -> Float[Array, ""]:
    """p falls linearly in environment steps over the whole budget; read at each episode's start."""
    share = jnp.clip(step.astype(float) / jnp.maximum(total.astype(float), 1.0), 0.0, 1.0)
    return p_start + (p_end - p_start) * share

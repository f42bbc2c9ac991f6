"""Which kind of device the programs of this process are compiled for.

Few places ask: where the form that is fastest on a GPU is not the fastest on a CPU. Both forms compute the same.
"""

from __future__ import annotations

import jax


def on_gpu() -> bool:
    return jax.default_backend() == "gpu"


FUSED_NETWORKS = False
"""Networks that fit are computed by the kernels of `fused.py`. Off: they compile, but no GPU has run them yet."""


def fuses() -> bool:
    return FUSED_NETWORKS and on_gpu()

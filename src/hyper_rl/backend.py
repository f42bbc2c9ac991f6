"""Which kind of device the programs of this process are compiled for.

Few places ask: where the form that is fastest on a GPU is not the fastest on a CPU. Both forms compute the same.
"""

from __future__ import annotations

import jax


def on_gpu() -> bool:
    return jax.default_backend() == "gpu"

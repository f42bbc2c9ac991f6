"""Which kind of device the programs of this process are compiled for, and how they are compiled for it.

Few places ask: where the form that is fastest on a GPU is not the fastest on a CPU. Both forms compute the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.errors import JaxRuntimeError

P = ParamSpec("P")
R = TypeVar("R")

SCHEDULING = "xla_gpu_command_buffer_scheduling_mode"
SIDE_BY_SIDE = {SCHEDULING: "CONCURRENT"}
"""Kernels that do not depend on each other may run at the same time. Which they are is the same; XLA's own choice is
one after another. On an H200 a step of one run is half as fast again, at 128 runs 2-3%, for 29% more memory
(docs/speed.md)."""


def usable_devices() -> list[jax.Device]:
    """All local devices, or the one that `jax.default_device` names."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None:
        return jax.local_devices()
    return [chosen] if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[:1]


def on_gpu() -> bool:
    return usable_devices()[0].platform == "gpu"


def compiler_options() -> dict[str, str]:
    """For the loop over steps. Whoever names the option in XLA_FLAGS has decided it."""
    decided = SCHEDULING in os.environ.get("XLA_FLAGS", "")
    return SIDE_BY_SIDE if on_gpu() and not decided and _knows_side_by_side() else {}


@cache
def _knows_side_by_side() -> bool:
    """Options of XLA come and go; one that a version does not know is an error at the first compilation."""
    try:
        jax.jit(lambda x: x + 1, compiler_options=SIDE_BY_SIDE).lower(jnp.zeros(())).compile()
    except JaxRuntimeError:
        return False
    return True


class DeviceJit(Generic[P, R]):
    """`jax.jit` with `compiler_options`, which are not known before a device has been asked for."""

    def __init__(self, function: Callable[P, R], **how: Any) -> None:
        self._function, self._how = function, how
        update_wrapper(self, function)

    @cached_property
    def jitted(self) -> Any:
        return jax.jit(self._function, compiler_options=compiler_options(), **self._how)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.jitted(*args, **kwargs)
        return result

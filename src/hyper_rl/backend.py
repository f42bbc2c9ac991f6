"""Which kind of device the programs of this process are compiled for, and how they are compiled for it.

Few places ask: where the form that is fastest on a GPU is not the fastest on a CPU. Both forms compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.errors import JaxRuntimeError

P = ParamSpec("P")
R = TypeVar("R")

SIDE_BY_SIDE = {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT"}
"""Kernels that do not depend on each other may run at the same time. Which they are is the same; XLA's own choice is
one after another. For a step of one run that is half as fast again on an H200, at 128 runs 3% (docs/speed.md)."""


def on_gpu() -> bool:
    return jax.default_backend() == "gpu"


def compiler_options() -> dict[str, str]:
    """For the loop over steps."""
    return SIDE_BY_SIDE if on_gpu() and _knows_side_by_side() else {}


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
        self.__doc__ = function.__doc__

    @cached_property
    def jitted(self) -> Any:
        return jax.jit(self._function, compiler_options=compiler_options(), **self._how)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.jitted(*args, **kwargs)
        return result

"""How programs are compiled for a device: options of the compiler, and where a kernel of our own is used."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl import backend, thin_kernels


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What the compiler knows is asked once in a process."""
    backend._knows_side_by_side.cache_clear()
    yield
    backend._knows_side_by_side.cache_clear()


def test_a_cpu_has_no_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "on_gpu", lambda: False)
    assert backend.compiler_options() == {}


def test_a_gpu_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    assert backend.compiler_options() == backend.SIDE_BY_SIDE


def test_whoever_names_the_option_has_decided_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE")
    assert backend.compiler_options() == {}


def test_a_device_of_ones_choice_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with a GPU that is told to compute on its CPU nothing may be written for the GPU."""
    gpu: Any = SimpleNamespace(platform="gpu", compute_capability="9.0")
    monkeypatch.setattr(jax, "local_devices", lambda backend=None: jax.devices("cpu") if backend else [gpu])
    assert backend.on_gpu() and not thin_kernels.interpreted() and thin_kernels.runs_here()
    with jax.default_device(jax.devices("cpu")[0]):
        assert not backend.on_gpu() and thin_kernels.interpreted()
    with jax.default_device("cpu"):
        assert not backend.on_gpu() and thin_kernels.interpreted()


def test_an_option_that_the_compiler_does_not_know_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "on_gpu", lambda: True)
    monkeypatch.setattr(backend, "SIDE_BY_SIDE", {"xla_gpu_option_of_tomorrow": "yes"})
    assert backend.compiler_options() == {}


def test_options_are_asked_for_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def options() -> dict[str, str]:
        asked.append("now")
        return backend.SIDE_BY_SIDE  # which a CPU takes too, and does nothing with

    monkeypatch.setattr(backend, "compiler_options", options)

    def power(x: Any, *, times: int) -> Any:
        """x to the power of times."""
        return x**times

    jitted = backend.DeviceJit(power, static_argnames=("times",))
    assert jitted.__doc__ == power.__doc__ and not asked
    np.testing.assert_allclose(np.asarray(jitted(jnp.arange(3.0), times=2)), [0.0, 1.0, 4.0])
    np.testing.assert_allclose(np.asarray(jitted(jnp.arange(3.0), times=3)), [0.0, 1.0, 8.0])
    assert asked == ["now"]


@pytest.mark.parametrize(("precision", "used"), [(None, True), ("tensorfloat32", True), ("highest", False)])
def test_whoever_asks_for_full_precision_gets_no_tf32_kernel(precision: str | None, used: bool) -> None:
    with jax.default_matmul_precision(precision):
        assert thin_kernels.runs_here() == used


@pytest.mark.parametrize(("capability", "used"), [("9.0", True), ("8.0", True), ("7.5", False), ("gfx90a", False)])
def test_the_kernel_is_for_recent_nvidia_gpus(capability: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin_kernels, "interpreted", lambda: False)
    monkeypatch.setattr(thin_kernels, "usable_devices", lambda: [SimpleNamespace(compute_capability=capability)])
    assert thin_kernels.runs_here() == used


def test_no_gpu_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin_kernels, "interpreted", lambda: False)
    monkeypatch.setattr(thin_kernels, "usable_devices", lambda: [SimpleNamespace()])
    assert not thin_kernels.runs_here()

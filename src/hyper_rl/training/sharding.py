"""The run axis over several devices: each holds an equal share of the runs and computes it alone.

Runs never exchange anything, so the program of one device is mapped over the mesh as it stands (`shard_map`), not
handed to the compiler to be partitioned: no collective and no resharding can slip in, and a device whose episodes are
over waits for nobody. Every device gets the same number of runs; where that cannot be, fewer devices are used, never
made-up runs to fill the rest. With one device there is no mesh, and nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hyper_rl.backend import usable_devices

AXIS = "runs"
SHARDED, SHARED = PartitionSpec(AXIS), PartitionSpec()
"""An argument whose leaves all lead with the run axis; one that every device has whole."""

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


def share_evenly(runs: int, devices: int) -> int:
    """The largest number of devices, out of `devices`, among which `runs` divide."""
    return max(count for count in range(1, devices + 1) if runs % count == 0)


def devices_for(runs: int) -> list[jax.Device]:
    """Those that compute `runs` runs of a JAX task."""
    devices = usable_devices()
    return devices[: share_evenly(runs, len(devices))]


def run_mesh(runs: int) -> Mesh | None:
    """The devices that compute `runs` runs; None where that is one."""
    devices = devices_for(runs)
    return Mesh(np.array(devices), (AXIS,)) if len(devices) > 1 else None


def describe(runs: int) -> str:
    """In words, for a machine with several devices; nothing where there is one."""
    devices = len(usable_devices())
    count = share_evenly(runs, devices)
    if devices == 1:
        return ""
    if count == devices:
        return f"on {devices} devices"
    many = f"{runs} run{'s' if runs != 1 else ''}"
    return f"on {count} of {devices} devices (the most that can share {many} evenly)"


def place(tree: T, mesh: Mesh | None) -> T:
    """Arrays that lead with the run axis, each device's share on that device."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, SHARDED))


def over_runs(function: Function, mesh: Mesh | None, in_specs: tuple[PartitionSpec, ...]) -> Function:
    """`function`, which maps over whatever runs it is given, on each device's share of them.

    All that it returns leads with the run axis. That its shared arguments are the same everywhere is plain here, and
    the compiler's own proof of it (`check_vma`) would ask every constant of every task to be marked.
    """
    if mesh is None:
        return function
    mapped: Function = jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=SHARDED, check_vma=False)
    return mapped

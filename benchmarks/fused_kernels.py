"""Networks in one kernel each against the same networks layer by layer, in one run, on a GPU.

    python benchmarks/fused_kernels.py --runs 128 --out fused.json
    python benchmarks/fused_kernels.py --runs 128 --tune        # over sizes of blocks and pieces, warps and stages

One row for each kind of network of Hyper's step (five models, four critics, two actors a run): microseconds of a pass
without gradient and of one with it, both ways, and how far the results are apart. Off GPUs there is nothing to measure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hyper_rl import backend, fused, fused_backward
from hyper_rl.networks import MLP, make_mlp

NETWORKS = {
    "models": (5, (6, 256, 256, 4), 256, False),
    "models, own rows": (5, (6, 256, 256, 4), 64, False),
    "critics": (4, (6, 256, 256, 1), 256, False),
    "critics, normalised": (4, (6, 256, 256, 1), 256, True),
    "actors": (2, (4, 256, 256, 2), 256, False),
}
"""Networks a run, layers, rows, layer normalisation."""


def make(runs: int, count: int, sizes: tuple[int, ...], rows: int, *, layer_norm: bool, half: bool) -> tuple[Any, ...]:
    keys = jax.random.split(jax.random.key(0), (runs, count))
    networks = jax.vmap(jax.vmap(lambda key: make_mlp(key, sizes, layer_norm=layer_norm, half=half)))(keys)
    x, dy = (jax.random.normal(jax.random.key(i), (runs, rows, n)) for i, n in ((1, sizes[0]), (2, sizes[-1])))
    return networks, x, dy


def passes() -> dict[str, Callable[..., Any]]:
    def output(network: MLP, x: jax.Array, dy: jax.Array) -> jax.Array:
        return network(x)

    def slopes(network: MLP, x: jax.Array, dy: jax.Array) -> MLP:
        return jax.grad(lambda n: (n(x) * dy).sum())(network)

    def over_runs(one: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(jax.vmap(jax.vmap(one, in_axes=(0, None, None))))

    return {"forward": over_runs(output), "with gradient": over_runs(slopes)}


def microseconds(call: Callable[[], Any], repeats: int = 50) -> float:
    jax.block_until_ready(call())
    start = time.perf_counter()
    for _ in range(repeats):
        result = call()
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / repeats * 1e6


def distance(one: Any, other: Any) -> float:
    apart = jax.tree.map(lambda a, b: jnp.linalg.norm(a - b) / jnp.linalg.norm(b), one, other)
    return float(max(jax.tree.leaves(apart)))


def settings(tune: bool) -> Iterator[dict[str, int]]:
    """Rows and units are those of the backward pass too; the forward pass takes twice as many rows where it can."""
    if not tune:
        yield {}
        return
    for piece, warps, stages in itertools.product((16, 32, 64), (4, 8), (2, 3, 4)):
        yield {"PIECE": piece, "WARPS": warps, "STAGES": stages}


def apply(values: dict[str, int]) -> None:
    for name, value in values.items():
        for module in (fused, fused_backward):
            if hasattr(module, name):
                setattr(module, name, value)


def measure(name: str, runs: int, *, half: bool) -> dict[str, Any]:
    """Microseconds of each pass as the networks are computed now, and what came out."""
    count, sizes, rows, layer_norm = NETWORKS[name]
    arguments = make(runs, count, sizes, rows, layer_norm=layer_norm, half=half)
    return {
        kind: (microseconds(partial(function, *arguments)), function(*arguments)) for kind, function in passes().items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=128)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if not backend.on_gpu():
        sys.exit("no GPU: the kernels run on one only (the tests compute them without)")
    backend.FUSED_NETWORKS = False
    by_layer = {name: measure(name, args.runs, half=args.half) for name in args.networks}
    backend.FUSED_NETWORKS = True
    rows = []
    for values, name in itertools.product(settings(args.tune), args.networks):
        apply(values)
        jax.clear_caches()
        row: dict[str, Any] = {"network": name, "half": args.half, **values}
        try:
            for kind, (took, result) in measure(name, args.runs, half=args.half).items():
                layers_took, layers_result = by_layer[name][kind]
                row |= {f"{kind}, layers": round(layers_took, 1), f"{kind}, fused": round(took, 1)}
                row[f"{kind}, apart"] = round(distance(result, layers_result), 5)
        except Exception as error:  # a setting may need more shared memory than there is: say so, try the next
            row["error"] = str(error)[:120]
        rows.append(row)
        print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    if args.out:
        args.out.write_text(json.dumps({"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": rows}))


if __name__ == "__main__":
    main()

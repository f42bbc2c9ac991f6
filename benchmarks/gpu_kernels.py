"""What the compiler makes of a step on an NVIDIA H200, found out on a machine without one.

    python benchmarks/gpu_kernels.py --runs 128 --method hyper --longest 30

JAX can compile for a GPU that is not there, given its description. What comes out names every kernel of a step and the
arrays that it reads and writes; at these sizes their bytes and products are nearly all that a step costs. So a change
can be judged before a GPU is at hand: the sum below was 2.85 ms where 3.10 were measured (TF32, 128 runs of Hyper,
copies that newer versions of JAX leave out taken off), and 2.19 where 2.51 were (bfloat16).

It is a lower estimate: kernels reach neither the full bandwidth nor the full rate of products, and a fusion that reads
a part of an array is charged for all of it unless it slices it first. Needs JAX's CUDA plugin and no GPU, in an
environment of its own: `pip install jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2` beside this package.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

sys.path.insert(0, str(Path(__file__).parent))

from hyper_rl import backend, thin_kernels
from hyper_rl.learners.base import period_of
from hyper_rl.training.device_loop import advance, init_runs
from speed import make_program

BANDWIDTH = 4.2e12  # bytes/s in one pass of Adam, measured (`benchmarks/gpu.py`)
PRODUCTS = {False: 156e12, True: 400e12}  # FLOP/s: TF32 measured, bfloat16 about what large products reach
SMALLEST = 1.5e-6  # seconds that a kernel takes at least
BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
NO_KERNEL = {"parameter", "get-tuple-element", "tuple", "bitcast", "constant", "reshape", "while"}

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128 registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 151397597184 cuda_compute_capability { major: 9 }
}
platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 patch: 0 } device_description_str: "NVIDIA H200"
"""


@dataclass(frozen=True)
class Kernel:
    name: str
    share: float
    """How often in a block of steps: half the time for what stands in a branch."""
    read: float
    written: float
    flops: float
    result: str

    def seconds(self, rate: float) -> float:
        return self.share * max((self.read + self.written) / BANDWIDTH, self.flops / rate, SMALLEST)


def compiled_text(task: str, method: str, runs: int, preset: str, *, half: bool, blocks: bool) -> tuple[str, int]:
    """The optimised program of `advance` for one H200, and how many steps a turn of its loop takes."""
    backend.on_gpu = lambda: True  # as on a GPU, though the host that compiles has none
    thin_kernels.interpreted, thin_kernels.runs_here = lambda: False, lambda: True
    program = make_program(task, method, runs, preset, 100_000, 2, half)
    block = period_of(program.learner) if blocks else 1
    topology = topologies.get_topology_desc(platform="cuda", target_config=H200, topology="1x1x1")
    there = SingleDeviceSharding(topology.devices[0])

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=there), tree)

    program = placed(jax.tree.map(jnp.asarray, program))
    state = placed(jax.eval_shape(init_runs, program))
    mark = jax.ShapeDtypeStruct((), jnp.int32, sharding=there)
    traced = advance.jitted.trace(program, state, mark, mark, mark, learn=True, block=block)
    return traced.lower(lowering_platforms=("cuda",)).compile().as_text(), block


def size_of(shapes: str) -> int:
    found = re.findall(r"(\w+)\[([\d,]*)\]", shapes)
    return sum(BYTES.get(kind, 4) * math.prod(int(n) for n in dims.split(",") if n) for kind, dims in found)


def computations(text: str) -> dict[str, str]:
    parts = (part for part in text.split("\n\n") if re.match(r"\s*(?:ENTRY )?%[\w.\-]+ \(", part))
    return {part.split(" (")[0].replace("ENTRY ", "").strip(): part for part in parts}


def bytes_read(fusion: str, number: int, whole: int) -> int:
    """Of a fusion's parameter: less than the whole where all that is done to it is to slice it."""
    named = re.search(r"(%[\w.\-]+) = \S+ parameter\(" + str(number) + r"\)", fusion)
    if named is None:
        return whole
    used = re.compile(re.escape(named[1]) + r"[,)\s]")
    users = [
        line.split(" = ", 1)[1] for line in fusion.split("\n") if " = " in line and used.search(line.split("=")[1])
    ]
    slices = [user for user in users if re.search(r" (dynamic-slice|gather|dynamic-update-slice|slice)\(", user)]
    if not users or len(slices) < len(users):
        return whole
    return min(whole, sum(size_of(user.split("(")[0]) for user in slices if "dynamic-update-slice(" not in user))


def flops_of(fusion: str) -> float:
    product = re.search(r"\[([\d,]+)\]\S* dot\((%[\w.\-]+), .*?lhs_contracting_dims=\{(\d+)", fusion)
    if product is None:
        return 0.0
    left = re.search(re.escape(product[2]) + r" = \w+\[([\d,]+)\]", fusion)
    depth = int(left[1].split(",")[int(product[3])]) if left else 1
    return 2.0 * depth * math.prod(int(n) for n in product[1].split(","))


def kernels_of(parts: dict[str, str], name: str, share: float = 1.0) -> list[Kernel]:
    """Of one computation and of the branches that it calls."""
    shapes: dict[str, str] = {}
    found: list[Kernel] = []
    for line in parts[name].split("\n")[1:]:
        match = re.match(r"\s*(?:ROOT )?(%[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)", line)
        if match is None:
            continue
        own, shapes[match[1]], kind, rest = match.groups()
        if kind in NO_KERNEL:
            continue
        if kind == "conditional":
            branches = re.findall(r"%[\w.\-]+", line.split("_computation", 1)[1])
            for branch in (b for b in branches if b in parts):
                found += kernels_of(parts, branch, share / 2)
            continue
        called = re.search(r"calls=(%[\w.\-]+)", line)
        fusion = parts.get(called[1], "") if called else ""
        operands = re.findall(r"%[\w.\-]+", rest.split("), ")[0])
        sizes = [size_of(shapes.get(operand, "")) for operand in operands]
        read = sum(bytes_read(fusion, i, size) if fusion else size for i, size in enumerate(sizes))
        in_place = "dynamic_update_slice" in own
        written = 0 if in_place else size_of(shapes[own])
        found.append(Kernel(own, share, read, written, flops_of(fusion), re.sub(r"\{[^}]*\}", "", shapes[own])))
    return found


def kernels_of_step(text: str) -> list[Kernel]:
    """Of the loop over steps, which is the computation of a program that has the most of them."""
    parts = computations(text)
    body = max(parts, key=lambda name: len(re.findall(r" (?:fusion|custom-call)\(", parts[name])))
    return kernels_of(parts, body)


def program_parser(description: str | None) -> argparse.ArgumentParser:
    """With the options that say which program is looked at; also for `gpu_profile.py` and `gpu_variants.py`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="MediumMaze-Easy")
    parser.add_argument("--method", default="hyper")
    parser.add_argument("--preset", default="paper")
    return parser


def main() -> None:
    parser = program_parser(__doc__)
    parser.add_argument("--runs", type=int, default=128)
    parser.add_argument("--half", action="store_true", help="bfloat16 products")
    parser.add_argument("--single", action="store_true", help="one step a turn of the loop, with its branch")
    parser.add_argument("--longest", type=int, default=20, help="how many kernels to list")
    args = parser.parse_args()
    text, block = compiled_text(args.task, args.method, args.runs, args.preset, half=args.half, blocks=not args.single)
    kernels, rate = kernels_of_step(text), PRODUCTS[args.half]
    total = sum(kernel.seconds(rate) for kernel in kernels) / block
    count, moved = sum(k.share for k in kernels) / block, sum(k.share * (k.read + k.written) for k in kernels) / block
    copies = sum(k.seconds(rate) for k in kernels if k.name.startswith("%copy")) / block
    print(
        f"a step of {args.runs} runs: {1e3 * total:.3f} ms ({1e3 * copies:.3f} of it plain copies), {count:.0f} kernels"
        f", {moved / 1e9:.2f} GB; {args.runs / total:,.0f} run-steps/s at most"
    )
    for kernel in sorted(kernels, key=lambda k: -k.seconds(rate))[: args.longest]:
        took, read, written = 1e6 * kernel.seconds(rate) / block, kernel.read / 1e6, kernel.written / 1e6
        print(
            f"{took:7.1f} us a step  {kernel.name[1:45]:44s} reads {read:7.1f} MB, writes {written:7.1f} MB, "
            f"{kernel.flops / 1e9:5.1f} GFLOP  {kernel.result[:60]}"
        )


if __name__ == "__main__":
    main()

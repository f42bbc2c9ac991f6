"""One step under each of several XLA settings, measured in turns on one GPU.

    python benchmarks/gpu_flags.py --runs 1 128
    python benchmarks/gpu_flags.py --only default cublas

Every setting is a process of its own (XLA reads them once), so compiling takes most of the time, some 20 seconds for
each number of runs. The first one is measured again at the end: what lies between its two figures is noise. A setting
that this version of XLA does not know, or whose program fails, is a line that says so. Settings are those of GPUs; on
a CPU they change nothing. The package's own (`backend.SIDE_BY_SIDE`) hold in all of them; `gpu_variants.py` measures a
step without.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SETTINGS = {
    "default": "",
    "loops": "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL",  # the loop over steps in a command buffer, too
    "fusion-autotuner": "--xla_gpu_experimental_enable_fusion_autotuner=true",
    "multi-output": "--xla_gpu_unsupported_enable_triton_multi_output_fusion=true",
    "block-level": "--xla_gpu_experimental_enable_fusion_block_level_rewriter=true",
    "cublas": "--xla_gpu_enable_triton_gemm=false",
    "cublaslt": "--xla_gpu_enable_cublaslt=true",
    "triton": "--xla_gpu_cublas_fallback=false",
}


def measure(name: str, arguments: list[str], limit: float) -> list[dict[str, object]]:
    """Rows of `gpu.py` under one setting, or one that says why there are none."""
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), SETTINGS[name]]).strip()
    command = [sys.executable, str(HERE / "gpu.py"), *arguments]
    about: dict[str, object] = {"setting": name, "flags": SETTINGS[name]}
    try:
        done = subprocess.run(
            command, env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return _failed(about, f"not done after {limit:g} seconds")
    if done.returncode != 0:
        return _failed(about, " ".join([line for line in done.stderr.splitlines() if line.strip()][-1:])[:160])
    rows = json.loads(done.stdout.splitlines()[-1])["rows"]
    for row in rows:
        print(
            f"{name}: {row['method']}, {row['runs']} runs: {row['ms_per_step']} ms, {row['run_steps_per_second']:,} "
            f"run-steps/s, {row['peak_gib']} GiB, compiled in {row['compile_seconds']} s",
            flush=True,
        )
    return [{**about, **row} for row in rows]


def _failed(about: dict[str, object], why: str) -> list[dict[str, object]]:
    print(f"{about['setting']}: failed ({why})", flush=True)
    return [{**about, "failed": why}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--methods", nargs="+", default=["hyper"])
    parser.add_argument("--runs", nargs="+", type=int, default=[128])
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one setting may take")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    arguments = ["--methods", *args.methods, "--runs", *map(str, args.runs), "--preset", args.preset]
    arguments += ["--seconds", str(args.seconds), *(["--half"] if args.half else [])]
    rows: list[dict[str, object]] = []
    for turn, name in enumerate([*args.only, args.only[0]]):
        rows += [{"turn": turn, **row} for row in measure(name, arguments, args.limit)]
        if args.out:
            args.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()

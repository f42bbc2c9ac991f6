"""Our TD3 and Hyper beside SBX's and Stable-Baselines3's TD3, in turns in one run, on this machine.

    make bench

Same batch (256), widths (256-256), one update per step, HalfCheetah's dimensions, a task that costs nothing. The peers
live in an environment of their own. Each side is measured in turn, several times round, and the ratio is of medians;
on a shared machine single figures move by a fifth. Nothing else may compute meanwhile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PEER_PYTHON = HERE.parent / ".bench-venv" / "bin" / "python"


def ours(method: str) -> float:
    command = [sys.executable, str(HERE / "speed.py"), "--methods", method, "--seconds", "12"]
    return float(_last_json(command)["rows"][0]["steps_per_second"])


def peer(name: str, steps: int) -> float:
    command = [str(PEER_PYTHON), str(HERE / "peers" / "measure.py"), "--peer", name, "--steps", str(steps)]
    return float(_last_json([*command, "--warmup-steps", "300"])["steps_per_second"])


def _last_json(command: list[str]) -> dict[str, Any]:  # the measuring scripts print one JSON object last
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    document: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sides: dict[str, Callable[[], float]] = {
        "exploit": lambda: ours("exploit"),
        "sbx": lambda: peer("sbx", 2500),
        "hyper": lambda: ours("hyper"),
        "sb3": lambda: peer("sb3", 1500),
    }
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(args.rounds):
        for name, measure in sides.items():
            measured[name].append(measure())
            print(f"round {round_number + 1}: {name} {measured[name][-1]:.0f} steps/s", flush=True)
    medians = {name: statistics.median(values) for name, values in measured.items()}
    ratios = {"exploit / sbx": medians["exploit"] / medians["sbx"], "hyper / sb3": medians["hyper"] / medians["sb3"]}
    print(json.dumps({"steps_per_second": measured, "medians": medians, "ratios": ratios}))


if __name__ == "__main__":
    main()

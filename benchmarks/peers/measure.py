"""How many training steps a second a peer's TD3 makes: one environment step, one stored transition, one update.

    python benchmarks/peers/measure.py --peer sb3 --steps 3000 --warmup-steps 500

Prints one JSON object. The clock runs from the callback of step `learning_starts + warmup` to that of step
`learning_starts + warmup + steps`; exactly `steps` environment steps and `steps` updates lie between the two, and the
warm-up has seen every program compiled. No work is left queued at either end: SB3 on the CPU is synchronous, and SBX
reads its losses back on the host after every update.

A figure is worth keeping only if nothing else computed meanwhile: `cpu_seconds` says how much processor time the run
itself took inside the measured span, how much other processes took, and how much the hypervisor withheld.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.peers.models import BATCH, HIDDEN_WIDTHS, PEERS, SETTINGS, Peer, build, set_torch_threads, versions

# Longer than any measurement: the libraries' own log tables are never assembled.
_NEVER = 1_000_000_000


@dataclass(frozen=True)
class Measurement:
    """What is printed; field names are the keys of the JSON object."""

    peer: Peer
    steps_per_second: float
    steps: int
    seconds: float
    cpu_seconds: dict[str, float]
    updates: int
    warmup_steps: int
    learning_starts: int
    batch: int
    hidden_widths: tuple[int, ...]
    seed: int
    threads: dict[str, Any]
    versions: dict[str, str]


@dataclass(frozen=True)
class CpuTime:
    """Processor seconds since some fixed past: of this process, of all processes, and withheld from the machine."""

    own: float
    everyone: float
    stolen: float


def read_cpu_time() -> CpuTime:
    """Linux's counters; they tick in hundredths of a second, fine enough for spans of many seconds."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen = ticks
    per_second = os.sysconf("SC_CLK_TCK")
    everyone = user + nice + system + interrupts + soft_interrupts
    return CpuTime(time.process_time(), everyone / per_second, stolen / per_second)


def cpu_seconds_between(begin: CpuTime, end: CpuTime) -> dict[str, float]:
    """What the measured span cost, by whom."""
    own = end.own - begin.own
    # Coarse ticks against an exact clock: a value a little below zero means none.
    others = end.everyone - begin.everyone - own
    return {"own": round(own, 2), "others": round(others, 2), "stolen": round(end.stolen - begin.stolen, 2)}


class Stopwatch:
    """A callback that reads the clock at two steps and ends the run at the second."""

    def __init__(self, model: Any, begin: int, end: int) -> None:
        self._model = model
        self._begin = begin
        self._end = end
        self._count = 0
        self._begin_seconds = 0.0
        self._begin_updates = 0
        self._begin_cpu = CpuTime(0.0, 0.0, 0.0)
        self.cpu_seconds: dict[str, float] = {}
        self.seconds = 0.0
        self.updates = 0

    def __call__(self, local_names: dict[str, Any], global_names: dict[str, Any]) -> bool:
        self._count += 1
        if self._count == self._begin:
            self._begin_updates = self._model._n_updates
            self._begin_cpu = read_cpu_time()
            self._begin_seconds = time.perf_counter()
        elif self._count == self._end:
            self.seconds = time.perf_counter() - self._begin_seconds
            self.cpu_seconds = cpu_seconds_between(self._begin_cpu, read_cpu_time())
            self.updates = self._model._n_updates - self._begin_updates
            return False
        return True


def threads_in_use(peer: Peer, torch_threads: int) -> dict[str, Any]:
    """The thread settings a reader needs to repeat the figure."""
    settings: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "torch_threads": torch_threads}
    if peer == "sbx":
        settings["jax"] = "default CPU client"
        settings["xla_flags"] = os.environ.get("XLA_FLAGS", "")
    return settings


def measure(peer: Peer, steps: int, warmup_steps: int, seed: int, torch_threads: int) -> Measurement:
    """Train once and time the last `steps` steps."""
    set_torch_threads(torch_threads)
    model = build(peer, seed)
    learning_starts = int(SETTINGS["learning_starts"])
    begin = learning_starts + warmup_steps
    stopwatch = Stopwatch(model, begin, begin + steps)
    model.learn(total_timesteps=begin + steps, callback=stopwatch, log_interval=_NEVER)
    if stopwatch.updates != steps:
        raise RuntimeError(f"expected one update per step, {steps} in all, but {peer} made {stopwatch.updates}")
    return Measurement(
        peer=peer,
        steps_per_second=round(steps / stopwatch.seconds, 1),
        steps=steps,
        seconds=round(stopwatch.seconds, 3),
        cpu_seconds=stopwatch.cpu_seconds,
        updates=stopwatch.updates,
        warmup_steps=warmup_steps,
        learning_starts=learning_starts,
        batch=BATCH,
        hidden_widths=HIDDEN_WIDTHS,
        seed=seed,
        threads=threads_in_use(peer, torch_threads),
        versions=versions(peer),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Training steps per second of a peer's TD3 on the CPU.")
    parser.add_argument("--peer", choices=PEERS, required=True)
    parser.add_argument("--steps", type=int, default=3000, help="training steps inside the measured span")
    parser.add_argument("--warmup-steps", type=int, default=500, help="training steps before it, compilation included")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch-threads", type=int, default=2)
    chosen = parser.parse_args()
    if chosen.steps < 1 or chosen.warmup_steps < 4:
        parser.error("needs at least 1 step, and 4 warm-up steps for SBX to compile both phases of the policy delay")
    result = measure(chosen.peer, chosen.steps, chosen.warmup_steps, chosen.seed, chosen.torch_threads)
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()

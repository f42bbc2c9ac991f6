"""Kill training at random moments, resume it until it is done, and compare every file with an uninterrupted run.

    python tests/kill_and_resume.py --times 10
    python tests/kill_and_resume.py --times 10 --task HalfCheetah-v5

Each time one run folder is killed (`kill -9`) again and again: the first kill comes at a random moment of the whole
run, the next at a random moment of what an uninterrupted run would take, until a start gets through. Worker processes
are killed at the same moment as the training itself. Every start compiles anew unless told otherwise; as that takes
longer than many a training, `--late` counts the moments from the first checkpoint on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

BEGUN = "memory:"
"""The first line of a start on standard error: from here on there is something to interrupt."""
RESUMED = re.compile(r"resuming .* at step (\d+)")
POLL_SECONDS = 0.01
SHARED_PROGRAMS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}
"""With JAX_COMPILATION_CACHE_DIR: starts share what they compile, which only saves time."""

SMALL = "--td3.widths 32 32 --td3.batch-size 32 --disagreement.widths 32"
ON_HOST = f"--seeds 2 --warmup 300 --eval-every 800 --eval-episodes 2 {SMALL}"


@dataclass(frozen=True)
class Setting:
    """What is trained, and what every start of the killed run is told besides, which must change nothing."""

    words: str
    besides: str = ""


SETTINGS: dict[str, Setting] = {
    "Room": Setting("Room --beta 0.005 1 --seeds 2 --steps 300000"),
    "MediumMaze-Easy": Setting("MediumMaze-Easy --beta 1 --steps 2000 --warmup 200 --eval-every 500"),
    "MediumMaze-Easy-mujoco": Setting(f"MediumMaze-Easy --backend mujoco --steps 3000 {ON_HOST}"),
    "HalfCheetah-v5": Setting(f"HalfCheetah-v5 --steps 3000 {ON_HOST}"),
    "HalfCheetah-v5-workers": Setting(f"HalfCheetah-v5 --steps 3000 {ON_HOST}", besides="--env-workers 2"),
    "MountainCarContinuous-v0": Setting(f"MountainCarContinuous-v0 --steps 3000 {ON_HOST}"),
    "Pendulum-v1": Setting(f"Pendulum-v1 --steps 3000 {ON_HOST}"),
}


@dataclass(frozen=True)
class Start:
    """One start of the command: how it ended, how long after it began, and what it said on standard error."""

    code: int
    seconds: float
    said: str

    @property
    def killed(self) -> bool:
        return self.code < 0

    @property
    def resumed_at(self) -> int | None:
        """The step of the checkpoint it went on from; 0 where there was none yet, None where all was done already."""
        found = RESUMED.search(self.said)
        return int(found[1]) if found else 0 if BEGUN in self.said else None


@dataclass(frozen=True)
class Kill:
    """A kill that hit: how long after the start began, and the step from which the next one went on."""

    seconds: float
    resumed_at: int | None = None

    def __str__(self) -> str:
        after = "was done already" if self.resumed_at is None else f"went on at step {self.resumed_at}"
        return f"{self.seconds:.2f} s ({after})"


def start(
    words: list[str],
    out: Path,
    environment: Mapping[str, str],
    *,
    kill_after: float | None = None,
    late: bool = False,
    number: signal.Signals = signal.SIGKILL,
) -> Start:
    """`hyper-rl train WORDS` into `out`, killed so many seconds after it began unless it is done by then.

    It has begun with its first line or, where `late`, with the first checkpoint. `number`: a politer signal.
    """
    log = out.with_suffix(".log")
    command = [sys.executable, "-m", "hyper_rl.cli.main", "train", *words, "--checkpoint-seconds", "0.3"]
    with log.open("w") as stream:
        # A group of its own, so that one signal ends its worker processes too.
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=stream,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            while process.poll() is None and not (list_checkpoints(out) if late else BEGUN in log.read_text()):
                time.sleep(POLL_SECONDS)
            begun = time.monotonic()
            if kill_after is not None:
                try:
                    process.wait(timeout=kill_after)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, number)
            code = process.wait()
            seconds = time.monotonic() - begun
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Start(code, seconds, log.read_text())


def list_checkpoints(out: Path) -> list[Path]:
    return list((out / "checkpoint").glob("step-*"))


def run_undisturbed(words: list[str], out: Path, environment: Mapping[str, str], *, late: bool = False) -> float:
    """Seconds from its beginning to its end."""
    done = start([*words, "--out", str(out)], out, environment, late=late)
    if done.code != 0:
        raise RuntimeError(f"the uninterrupted run failed with {done.code}:\n{done.said}")
    return done.seconds


def run_with_kills(
    words: list[str],
    out: Path,
    seconds: float,
    kills: int,
    draw: random.Random,
    environment: Mapping[str, str],
    *,
    besides: Sequence[str] = (),
    late: bool = False,
) -> list[Kill]:
    """Killed up to `kills` times at random moments of a run of `seconds`, resumed each time; the kills that hit.

    `besides` is given to every start, the resuming ones included.
    """
    hits: list[Kill] = []
    arguments = [*words, "--out", str(out)]
    for attempt in range(kills + 1):
        moment = draw.uniform(0.0, seconds) if attempt < kills else None
        done = start([*arguments, *besides], out, environment, kill_after=moment, late=late)
        if hits:
            hits[-1] = Kill(hits[-1].seconds, done.resumed_at)
        if done.code == 0:
            break
        if not done.killed or moment is None:
            raise RuntimeError(f"start {attempt} after kills at {_listed(hits)} failed with {done.code}:\n{done.said}")
        hits.append(Kill(moment))
        arguments = ["--resume", str(out)]
    return hits


def _listed(kills: Sequence[Kill]) -> str:
    return ", ".join(str(kill) for kill in kills)


def results_of(folder: Path) -> dict[str, bytes]:
    """Every file that must not depend on interruptions: all but speeds."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "timing.json"
    }


def differing(folder: Path, other: Path) -> list[str]:
    """Names of the files that one has and the other has not, or that differ in any byte."""
    mine, theirs = results_of(folder), results_of(other)
    return [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]


def main(say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="run folders to kill and resume")
    parser.add_argument("--task", choices=sorted(SETTINGS), default="Room")
    parser.add_argument("--kills", type=int, default=1, help="kills of each run folder at most")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments; default: a fresh one")
    parser.add_argument("--share-programs", action="store_true", help="compile once for all starts, to save time")
    parser.add_argument("--late", action="store_true", help="kill only once there is a checkpoint")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    draw, setting = random.Random(seed), SETTINGS[options.task]
    words, besides = setting.words.split(), setting.besides.split()
    equal = unequal = without_kill = 0
    with tempfile.TemporaryDirectory() as scratch:
        compiled = {**SHARED_PROGRAMS, "JAX_COMPILATION_CACHE_DIR": f"{scratch}/compiled"}
        environment = compiled if options.share_programs else {}
        reference = Path(scratch) / "undisturbed"
        seconds = run_undisturbed(words, reference, environment, late=options.late)
        if options.share_programs:  # now that everything is compiled, see how long a run takes
            seconds = run_undisturbed(words, Path(scratch) / "again", environment, late=options.late)
        since = "from the first checkpoint on" if options.late else "from the first line on"
        say(f"{' '.join(words)}\nundisturbed: {seconds:.1f} s {since}; seed of the moments: {seed}")
        if besides:
            say(f"the killed ones also get {' '.join(besides)}")
        while equal + unequal < options.times:
            out = Path(scratch) / f"killed-{equal + unequal}-{without_kill}"
            kills = run_with_kills(
                words, out, seconds, options.kills, draw, environment, besides=besides, late=options.late
            )
            if not kills:
                # The machine is faster now than it was for the first run: draw from a shorter time.
                without_kill, seconds = without_kill + 1, 0.8 * seconds
                continue
            names = differing(reference, out)
            equal, unequal = equal + (not names), unequal + bool(names)
            verdict = "equal" if not names else f"DIFFERENT: {names}"
            say(f"{equal + unequal}: killed after {_listed(kills)}: {verdict}")
    say(f"{equal} of {options.times} equal, {unequal} unequal (and {without_kill} that ended before the kill)")
    return 0 if unequal == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

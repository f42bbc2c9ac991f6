"""Kill training at random moments, resume it until it is done, and compare every file with an uninterrupted run.

    python tests/kill_and_resume.py --times 10
    python tests/kill_and_resume.py --times 10 --task MediumMaze-Easy

Each time one run folder is killed (`kill -9`) again and again: the first kill comes at a random moment of the whole
run, the next at a random moment of what an uninterrupted run would take, until a start gets through.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

BEGUN = "memory:"
"""The first line of a start on standard error: from here on there is something to interrupt."""
POLL_SECONDS = 0.01

SETTINGS: dict[str, str] = {
    "Room": "Room --beta 0.005 1 --seeds 2 --steps 300000",
    "MediumMaze-Easy": "MediumMaze-Easy --beta 1 --steps 2000 --warmup 200 --eval-every 500",
}


@dataclass(frozen=True)
class Start:
    """One start of the command: how it ended, how long after its first line, and what it said on standard error."""

    code: int
    seconds: float
    said: str

    @property
    def killed(self) -> bool:
        return self.code < 0


def start(words: list[str], kill_after: float | None, log: Path, environment: Mapping[str, str]) -> Start:
    """`hyper-rl train WORDS`, killed so many seconds after its first line unless it is done by then."""
    command = [sys.executable, "-m", "hyper_rl.cli.main", "train", *words, "--checkpoint-seconds", "0.3"]
    with log.open("w") as stream:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=stream, env={**os.environ, **environment}
        )
        try:
            while process.poll() is None and BEGUN not in log.read_text():
                time.sleep(POLL_SECONDS)
            begun = time.monotonic()
            if kill_after is not None:
                try:
                    process.wait(timeout=kill_after)
                except subprocess.TimeoutExpired:
                    process.kill()
            code = process.wait()
            seconds = time.monotonic() - begun
        finally:
            process.kill()
            process.wait()
    return Start(code, seconds, log.read_text())


def run_undisturbed(words: list[str], out: Path, environment: Mapping[str, str]) -> float:
    """Seconds from the first line to the end."""
    done = start([*words, "--out", str(out)], None, out.with_suffix(".log"), environment)
    if done.code != 0:
        raise RuntimeError(f"the uninterrupted run failed with {done.code}:\n{done.said}")
    return done.seconds


def run_with_kills(
    words: list[str], out: Path, seconds: float, kills: int, draw: random.Random, environment: Mapping[str, str]
) -> list[float]:
    """Killed up to `kills` times at random moments of a run of `seconds`, resumed each time; the moments that hit."""
    moments: list[float] = []
    log = out.with_suffix(".log")
    arguments = [*words, "--out", str(out)]
    for attempt in range(kills + 1):
        moment = draw.uniform(0.0, seconds) if attempt < kills else None
        done = start(arguments, moment, log, environment)
        if done.code == 0:
            break
        if not done.killed or moment is None:
            raise RuntimeError(f"start {attempt} after kills at {moments} failed with {done.code}:\n{done.said}")
        moments.append(moment)
        arguments = ["--resume", str(out)]
    return moments


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
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    draw, words = random.Random(seed), SETTINGS[options.task].split()
    equal = unequal = without_kill = 0
    with tempfile.TemporaryDirectory() as scratch:
        reference = Path(scratch) / "undisturbed"
        seconds = run_undisturbed(words, reference, {})
        say(f"{' '.join(words)}\nundisturbed: {seconds:.1f} s; seed of the moments: {seed}")
        while equal + unequal < options.times:
            out = Path(scratch) / f"killed-{equal + unequal}-{without_kill}"
            moments = run_with_kills(words, out, seconds, options.kills, draw, {})
            if not moments:
                # The machine is faster now than it was for the first run: draw from a shorter time.
                without_kill, seconds = without_kill + 1, 0.8 * seconds
                continue
            names = differing(reference, out)
            equal, unequal = equal + (not names), unequal + bool(names)
            said = ", ".join(f"{moment:.2f} s" for moment in moments)
            say(f"{equal + unequal}: killed after {said}: {'equal' if not names else f'DIFFERENT: {names}'}")
    say(f"{equal} of {options.times} equal, {unequal} unequal (and {without_kill} that ended before the kill)")
    return 0 if unequal == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

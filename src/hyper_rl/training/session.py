"""Training in chunks of about a second, with evaluations at fixed steps between them.

Whoever drives it (the command, an agent object) looks in between chunks: to show progress, save, stop. None of that
has any influence on what is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hyper_rl.config import Config
from hyper_rl.training.checkpoint import Position
from hyper_rl.training.loop import Loop
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.snapshot import clear_window, measure, rows

CHUNK_SECONDS = 1.0

Rows = list[dict[str, float]]


@dataclass
class Clock:
    """Where training stands, and what it has cost."""

    step: int
    evaluations: int
    seconds: float = 0.0
    steps_timed: int = 0
    owes_evaluation: bool = False
    """The evaluation of this very step is still to be done: the last attempt failed."""


def owes_evaluation(config: Config, folder: RunFolder, position: Position) -> bool:
    """Whether the checkpoint was saved because the evaluation at its very step had failed: it has no row."""
    due = position.step % config.eval_every == 0 or position.step == config.steps
    steps = folder.read_curve(position.curve_bytes)["step"]
    return position.step > 0 and due and not (steps.size and steps[-1] == position.step)


def train_steps(
    config: Config,
    loop: Loop,
    clock: Clock,
    *,
    on_evaluation: Callable[[Rows], bool],
    after_chunk: Callable[[str], bool],
    beside: Callable[[], None] | None = None,
) -> bool:
    """Train up to `config.steps`. Both callbacks answer whether to go on; the result is whether the end was reached.

    `after_chunk` is given a few words about the last evaluation. `beside` is what else to do at an evaluation, before
    anything of it is written.
    """
    betas, seeds = [beta for beta, _ in config.runs], [seed for _, seed in config.runs]
    note, chunk = "", 16
    while clock.step < config.steps or clock.owes_evaluation:
        if not clock.owes_evaluation:
            chunk = _advance(config, loop, clock, chunk)
        go_on = True
        if clock.owes_evaluation:
            measured = measure(loop, clock.step, clock.evaluations, config.eval_episodes)
            if beside is not None:
                beside()
            loop.change(lambda state: clear_window(loop.program, state))
            clock.evaluations += 1
            clock.owes_evaluation = False
            table = rows(measured, clock.step, betas, seeds)
            note = f", success {np.mean([row['success'] for row in table]):.2f}" if _has_success(table) else (
                f", return {np.mean([row['return'] for row in table]):.4g}"
            )  # fmt: skip
            go_on = on_evaluation(table)
        if not (after_chunk(note) and go_on):
            return clock.step >= config.steps
    return True


def _advance(config: Config, loop: Loop, clock: Clock, chunk: int) -> int:
    """At most `chunk` steps, and not beyond the next evaluation; the size of the next chunk."""
    next_evaluation = min((clock.step // config.eval_every + 1) * config.eval_every, config.steps)
    end = min(loop.cut(clock.step + chunk), next_evaluation)
    begun = time.monotonic()
    try:
        loop.advance(clock.step, end)
    except BaseException:
        clock.step = loop.position  # what was done before the failure stays done
        raise
    took, done = time.monotonic() - begun, end - clock.step
    if done >= chunk:
        # Grow towards chunks of a second; the first ones also paid for compiling.
        chunk = max(1, min(chunk * 4, int(done / max(took, 1e-6) * CHUNK_SECONDS)))
    clock.step, clock.seconds, clock.steps_timed = end, clock.seconds + took, clock.steps_timed + done
    clock.owes_evaluation = clock.step == next_evaluation
    return chunk


def _has_success(table: Rows) -> bool:
    """Tasks without a notion of success never succeed; their return says more."""
    return any(row["success"] > 0 or row["return"] == 0 or row["goals"] > 0 for row in table)

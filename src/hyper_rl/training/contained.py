"""The runs of Curiosity that Decouple's runs contain.

Decouple's explorer is Curiosity's only learner: it alone acts, it learns from the same rewards with the same random
numbers, and nothing that the task learner beside it does ever reaches it. So a training of Decouple has trained
Curiosity too; all that is left to do is to judge the explorer itself. What it comes to is written into a run folder
inside Decouple's: the very bytes that a training of its own writes with tables, the same up to rounding with networks
(which a million updates make another draw of the same thing).

Until it is done that folder has no checkpoint: it grows with the one around it and is cut back with it. Then it gets
one, and is a run folder like any other.
"""

from __future__ import annotations

import dataclasses
import errno
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hyper_rl.config import Config
from hyper_rl.errors import UserError, require
from hyper_rl.methods.policies import ROLES, MethodName, make_policies
from hyper_rl.training.agent_file import write_agents
from hyper_rl.training.checkpoint import Position, head_sha256, write_checkpoint
from hyper_rl.training.host_loop import HostRuns
from hyper_rl.training.loop import Loop
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.run_folder import RunFolder, naming, summarise_runs
from hyper_rl.training.session import Clock
from hyper_rl.training.snapshot import measure_judged, rows
from hyper_rl.types import stack_runs

OUTER: MethodName = "decouple"
INNER: MethodName = "curiosity"
(ROLE,) = ROLES[INNER]


def as_outer(inner: Config) -> Config:
    """The configuration of Decouple that contains this one of Curiosity, but for what Decouple does not use either."""
    return normalised(dataclasses.replace(inner, method=OUTER))


def normalised(config: Config) -> Config:
    """Without what has no meaning where nobody repositions."""
    return dataclasses.replace(config, p_start=1.0, p_end=1.0, lengths="bounded")


def is_contained(inner: Config, outer: Config) -> bool:
    """Whether training `outer` trains the runs of `inner` too."""
    if (inner.method, outer.method) != (INNER, OUTER):
        return False
    return as_outer(inner).to_json() == normalised(outer).to_json()


def refuse_contained(folder: RunFolder) -> None:
    """A folder that is in the making inside another one is not to be trained by itself."""
    path = folder.path.resolve()
    outer = RunFolder(path.parent)
    if path != outer.contained or folder.result.is_file() or outer.result.is_file() or not outer.config.is_file():
        return
    if Contained.find(outer, RunFolder.open(outer.path)[1]) is not None:
        raise UserError(
            f"run: {folder.path} is computed with the run around it; go on with: hyper-rl train --resume {outer.path}"
        )


@dataclass(frozen=True)
class Contained:
    """Curiosity's run folder inside Decouple's, as it grows."""

    config: Config
    folder: RunFolder

    @staticmethod
    def find(outer: RunFolder, config: Config) -> Contained | None:
        """What the runs of `config` contain; a longer training of theirs contains other runs."""
        if config.method != OUTER or not RunFolder(outer.contained).config.is_file():
            return None
        folder, inner = RunFolder.open(outer.contained)
        return Contained(inner, folder) if is_contained(inner, config) else None

    @staticmethod
    def go_on(
        outer: RunFolder, config: Config, position: Position | None, warn: Callable[[str], None]
    ) -> Contained | None:
        """What the runs of `config` contain, if it can go on from `position`, or from the start where that is None.

        If it cannot, the outer runs go on without it: nothing is wrong with them.
        """
        inside, begun = Contained.find(outer, config), RunFolder(outer.contained)
        if config.method != OUTER or not begun.config.is_file():
            return None
        if begun.result.is_file() and (inside is None or position is None):
            return None  # somebody's finished runs
        why = None if position is None else _why_not(inside, position)
        if why is not None:
            warn(f"{begun.path} stays as it is, {why}; the run goes on without it")
        return inside if why is None else None

    @staticmethod
    def begin(outer: RunFolder, outer_config: Config, config: Config) -> Contained:
        require(is_contained(config, outer_config), "contained", config.method, "what training the other trains too")
        folder = RunFolder(outer.contained)
        with naming(folder.path, "created"):
            folder.path.mkdir(exist_ok=True)
        folder.write_config(config)
        return Contained(config, folder)

    def note(self, loop: Loop, clock: Clock) -> None:
        """The outer runs are being judged: judge their explorers too, and write it down."""
        judged = loop.judge(clock.evaluations, self.config.eval_episodes, ROLE)
        found = measure_judged(_alone(loop.program), _explorer_of(loop.state), judged, clock.step)
        betas, seeds = zip(*self.config.runs, strict=True)
        self.folder.append_curve(rows(found, clock.step, list(betas), list(seeds)))

    def finish(self, loop: Loop, clock: Clock, made_by: Mapping[str, Any]) -> None:
        write_agents(self.folder, self.config, loop, clock.step, ROLE)
        self.folder.write_visits(np.asarray(loop.state.totals.visits))
        stored = loop.store(clock.step)
        position = Position(clock.step, clock.evaluations, *self.folder.curve_head)
        with naming(self.folder.checkpoints, "written"):
            write_checkpoint(self.folder.checkpoints, _stored_explorer(stored.tree), position, 1, stored.extra)
        # No seconds: they are the outer runs'.
        self.folder.write_timing({"computed_with": OUTER, **made_by})
        self.folder.write_result(summarise_runs(self.config, self.folder.read_curve()))


def _alone(program: Program) -> Program:
    """Curiosity's program, as far as measuring asks."""
    runs = program.budget.shape[0]
    return dataclasses.replace(program, policies=stack_runs([make_policies(INNER, 1.0, 1.0)] * runs))


def _explorer_of(state: RunState) -> RunState:
    """The state of Curiosity's runs: that of Decouple's without the task learner and what was noted of it."""
    place = ROLES[OUTER].index(ROLE)

    def explorer(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf[:, place : place + 1], tree)

    window = state.window._replace(loss=explorer(state.window.loss), actor_loss=explorer(state.window.actor_loss))
    return state._replace(learners=explorer(state.learners), window=window)


def _stored_explorer(tree: Any) -> Any:
    if isinstance(tree, HostRuns):
        return tree._replace(runs=_explorer_of(tree.runs))
    return _explorer_of(tree)


def _why_not(inside: Contained | None, position: Position) -> str | None:
    """Why runs that are at `position` cannot take it along; None if they can."""
    if inside is None:
        return "for it is contained in a training of other settings"
    if position.contained_bytes is None:
        return "for the run went on without it since"
    if head_sha256(inside.folder.curve, position.contained_bytes) != position.contained_sha256:
        return f"for its curve.csv is missing, truncated or altered before step {position.step}"
    return None


def take_out(outer: RunFolder, config: Config, to: Path) -> bool:
    """Move the finished run folder of `config` out of the one that contains it; False where there is none."""
    inner = RunFolder(outer.contained)
    if not inner.result.is_file() or RunFolder.open(inner.path)[1].to_json() != config.to_json():
        return False
    with naming(to, "created"):
        if to.is_dir():
            to.rmdir()  # only if it is empty
        _move(inner.path, to)
    return True


def _move(folder: Path, to: Path) -> None:
    """Whole or not at all, also from another disk."""
    try:
        folder.rename(to)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        beside = to.with_name(f"{to.name}.copying")
        shutil.rmtree(beside, ignore_errors=True)  # of one that was killed
        shutil.copytree(folder, beside)
        beside.rename(to)
        shutil.rmtree(folder)

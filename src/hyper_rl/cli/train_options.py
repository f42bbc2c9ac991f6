"""The options of `hyper-rl train`, and how they become a full configuration.

Options left out take the preset's value, or the task's; `resolve` writes every number down.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.bonuses.icm import ICM
from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.bonuses.rnd import RND
from hyper_rl.config import Config
from hyper_rl.envs.gym_make import import_registering
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError, require, require_choice, require_count
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.explorer_reward import BonusScale, RewardScale
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.methods.policies import METHODS
from hyper_rl.own_parts import module_for_task, require_known
from hyper_rl.presets import PRESETS, find_preset
from hyper_rl.report.writers import NAMES as WRITERS
from hyper_rl.room_options import write_out_room
from hyper_rl.settings import Settings, choose_task, fitting_bonus, fitting_learner

LEARNER_GROUPS = ("td3", "sac", "dqn", "tabular_q")
BONUS_GROUPS = ("disagreement", "rnd", "icm", "counts")
GROUPS = (*LEARNER_GROUPS, *BONUS_GROUPS, "lesson", "room")


@dataclass(frozen=True)
class TrainOptions:
    """Train K seeds at every beta as one program."""

    task: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")] = None
    """Task to train on (see `hyper-rl tasks`), or any Gymnasium id; --env.KEY VALUE sets its keyword arguments."""
    method: str = "hyper"
    """exploit, curiosity, decouple, hyper or lesson."""
    learner: str | None = None
    """td3, sac, dqn, tabular_q, or one that --env-module adds; default: what fits the task."""
    bonus: str | None = None
    """disagreement, rnd, icm, counts, or one that --env-module adds; default: what fits the learner."""
    beta: tuple[float, ...] = (1.0,)
    """Curiosity coefficient; several values are trained side by side."""
    steps: int | None = None
    """Environment steps of each run; default: the task's."""
    seeds: int = 1
    """How many seeds to train side by side."""
    seed: int = 0
    """The first seed."""
    warmup: int | None = None
    """Steps with uniform actions before learning begins, below --steps; default: the preset's, 0 for tables."""
    eval_every: int = 5_000
    """Steps between evaluations."""
    eval_episodes: int = 10
    """Episodes of one evaluation."""
    preset: str = "robust"
    """paper (faithful), robust (flat in beta) or minigrid (the discrete experiments)."""
    out: Path | None = None
    """Run folder to create; default runs/TASK-METHOD-PRESET."""
    resume: Path | None = None
    """Continue this run folder; no other settings are needed."""
    extend_steps: int | None = None
    """With --resume: train on up to this many steps; p stays where its schedule ended."""
    horizon: int | None = None
    """Episode limit H; default: the task's."""
    p_start: float | None = None
    """Truncation probability at the first step; default 1 - gamma."""
    p_end: str | None = None
    """Truncation probability at the last step, a number or 1/H; default: preset's (tables: 1/H), at most p_start."""
    lengths: Literal["bounded", "plain"] = "bounded"
    """Distribution of the repositioning length."""
    bonus_scale: BonusScale | None = None
    """What the bonus is divided by; default: the preset's."""
    reward_scale: RewardScale | None = None
    """What the explorer's whole reward is divided by; default: the preset's."""
    capacity: int | None = None
    """Transitions the replay of one run holds; default: all of them, at most a million, of images 100,000."""
    train_every: int | None = None
    """Environment steps between trainings; default: the preset's."""
    gradient_steps: int = 1
    """Updates of one training."""
    # For the parser a plain flag with its negation; None: neither was given.
    normalise_observations: Annotated[bool | None, tyro.conf.arg(constructor=bool)] = None
    """Deep learners see vectors in units of their running deviation; default: the preset's, never in mazes."""
    backend: str | None = None
    """jax or mujoco: the compiled task or the real environment; default: jax where there is one."""
    env_module: str | None = None
    """Module to import first; it registers the Gymnasium id, or learners and bonuses of your own."""
    env_workers: int = 0
    """Processes for slow environments; 0: in this one. The numbers are the same either way."""
    success: str | None = None
    """What solves a Gymnasium task: info (its info says so), terminated, or reward (above 0); default info."""
    log: tuple[str, ...] = ()
    """Also write the curve to tensorboard and/or wandb."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    keep: int = 2
    """Checkpoints kept."""
    json: bool = False
    """Print the result as one JSON object."""
    td3: TD3 = field(default_factory=lambda: find_preset("robust").learners["td3"])
    sac: SAC = field(default_factory=lambda: find_preset("robust").learners["sac"])
    dqn: DQN = field(default_factory=lambda: find_preset("robust").learners["dqn"])
    tabular_q: TabularQ = field(default_factory=TabularQ)
    disagreement: Disagreement = field(default_factory=lambda: find_preset("robust").bonuses["disagreement"])
    rnd: RND = field(default_factory=lambda: find_preset("robust").bonuses["rnd"])
    icm: ICM = field(default_factory=lambda: find_preset("robust").bonuses["icm"])
    counts: Counts = field(default_factory=Counts)
    lesson: LessonOptions = field(default_factory=LessonOptions)
    room: Room = field(default_factory=Room)
    env: Annotated[Mapping[str, Any], tyro.conf.Suppress] = field(default_factory=dict)
    """Keyword arguments of a Gymnasium environment, taken out of the command line beforehand."""


def default_options(preset: str) -> TrainOptions:
    """The options as `--help` should show them under this preset."""
    require_choice("preset", preset, PRESETS)
    chosen = find_preset(preset)
    groups = {name: chosen.learners[name] for name in LEARNER_GROUPS}
    groups |= {name: chosen.bonuses[name] for name in BONUS_GROUPS}
    return TrainOptions(preset=preset, **groups)


def check_saving(options: TrainOptions) -> None:
    require(options.checkpoint_seconds > 0, "checkpoint_seconds", options.checkpoint_seconds, "a number > 0")
    require_count("keep", options.keep)
    require_count("env_workers", options.env_workers, low=0)
    for name in options.log:
        require_choice("log", name, WRITERS)


def resolve(options: TrainOptions) -> Config:
    """Every number written out, every group of options checked to be one that is used."""
    if options.task is None:
        raise UserError("task: missing; name one (see: hyper-rl tasks) or continue a run with --resume DIR")
    # Names first: a misspelt method should not have to wait for an environment to be made.
    require_choice("method", options.method, METHODS)
    require_choice("preset", options.preset, PRESETS)
    if options.env_module is not None:  # it may add learners and bonuses, which have to be known by name
        import_registering(options.env_module)
    if options.learner is not None:
        require_known("learner", options.learner, LEARNERS)
    if options.bonus is not None:
        require_known("bonus", options.bonus, BONUSES)
        if options.method == "exploit":
            raise UserError(
                f"bonus: got {options.bonus!r}, must be left out with method 'exploit', which has no explorer"
            )
    require_count("seeds", options.seeds)
    choice = choose_task(
        options.task,
        backend=options.backend,
        options=write_out_room(options.task, options.backend, options.env, room=options.room),
        horizon=options.horizon,
        env_module=module_for_task(options.task, options.env_module),
        success=options.success,
    )
    learner = options.learner or fitting_learner(choice)
    bonus = "none" if options.method == "exploit" else options.bonus or fitting_bonus(learner)
    _refuse_unused(options, learner, bonus, options.task)
    settings = Settings(
        choice=choice,
        # The parser knows the options of the package's own parts only; others are as their class sets them.
        learner=getattr(options, learner) if learner in LEARNER_GROUPS else LEARNERS[learner](),
        bonus=None if bonus == "none" else getattr(options, bonus) if bonus in BONUS_GROUPS else BONUSES[bonus](),
        method=options.method,
        preset=options.preset,
        betas=options.beta,
        seeds=tuple(range(options.seed, options.seed + options.seeds)),
        steps=options.steps,
        warmup=options.warmup,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        p_start=options.p_start,
        p_end=options.p_end,
        lengths=options.lengths,
        bonus_scale=options.bonus_scale,
        reward_scale=options.reward_scale,
        capacity=options.capacity,
        normalise_observations=options.normalise_observations,
        train_every=options.train_every,
        gradient_steps=options.gradient_steps,
        lesson=options.lesson,
    )
    return settings.config()


def _refuse_unused(options: TrainOptions, learner: str, bonus: str, task: str) -> None:
    """An option of a part that takes no share in the run would be ignored: say so instead."""
    defaults = default_options(options.preset)
    for group in GROUPS:
        given, default = getattr(options, group), getattr(defaults, group)
        if group in (learner, bonus, options.method) or (group == "room" and task == "Room") or given == default:
            continue
        for f in dataclasses.fields(given):
            if getattr(given, f.name) != getattr(default, f.name):
                raise UserError(
                    f"{group}.{f.name}: set to {getattr(given, f.name)!r}, but {group} takes no part in this run "
                    f"(task {task}, learner {learner}, bonus {bonus})"
                )

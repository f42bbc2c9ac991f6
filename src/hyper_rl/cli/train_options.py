"""The options of `hyper-rl train`, and how they become a full configuration.

Options left out take the preset's value, or the task's; `resolve` writes every number down.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import tyro

from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.config import Config, default_horizon, options_of, suggest_capacity
from hyper_rl.envs.registry import find_task
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError, require, require_choice, require_count, require_probability
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.explorer_reward import BonusScale, RewardScale
from hyper_rl.methods.policies import METHODS
from hyper_rl.presets import PRESETS, find_preset
from hyper_rl.types import precision

DEEP_WARMUP = 25_000
DEEP_P_END = 0.001


@dataclass(frozen=True)
class TrainOptions:
    """Train K seeds at every beta as one program."""

    task: tyro.conf.Positional[str | None] = None
    """Task to train on; see `hyper-rl tasks`."""
    method: str = "hyper"
    """exploit, curiosity, decouple or hyper."""
    learner: str | None = None
    """td3 or tabular_q; default: what fits the task."""
    bonus: str | None = None
    """disagreement or counts; default: what fits the learner."""
    beta: tuple[float, ...] = (1.0,)
    """Curiosity coefficient; several values are trained side by side."""
    steps: int | None = None
    """Environment steps of each run; default: the task's."""
    seeds: int = 1
    """How many seeds to train side by side."""
    seed: int = 0
    """The first seed."""
    warmup: int | None = None
    """Steps with uniform actions before learning begins; default 25,000 for td3, 0 for tables."""
    eval_every: int = 5_000
    """Steps between evaluations."""
    eval_episodes: int = 10
    """Episodes of one evaluation."""
    preset: str = "robust"
    """paper (faithful) or robust (flat in beta)."""
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
    """Truncation probability at the last step, a number or 1/H; default 0.001 for td3, 1/H for tables."""
    lengths: Literal["bounded", "plain"] = "bounded"
    """Distribution of the repositioning length."""
    bonus_scale: BonusScale | None = None
    """What the bonus is divided by; default: the preset's."""
    reward_scale: RewardScale | None = None
    """What the explorer's whole reward is divided by; default: the preset's."""
    capacity: int | None = None
    """Transitions the replay of one run holds; default: all of them, at most a million."""
    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    keep: int = 2
    """Checkpoints kept."""
    json: bool = False
    """Print the result as one JSON object."""
    td3: TD3 = field(default_factory=lambda: find_preset("robust").td3)
    tabular_q: TabularQ = field(default_factory=TabularQ)
    disagreement: Disagreement = field(default_factory=lambda: find_preset("robust").disagreement)
    room: Room = field(default_factory=Room)


def default_options(preset: str) -> TrainOptions:
    """The options as `--help` should show them under this preset."""
    require_choice("preset", preset, PRESETS)
    chosen = find_preset(preset)
    return TrainOptions(preset=preset, td3=chosen.td3, disagreement=chosen.disagreement)


def check_saving(options: TrainOptions) -> None:
    require(options.checkpoint_seconds > 0, "checkpoint_seconds", options.checkpoint_seconds, "a number > 0")
    require_count("keep", options.keep)


def resolve(options: TrainOptions) -> Config:
    """Every number written out, every group of options checked to be one that is used."""
    if options.task is None:
        raise UserError("task: missing; name one (see: hyper-rl tasks) or continue a run with --resume DIR")
    entry = find_task(options.task)
    require_choice("method", options.method, METHODS)
    learner = options.learner or entry.learner
    require_choice("learner", learner, LEARNERS)
    bonus = options.bonus or {"td3": "disagreement", "tabular_q": "counts"}[learner]
    require_choice("bonus", bonus, BONUSES)
    if options.method == "exploit":
        if options.bonus is not None:
            raise UserError(f"bonus: got {bonus!r}, must be left out with method 'exploit', which has no explorer")
        bonus = "none"
    deep = learner == "td3"
    preset = find_preset(options.preset, learner)
    _refuse_unused(options, learner, bonus, options.task)

    task_options: dict[str, Any] = {}
    if options.task == "Room":
        task_options = options_of(options.room)
    if options.horizon is not None:
        require_count("horizon", options.horizon)
        task_options["horizon"] = options.horizon
    horizon = default_horizon(options.task, task_options)
    chosen: eqx.Module = options.td3 if deep else options.tabular_q
    p_start = options.p_start if options.p_start is not None else 1 - chosen.gamma  # type: ignore[attr-defined]
    p_end = _parse_p_end(options.p_end, horizon, DEEP_P_END if deep else 1 / horizon)
    require_probability("p_start", p_start)
    require_probability("p_end", p_end)
    steps = options.steps if options.steps is not None else entry.steps
    require_count("steps", steps)
    require_count("seeds", options.seeds)
    warmup = options.warmup if options.warmup is not None else (DEEP_WARMUP if deep else 0)
    needs_replay = (options.td3.batch_size if deep else options.tabular_q.replay) > 0
    capacity = options.capacity if options.capacity is not None else suggest_capacity(steps) if needs_replay else 1
    config = Config(
        task=options.task,
        method=options.method,
        learner=learner,
        bonus=bonus,
        preset=options.preset,
        betas=tuple(float(beta) for beta in options.beta),
        seeds=tuple(range(options.seed, options.seed + options.seeds)),
        steps=steps,
        schedule_steps=steps,
        warmup=warmup,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        p_start=float(p_start),
        p_end=float(p_end),
        lengths=options.lengths,
        bonus_scale=options.bonus_scale or preset.bonus_scale,
        reward_scale=options.reward_scale or preset.reward_scale,
        capacity=capacity,
        task_options=task_options,
        learner_options=options_of(chosen),
        bonus_options=options_of(options.disagreement) if bonus == "disagreement" else {},
        precision=precision(),
    )
    config.check()
    return config


def _parse_p_end(text: str | None, horizon: int, default: float) -> float:
    if text is None:
        return default
    if text.replace(" ", "").upper() == "1/H":
        return 1 / horizon
    try:
        return float(text)
    except ValueError:
        raise UserError(f"p_end: got {text!r}, must be a probability in (0, 1] or 1/H") from None


def _refuse_unused(options: TrainOptions, learner: str, bonus: str, task: str) -> None:
    """An option of a part that takes no share in the run would be ignored: say so instead."""
    defaults = default_options(options.preset)
    used = {"td3": learner == "td3", "tabular_q": learner == "tabular_q", "disagreement": bonus == "disagreement"}
    used["room"] = task == "Room"
    for group, is_used in used.items():
        given, default = getattr(options, group), getattr(defaults, group)
        if is_used or given == default:
            continue
        for f in dataclasses.fields(given):
            if getattr(given, f.name) != getattr(default, f.name):
                raise UserError(
                    f"{group}.{f.name}: set to {getattr(given, f.name)!r}, but {group} takes no part in this run "
                    f"(task {task}, learner {learner}, bonus {bonus})"
                )

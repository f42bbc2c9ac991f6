"""Settings repeated beside `--resume DIR`: what they would make of the folder's own configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hyper_rl.cli.env_arguments import split_env_arguments
from hyper_rl.cli.train_options import BONUS_GROUPS, GROUPS, LEARNER_GROUPS, TrainOptions, default_options
from hyper_rl.config import Config

NOT_SETTINGS = {
    "resume", "extend_steps", "checkpoint_seconds", "keep", "json", "out", "env_workers", "env_module", "log",
}  # fmt: skip


def given_options(options: TrainOptions, arguments: Sequence[str]) -> list[str]:
    """Names of the settings that stand in the command line, `group.field` for those of a part."""
    rest, env = split_env_arguments(arguments)
    names = [_field(word[2:].split("=")[0]) for word in rest if word.startswith("--")]
    if env:
        names.append("env")
    if options.task is not None:
        names.append("task")
    return [name for name in names if name not in NOT_SETTINGS]


def _field(flag: str) -> str:
    """`td3.no-layer-norm` and `td3.layer-norm` are the two flags of the field `td3.layer_norm`."""
    group, dot, last = flag.replace("-", "_").rpartition(".")
    return f"{group}{dot}{last.removeprefix('no_')}"


def repeat_options(config: Config, options: TrainOptions, given: Sequence[str]) -> TrainOptions:
    """The options that would make `config`, with the given ones in their place."""
    base = options_of_config(config)
    changes: dict[str, Any] = {}
    for name in given:
        group, _, field = name.partition(".")
        if group in GROUPS and field:
            part = changes.get(group, getattr(base, group))
            changes[group] = dataclasses.replace(part, **{field: getattr(getattr(options, group), field)})
        elif hasattr(options, name):
            changes[name] = getattr(options, name)
    return dataclasses.replace(base, **changes)


def options_of_config(config: Config) -> TrainOptions:
    """Options that resolve to `config` again."""
    parts: dict[str, Any] = {}
    if config.learner in LEARNER_GROUPS:
        parts[config.learner] = _module(config.learner, config.learner_options)
    if config.bonus in BONUS_GROUPS:
        parts[config.bonus] = _module(config.bonus, config.bonus_options)
    if config.method == "lesson":
        parts["lesson"] = _module("lesson", config.method_options)
    host = config.host
    if config.task == "Room" and host is None:
        parts["room"] = _module("room", config.task_options)
    if host is not None:
        parts |= {"env": config.task_options, "env_module": host["module"], "success": host["success"]}
        parts |= {"backend": "mujoco", "horizon": host["horizon"]}
    return dataclasses.replace(
        default_options(config.preset),
        task=config.task,
        method=config.method,
        learner=config.learner,
        bonus=None if config.bonus == "none" else config.bonus,
        beta=config.betas,
        steps=config.steps,
        seeds=len(config.seeds),
        seed=config.seeds[0],
        warmup=config.warmup,
        eval_every=config.eval_every,
        eval_episodes=config.eval_episodes,
        preset=config.preset,
        p_start=config.p_start,
        p_end=repr(config.p_end),
        lengths=config.lengths,  # type: ignore[arg-type]
        bonus_scale=config.bonus_scale,  # type: ignore[arg-type]
        reward_scale=config.reward_scale,  # type: ignore[arg-type]
        capacity=config.capacity,
        train_every=config.train_every,
        gradient_steps=config.gradient_steps,
        normalise_observations=config.normalise_observations,
        **{"horizon": config.task_options.get("horizon"), **parts},
    )


def _module(name: str, values: Any) -> Any:
    default = getattr(TrainOptions(), name)
    return type(default)(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})

"""`hyper-rl train`."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hyper_rl.cli.env_arguments import split_env_arguments
from hyper_rl.cli.parsing import read_options
from hyper_rl.cli.tables import print_result
from hyper_rl.cli.train_options import TrainOptions, check_saving, default_options, resolve
from hyper_rl.cli.train_repeat import given_options, repeat_options
from hyper_rl.config import Config, first_difference, make_task, require_learning
from hyper_rl.envs.env_trial import reports_success
from hyper_rl.errors import UserError, require_choice
from hyper_rl.own_parts import import_stored
from hyper_rl.presets import PRESETS
from hyper_rl.training.loops import env_source
from hyper_rl.training.progress import Progress, show_progress
from hyper_rl.training.run_folder import RunFolder
from hyper_rl.training.trainer import Saving, resume, train


def run_train(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    check_saving(options)
    saving = Saving(options.checkpoint_seconds, options.keep, options.log)
    if options.resume is not None:
        folder = options.resume
        config = check_resume(options, arguments)
        total = options.extend_steps or config.steps
        result = resume(
            folder,
            extend_steps=options.extend_steps,
            saving=saving,
            open_progress=progress_for(config, total),
            env_workers=options.env_workers,
            env_module=options.env_module,
        )
    else:
        if options.extend_steps is not None:
            raise UserError("extend_steps: only continues a run; give --resume DIR with it")
        config = resolve(options)
        require_learning(config)
        folder = options.out or Path("runs") / f"{config.task.replace('/', '-')}-{config.method}-{config.preset}"
        result = train(
            config,
            folder,
            saving=saving,
            open_progress=progress_for(config, config.steps),
            env_workers=options.env_workers,
        )
    if options.json:
        print(json.dumps({**result, "folder": str(folder)}))
    else:
        task = make_task(config.task, config.task_options, config.host)
        print_result(result, folder, has_cells=task.spec.cells > 1)
        if not any(run["success"] for run in result["runs"]) and _mentions_no_success(config):
            print("note: `info` of this environment mentions no success in a random episode; --success can say what is")
    return 0


def _mentions_no_success(config: Config) -> bool:
    """Only a hint: one that mentions a success when there is one, and never else, cannot be told apart."""
    return config.host is not None and not reports_success(env_source(config))


def parse(arguments: Sequence[str]) -> TrainOptions:
    """The preset decides the defaults that `--help` shows, so it is looked up first."""
    rest, env = split_env_arguments(arguments)
    preset = "robust"
    for word, following in itertools.pairwise([*rest, "--"]):
        flag, equals, text = word.partition("=")
        if flag == "--preset" and (equals or not following.startswith("--")):  # if not, its value is missing
            preset = text if equals else following
    require_choice("preset", preset, PRESETS)
    options = read_options(TrainOptions, rest, "hyper-rl train", default_options(preset))
    return dataclasses.replace(options, env=env)


def check_resume(options: TrainOptions, arguments: Sequence[str]) -> Config:
    """`--resume DIR` stands alone; settings repeated beside it must be those of the folder."""
    assert options.resume is not None
    _, config = RunFolder.open(options.resume)
    import_stored(config, options.env_module)
    if options.out is not None and options.out != options.resume:
        raise UserError(f"out: got {str(options.out)!r}, must be left out with --resume")
    given = given_options(options, arguments)
    if not given:
        return config
    for name in ("task", "method", "preset"):  # these decide what the rest means, so they are compared first
        if name in given and getattr(options, name) != getattr(config, name):
            raise _other_settings(name, repr(getattr(options, name)), repr(getattr(config, name)), options.resume)
    differs = first_difference(resolve(repeat_options(config, options, given)), config)
    if differs is not None:
        raise _other_settings(*differs, options.resume)
    return config


def _other_settings(name: str, mine: str, theirs: str, folder: Path) -> UserError:
    return UserError(
        f"{name}: got {mine}, but {folder} was made with {theirs}; "
        "resume with --resume DIR alone, or start a new folder"
    )


def progress_for(config: Config, total: int) -> Any:
    def open_progress(first: int) -> AbstractContextManager[Progress]:
        runs = len(config.runs)
        label = f"{config.method} on {config.task}" + (f" ({runs} runs)" if runs > 1 else "")
        return show_progress(label, total, first, sys.stderr)

    return open_progress

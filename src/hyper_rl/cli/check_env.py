"""`hyper-rl check-env ID`: is this environment fit to train on, and what should one know of it?"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import tyro

from hyper_rl.cli.env_arguments import split_env_arguments, write_env_arguments
from hyper_rl.cli.parsing import read_options
from hyper_rl.envs.base import TaskSpec
from hyper_rl.envs.check_env import check_environment
from hyper_rl.envs.finding import Finding
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.registry import TASKS
from hyper_rl.errors import UserError
from hyper_rl.learners.registry import LEARNERS

SHOWN_DIMENSIONS = 12
COLOURS = {"ok": "green", "note": "yellow", "problem": "bold red"}


@dataclass(frozen=True)
class CheckEnvOptions:
    """Look at a Gymnasium environment before training on it; --env.KEY VALUE sets its keyword arguments."""

    env_id: tyro.conf.Positional[str]
    """Gymnasium id, or one of the names of `hyper-rl tasks`."""
    env_module: str | None = None
    """Module to import first; it registers the id."""
    horizon: int | None = None
    """Episode limit H where the task states none, or a shorter one."""
    steps: int = 2_000
    """Steps to try with random actions, and as many with held ones."""
    success: Literal["info", "terminated", "reward"] = "info"
    """What counts as success: info["success"], ending by itself, or reward > 0."""
    json: bool = False
    """Print one JSON object."""


def run_check_env(words: Sequence[str]) -> int:
    """0, or 1 when something makes training impossible."""
    rest, kwargs = split_env_arguments(words)
    options = read_options(CheckEnvOptions, rest, "hyper-rl check-env")
    source = EnvSource(
        _gymnasium_id(options.env_id), kwargs, options.env_module, horizon=options.horizon, success=options.success
    )
    findings, spec = check_environment(source, options.steps)
    if spec is not None:
        findings.append(_learner(spec.task))
    trainable = all(finding.status != "problem" for finding in findings)
    if options.json:
        document = {"env": source.env_id, "trainable": trainable, "findings": [asdict(f) for f in findings]}
        print(json.dumps(document))
    else:
        _print_findings(source.env_id, findings, shlex.join(_train_words(options, kwargs)) if trainable else None)
    return 0 if trainable else 1


def _train_words(options: CheckEnvOptions, kwargs: Mapping[str, Any]) -> list[str]:
    """The command that trains on what was looked at: everything that was said of the environment is said again."""
    ours = {entry.gym_id: name for name, entry in TASKS.items() if entry.gym_id is not None}
    name = ours.get(options.env_id, options.env_id)
    said: list[str] = []
    if options.env_module is not None:
        said += ["--env-module", options.env_module]
    if options.success != "info":
        said += ["--success", options.success]
    said += write_env_arguments(kwargs)
    entry = TASKS.get(name)
    # By its plain name alone a task with a JAX version would run as that, which is not what was looked at.
    if entry is not None and entry.make is not None and (said or name != options.env_id):
        said = ["--backend", entry.backends[-1], *said]
    horizon = [] if options.horizon is None else ["--horizon", str(options.horizon)]
    return ["hyper-rl", "train", name, *said, *horizon]


def _gymnasium_id(name: str) -> str:
    entry = TASKS.get(name)
    if entry is None:
        return name
    if entry.gym_id is None:
        raise UserError(f"env: got {name!r}, which is a task of this package that is no Gymnasium environment")
    return entry.gym_id


def _learner(task: TaskSpec) -> Finding:
    fitting = []
    for name, learner in LEARNERS.items():
        try:
            learner().check(task)
        except UserError:
            continue
        fitting.append(name)
    if not fitting:
        why = "td3 and sac need vectors for both, and images go with finitely many actions alone"
        return Finding("learner", "problem", f"none fits these spaces; {why}", {"fits": []})
    return Finding("learner", "ok", f"{' or '.join(fitting)} fits these spaces", {"fits": fitting})


def _print_findings(env_id: str, findings: list[Finding], ready: str | None) -> None:
    """`ready`: the command to train with, where that is possible."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column()
    for finding in findings:
        table.add_row(Text(finding.status, COLOURS[finding.status]), Text(finding.topic), Text(finding.says))
    console.print(env_id, highlight=False, markup=False)
    console.print(table)
    for finding in findings:
        if "dimensions" in finding.data:
            _print_dimensions(console, finding.data["dimensions"])
    if ready is not None:
        console.print(f"Ready: {ready}", highlight=False, markup=False, soft_wrap=True)
    else:
        console.print("Cannot be trained on as it is: see the lines marked problem.", highlight=False)


def _print_dimensions(console: Any, scales: list[dict[str, Any]]) -> None:
    """Each dimension of the observations; of many, those that spread least and most."""
    from rich.table import Table

    names, half = ("low", "mean", "high", "deviation"), SHOWN_DIMENSIONS // 2
    shown, some = list(range(len(scales))), ""
    if len(scales) > SHOWN_DIMENSIONS:
        order = sorted(shown, key=lambda index: scales[index]["deviation"])
        shown, some = sorted([*order[:half], *order[-half:]]), f", {half} narrowest and {half} widest of {len(scales)}"
    table = Table(box=None)
    for name in ("dimension", *names):
        table.add_column(name, justify="right")
    for index in shown:
        table.add_row(str(index), *(f"{scales[index][name]:.3g}" for name in names))
    console.print(f"Observations by dimension{some}:", highlight=False)
    console.print(table)

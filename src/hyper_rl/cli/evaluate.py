"""`hyper-rl evaluate RUN`: judge the saved agents of a run folder, or one agent alone, on fresh episodes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from hyper_rl.agent_store import read_saved, stored_config
from hyper_rl.cli.tables import show
from hyper_rl.config import LARGEST_SEED, Config, require_named_task
from hyper_rl.envs.gym_make import import_registering
from hyper_rl.envs.host_task import same_spaces
from hyper_rl.envs.registry import has_success
from hyper_rl.errors import UserError, require, require_count
from hyper_rl.own_parts import import_stored, module_for_task
from hyper_rl.settings import TaskChoice, choose_task
from hyper_rl.threefry import make_key
from hyper_rl.training.agent_file import META_FILE, Agent, read_agent
from hyper_rl.training.evaluation import Judgement
from hyper_rl.training.judging import judge_agents
from hyper_rl.training.run_folder import RunFolder


@dataclass(frozen=True)
class EvaluateOptions:
    """Judge the agents of a run folder, or one agent alone, on fresh episodes."""

    folder: tyro.conf.Positional[Path]
    """Run folder, or the folder of one agent (agent.json and policy.safetensors)."""
    episodes: int = 100
    """Episodes for each agent."""
    run: int | None = None
    """Only this run of the folder; default: all of them."""
    seed: int = 1_000_000
    """Seed of the episodes; far from those of training."""
    backend: str | None = None
    """jax or mujoco: judge on the other version of the task; default: the one it was trained on."""
    env_module: str | None = None
    """Module to import first; default: the one the run was made with."""
    env_workers: int = 0
    """Processes for slow environments; 0: in this one."""
    json: bool = False
    """Print one JSON object."""


def run_evaluate(options: EvaluateOptions) -> int:
    require_count("episodes", options.episodes)
    require(0 <= options.seed <= LARGEST_SEED, "seed", options.seed, f"between 0 and {LARGEST_SEED}")
    require_count("env_workers", options.env_workers, low=0)
    config, wanted, agents = find_agents(options.folder, options.run, options.env_module)
    choice = where_to_judge(config, options.backend, options.env_module)
    check_fit(agents, choice)
    judged = judge_agents(agents, choice, make_key(options.seed), options.episodes, workers=options.env_workers)
    told = bool(judged.success.any()) or has_success(choice.name, choice.host)
    entries = [
        {"run": run, "beta": config.runs[run][0], "seed": config.runs[run][1], **_entry(judged, i, told=told)}
        for i, run in enumerate(wanted)
    ]
    document = {
        "task": config.task,
        "method": config.method,
        "backend": "jax" if choice.source is None else choice.entry.backends[-1],
        "episodes": options.episodes,
        "seed": options.seed,
        "runs": entries,
    }
    if options.json:
        print(json.dumps(document))
    else:
        _print_table(document)
    return 0


def find_agents(path: Path, run: int | None, module: str | None = None) -> tuple[Config, list[int], list[Agent]]:
    """What they were made with, which runs of the folder they are, and the agents themselves.

    `module`, or the one that the configuration names, is imported first: it may add the learner they are of.
    """
    if module is not None:
        import_registering(module)
    alone = (path / META_FILE).is_file()
    config = stored_config(path) if alone else RunFolder.open(path)[1]
    import_stored(config)
    total = len(config.runs)
    if run is not None:
        require(0 <= run < total, "run", run, f"between 0 and {total - 1}")
    wanted = list(range(total)) if run is None else [run]
    return config, wanted, [read_saved(path).agent] if alone else [_read(RunFolder(path), number) for number in wanted]


def _read(folder: RunFolder, run: int) -> Agent:
    if not folder.agent(run).is_dir():
        raise UserError(
            f"run: {folder.path} has no agent of run {run} yet; finish it with: hyper-rl train --resume {folder.path}"
        )
    return read_agent(folder.agent(run))


def where_to_judge(config: Config, backend: str | None, env_module: str | None) -> TaskChoice:
    """The task the agents were trained on, or the same task on another backend."""
    host = config.host
    require_named_task(config, "judge it in Python: hyper_rl.load(FOLDER, env=...).evaluate()")
    trained_on = "jax" if host is None else "mujoco"
    chosen = backend or trained_on
    same = (chosen == "jax") == (host is None)
    module = module_for_task(config.task, env_module)
    options = dict(config.task_options)
    horizon = host["horizon"] if host is not None else options.pop("horizon", None)
    choice = choose_task(
        config.task,
        backend=chosen,
        options=options,  # of the other version too, or it would be another task; one that it has not is refused
        horizon=horizon,
        env_module=module or (host["module"] if host is not None and same else None),
        success=host["success"] if host is not None and same else None,
    )
    return choice


def check_fit(agents: list[Agent], choice: TaskChoice) -> None:
    """A policy for other observations or actions would be judged on what it reads by mistake, or fail in the middle."""
    for agent in agents:
        if not same_spaces(choice.spec, agent.task.spec):
            there, own = (f"{spec.observation}, {spec.action}" for spec in (choice.spec, agent.task.spec))
            raise UserError(f"backend: {choice.name} has other spaces there ({there}) than the agent knows ({own})")


def _entry(judged: Judgement, index: int, *, told: bool) -> dict[str, float | None]:
    """`told`: the task reports successes, so that none of them is 0 and not nothing."""
    named = {
        "success": judged.success,
        "return": judged.total,
        "steps_to_goal": judged.steps_to_goal,
        "discounted_return": judged.discounted,
        "critic_estimate": judged.estimate,
    }
    numbers = {name: None if np.isnan(values[index]) else float(values[index]) for name, values in named.items()}
    return numbers if told else {**numbers, "success": None}


def _print_table(document: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{document['method']} on {document['task']}, {document['episodes']} episodes each")
    columns = ("run", "beta", "seed", "success", "return", "steps to goal", "discounted", "estimate")
    for name in columns:
        table.add_column(name, justify="right")
    for run in document["runs"]:
        numbers = ("success", "return", "steps_to_goal", "discounted_return", "critic_estimate")
        table.add_row(str(run["run"]), f"{run['beta']:g}", str(run["seed"]), *(show(run[name]) for name in numbers))
    Console().print(table)

"""An agent object on disk: an agent folder (`agent_file`) and, when it was saved whole, the files of a run folder.

A whole one is a run folder that has not finished, so `hyper-rl train --resume` can go on with it too. It then writes
checkpoints and `runs/0/agent`, and leaves what was saved at first as it was: so the newest checkpoint says where the
agent stands, and the policy is that of its step.

asked.json    what somebody has set of that which otherwise follows from the first budget
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from hyper_rl.agent_budget import Asked
from hyper_rl.config import Config, build_parts, check_precision, require_named_task
from hyper_rl.envs.given_env import other_spaces
from hyper_rl.envs.host_task import same_spaces
from hyper_rl.errors import UserError
from hyper_rl.methods.policies import make_policies
from hyper_rl.report.render.stored_learners import read_learners
from hyper_rl.settings import TaskChoice, choose_task
from hyper_rl.training.agent_file import META_FILE, Agent, read_agent, read_meta, write_agent
from hyper_rl.training.checkpoint import Position, list_checkpoints, read_newest, write_checkpoint
from hyper_rl.training.loop import Loop, Stored
from hyper_rl.training.run_folder import LOCK, RunFolder
from hyper_rl.training.session import Clock, Rows, owes_evaluation
from hyper_rl.types import take_run

ASKED_FILE = "asked.json"
OURS = re.compile(
    r"(agent|config|asked|result|timing)\.json|policy\.safetensors|(curve|visits)\.csv|\.[a-z]+\.[a-z]+\.writing"
    r"|checkpoint/(damaged-|\.writing-)?step-\d+(-\d+)*/(checkpoint\.json|state\.safetensors)"
    r"|runs/0/agent/(agent\.json|policy\.safetensors)"
)
"""What `save`, and `hyper-rl train --resume` after it, write into the folder of an agent."""


@dataclass(frozen=True)
class SavedAgent:
    """What was found in a folder."""

    folder: Path
    agent: Agent
    config: Config
    whole: bool
    step: int
    curve: Rows
    """Up to that step."""
    asked: Asked

    @property
    def horizon(self) -> int | None:
        return None if self.config.host is None else self.config.host["horizon"]

    @property
    def success(self) -> str | None:
        return None if self.config.host is None else self.config.host["success"]

    def fit(self, choice: TaskChoice) -> TaskChoice:
        """The environment must be of the kind the agent was trained on."""
        if not same_spaces(choice.spec, self.agent.task.spec):
            raise other_spaces("env", choice, self.config, self.agent.task.spec)
        return choice

    def require_kind(self, choice: TaskChoice) -> None:
        """Refuse an environment that would be ignored in training: a compiled task goes on as it is, and only there."""
        compiled, task = self.config.host is None, self.config.task
        kinds = ("a Gymnasium environment", "a compiled task")
        if compiled != (choice.source is None):
            mine, other = kinds[compiled], kinds[not compiled]
            raise UserError(f"env: {choice.name} is {other}, and the agent's {task} is {mine}; leave env out to go on")
        own = int(self.agent.task.horizon)
        if compiled and choice.horizon != own:
            raise UserError(
                f"env: {choice.name} ends its episodes after {choice.horizon} steps, the agent's {task} after {own}, "
                "and a compiled task goes on as it is; leave env out"
            )

    def needs(self, place: Path) -> bool:
        """Whether going on needs what lies there, so that it must be brought back before it is replaced."""
        return self.whole and place.resolve() == self.folder.resolve()

    def choose_task(self) -> TaskChoice:
        """The task of the configuration, made again by its name."""
        host = self.config.host
        require_named_task(self.config, "give it with load(..., env=...)")
        return choose_task(
            self.config.task,
            backend="jax" if host is None else "gymnasium",
            options=self.config.task_options,
            horizon=None if host is None else host["horizon"],
            env_module=None if host is None else host["module"],
            success=None if host is None else host["success"],
        )

    def require_whole(self) -> None:
        """Refuse to go on where that cannot be exact."""
        if not self.whole:
            raise UserError(f"{self.folder}: holds a policy alone; only an agent that was saved whole goes on")
        check_precision(self.config)

    def restore(self, loop: Loop) -> Clock:
        """Where it stands now: at the newest checkpoint that is whole."""
        folder = RunFolder(self.folder)
        loaded = read_newest(folder.checkpoints, loop.template, folder.curve, warnings.warn)
        if loaded is None:
            raise UserError(f"{self.folder}: holds no checkpoint")
        tree, extra, position = loaded
        if position.step > self.step:
            raise UserError(f"{self.folder}: was at step {self.step} and is at step {position.step} now; load it again")
        loop.restore(Stored(tree, extra), position.step)
        owes = owes_evaluation(self.config, folder, position)
        return Clock(position.step, position.evaluations, owes_evaluation=owes)


def moved_to(config: Config, choice: TaskChoice) -> Config:
    """`config` in the environments of `choice`, whose episode limit is H from now on; p keeps its numbers.

    What learners see stays as it was described at first, because the shapes of all that is stored follow from it.
    """
    old, new = config.host, choice.host
    if old is None or new is None:
        return config
    spec = {**old["spec"], "horizon": choice.horizon}
    host = {**new, "module": new["module"] or old["module"], "spec": spec}
    return dataclasses.replace(config, task=choice.name, task_options=dict(choice.options), host=host)


def write_saved(
    path: Path,
    config: Config,
    clock: Clock,
    curve: Rows,
    policy: Any,
    loop: Loop | None,
    asked: Asked,
    *,
    overwrite: bool,
) -> None:
    """Under a temporary name first: a folder with the final name is complete."""
    require_free("path", path, overwrite=overwrite)
    final = Path(os.path.abspath(path))
    temporary = final.with_name(f".{final.name}.writing-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        write_agent(temporary, config, 0, clock.step, policy)
        if loop is not None:
            _write_run(RunFolder(temporary), config, clock, curve, loop, asked)
        require_free("path", path, overwrite=overwrite)  # once more: writing a large replay takes a while
        _move(temporary, final)
    except (OSError, SafetensorError) as error:
        raise UserError(f"path: {path} cannot be written ({getattr(error, 'strerror', None) or error})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_run(folder: RunFolder, config: Config, clock: Clock, curve: Rows, loop: Loop, asked: Asked) -> None:
    folder.config.write_text(config.to_json())
    (folder.path / ASKED_FILE).write_text(json.dumps(dataclasses.asdict(asked), indent=2) + "\n")
    folder.start_curve()
    folder.append_curve(curve)
    position = Position(clock.step, clock.evaluations, *folder.curve_head)
    stored = loop.store(clock.step)
    write_checkpoint(folder.checkpoints, stored.tree, position, 1, stored.extra)


def _move(temporary: Path, final: Path) -> None:
    if not final.exists():
        temporary.rename(final)
        return
    old = final.with_name(f".{final.name}.replaced-{os.getpid()}")
    final.rename(old)
    try:
        temporary.rename(final)
    except OSError:
        old.rename(final)
        raise
    shutil.rmtree(old, ignore_errors=True)


def require_free(field: str, path: Path, *, overwrite: bool) -> None:
    """Refuse a path where an agent cannot be saved, or where something else than a saved agent would be lost."""
    require_place(field, path)
    if not os.path.lexists(path) or _is_empty_folder(path):
        return
    if not overwrite:
        raise UserError(f"{field}: {path} exists already; choose another, or give overwrite=True")
    if not is_saved_agent(path):
        raise UserError(f"{field}: {path} is not an agent that was saved, and is not replaced; choose another")
    RunFolder(path).remove_left_lock()
    foreign = first_foreign(path)
    if foreign == LOCK:
        raise UserError(f"{field}: {path} is being trained by another process; wait for it, or choose another")
    if foreign is not None:
        raise UserError(f"{field}: {path} also holds {foreign}, which would be lost; move it away, or choose another")


def require_place(field: str, path: Path) -> None:
    """Refuse a path that no folder can have."""
    there = next((parent for parent in Path(os.path.abspath(path)).parents if os.path.lexists(parent)), Path("/"))
    if not (there.is_dir() and os.access(there, os.W_OK)):
        why = "not writable" if there.is_dir() else "not a folder"
        raise UserError(f"{field}: {path} cannot be created ({there} is {why})")


def is_saved_agent(path: Path) -> bool:
    """A folder, not a link to one, whose agent.json is one of this package."""
    try:
        meta = json.loads((path / META_FILE).read_text())
    except (OSError, ValueError):
        return False
    ours = isinstance(meta, dict) and {"format_version", "task", "method", "learner", "step"} <= set(meta)
    return ours and not path.is_symlink()


def first_foreign(path: Path) -> str | None:
    """Something in the folder of an agent that this package has not written there."""
    for place, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in sorted(files + links):
            inside = (Path(place) / name).relative_to(path).as_posix()
            if not OURS.fullmatch(inside):
                return inside
    return None


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def read_saved(path: Path) -> SavedAgent:
    """What is in the folder, as it stands: the command may have trained on since it was saved."""
    agent = read_agent(path)
    folder = RunFolder(path)
    if not folder.config.is_file():
        return SavedAgent(path, agent, _config_of_policy(agent.meta), False, agent.meta["step"], [], Asked())
    config = Config.from_json(folder.config.read_text(), str(folder.config))
    newest = current_agent(path)
    if newest is None:
        agent = _agent_in_checkpoint(agent, folder, config)
    elif newest != path:
        agent = read_agent(newest)
    step = agent.meta["step"]
    try:
        columns = folder.read_curve()
        rows = [dict(zip(columns, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True)]
        curve = [row for row in rows if row["step"] <= step]
        asked = _read_asked(path, config, step)
    except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
        raise UserError(f"{path}: not readable ({error})") from None
    return SavedAgent(path, agent, config, True, step, curve, asked)


def stored_config(path: Path) -> Config:
    """What the agent was made with, as `read_saved` finds it, before any part of it is built."""
    file = RunFolder(path).config
    if file.is_file():
        return Config.from_json(file.read_text(), str(file))
    try:
        return _config_of_policy(read_meta(path))
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}: not an agent folder ({error})") from None


def current_agent(path: Path) -> Path | None:
    """Where the policy of the newest checkpoint lies: in `path` itself, or where `hyper-rl train --resume` left it.

    None: in the checkpoint alone, because the command was killed before it wrote an agent.
    """
    folder = RunFolder(path)
    steps = [name.removeprefix("step-") for name in (found.name for found in list_checkpoints(folder.checkpoints))]
    newest = max((int(step) for step in steps if step.isdigit()), default=None)
    if newest is None:
        return path
    return next((place for place in (path, folder.agent(0)) if _step_of(place) == newest), None)


def _step_of(agent: Path) -> int | None:
    try:
        return int(json.loads((agent / META_FILE).read_text())["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _agent_in_checkpoint(saved: Agent, folder: RunFolder, config: Config) -> Agent:
    """`saved` with the policy, and at the step, of the newest checkpoint that is whole."""
    check_precision(config)
    learners, step = read_learners(folder, config, 0)
    bounded = config.lengths == "bounded"
    judged = make_policies(config.method, config.p_start, config.p_end, bounded=bounded).judged
    policy = build_parts(config).learner.policy(take_run(learners, judged))
    return dataclasses.replace(saved, policy=policy, meta={**saved.meta, "step": step})


def _read_asked(path: Path, config: Config, step: int) -> Asked:
    file = path / ASKED_FILE
    if file.is_file():
        return Asked(**json.loads(file.read_text()))
    # Saved before there was such a file: what a first budget decides is taken as set, where it is still to come.
    return Asked() if step > 0 else Asked(config.warmup, config.capacity)


def _config_of_policy(meta: dict[str, Any]) -> Config:
    """Enough of a configuration to know the task: a policy alone does not go on learning."""
    return Config(
        task=meta["task"],
        method=meta["method"],
        learner=meta["learner"],
        bonus="none",
        preset=meta["preset"],
        betas=(meta["beta"],),
        seeds=(meta["seed"],),
        steps=max(meta["step"], 1),
        schedule_steps=max(meta["step"], 1),
        warmup=0,
        eval_every=1,
        eval_episodes=1,
        p_start=1.0,
        p_end=1.0,
        lengths="bounded",
        bonus_scale="none",
        reward_scale="none",
        capacity=1,
        task_options=meta["task_options"],
        learner_options=meta["learner_options"],
        host=meta["host"],
        normalise_observations=meta["normalise_observations"],
        precision=meta["precision"],
    )

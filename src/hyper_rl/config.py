"""A run folder's configuration: every number written out, nothing left to a default that may change.

`Config` is what `config.json` holds and what `build_program` turns into one program over `betas` x `seeds`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx

from hyper_rl.bonuses.base import Bonus
from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.envs.base import Box, Discrete, Task
from hyper_rl.envs.host_task import task_from_json
from hyper_rl.envs.registry import find_task
from hyper_rl.errors import (
    UserError,
    require,
    require_choice,
    require_count,
    require_finite,
    require_probability,
)
from hyper_rl.learners.base import Learner
from hyper_rl.learners.normalised import Normalised
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.methods.policies import METHODS, make_policies
from hyper_rl.observations import image_of
from hyper_rl.own_parts import require_known
from hyper_rl.plain_values import plain
from hyper_rl.presets import PRESETS
from hyper_rl.training.program import Program, Streams
from hyper_rl.types import precision, stack_runs

CONFIG_VERSION = 2
LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True)
class Config:
    """R = len(betas) x len(seeds) runs of one program, in that order."""

    task: str
    method: str
    learner: str
    bonus: str
    """'none' for exploit, which has no explorer."""
    preset: str
    betas: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: int
    schedule_steps: int
    """Steps over which p decays: the budget the runs were begun with, even when more steps are added later."""
    warmup: int
    eval_every: int
    eval_episodes: int
    p_start: float
    p_end: float
    lengths: str
    bonus_scale: str
    reward_scale: str
    capacity: int
    task_options: Mapping[str, Any] = field(default_factory=dict)
    learner_options: Mapping[str, Any] = field(default_factory=dict)
    bonus_options: Mapping[str, Any] = field(default_factory=dict)
    method_options: Mapping[str, Any] = field(default_factory=dict)
    """Of the method lesson; the others have none."""
    host: Mapping[str, Any] | None = None
    """For a Gymnasium environment: env_id, module, horizon, success and its spaces; None for a JAX task."""
    normalise_observations: bool = False
    """Learners see observations in units of their running deviation."""
    train_every: int = 1
    """Environment steps between trainings."""
    gradient_steps: int = 1
    """Updates of one training."""
    precision: str = "float32"
    version: int = CONFIG_VERSION

    @property
    def runs(self) -> list[tuple[float, int]]:
        """(beta, seed) of each run."""
        return [(beta, seed) for beta in self.betas for seed in self.seeds]

    def check(self) -> None:
        """Refuse what cannot work, before any of it starts."""
        if self.host is None:
            find_task(self.task)
        require_choice("method", self.method, METHODS)
        require_known("learner", self.learner, LEARNERS)
        if self.bonus != "none":
            require_known("bonus", self.bonus, BONUSES)
        require_choice("preset", self.preset, PRESETS)
        require(bool(self.betas), "beta", list(self.betas), "at least one value")
        for beta in self.betas:
            require_finite("beta", beta, low=0.0)
        require(len(set(self.betas)) == len(self.betas), "beta", list(self.betas), "a list without repetitions")
        require(bool(self.seeds), "seeds", len(self.seeds), "a whole number >= 1")
        for seed in self.seeds:
            require(0 <= seed <= LARGEST_SEED, "seed", seed, f"between 0 and {LARGEST_SEED}")
        require(len(set(self.seeds)) == len(self.seeds), "seeds", list(self.seeds), "a list without repetitions")
        for name, low in (("steps", 1), ("schedule_steps", 1), ("warmup", 0), ("eval_every", 1), ("eval_episodes", 1)):
            require_count(name, getattr(self, name), low=low)
        for name in ("capacity", "train_every", "gradient_steps"):
            require_count(name, getattr(self, name))
        require(self.steps < 2**31, "steps", self.steps, "below 2^31")
        newest_only = self.learner == "tabular_q" and (self.train_every, self.gradient_steps) != (1, 1)
        require(not newest_only, "train_every", self.train_every, "1, as gradient_steps, for 'tabular_q'")
        require_probability("p_start", self.p_start)
        require_probability("p_end", self.p_end)
        require_choice("lengths", self.lengths, ("bounded", "plain"))
        require(
            self.bonus != "none" or self.method == "exploit",
            "bonus",
            self.bonus,
            f"a bonus when the method is {self.method}",
        )
        build_parts(self).check(self.learner)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True, default=plain) + "\n"

    @staticmethod
    def from_json(text: str, name: str) -> Config:
        """`name`: the file, for the error message."""
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise ValueError("no JSON object")
            known = {f.name for f in dataclasses.fields(Config)}
            if data.get("version") == 1:  # before there were Gymnasium environments
                data = {**_ADDED_IN_2, **data, "version": CONFIG_VERSION}
            data.setdefault("method_options", {})  # files from before there was a method with options
            if set(data) != known:
                raise ValueError(f"fields differ: {sorted(set(data) ^ known)}")
            if data["version"] != CONFIG_VERSION:
                raise ValueError(f"format version {data['version']}, this program reads {CONFIG_VERSION}")
            for key in ("betas", "seeds"):
                data[key] = tuple(data[key])
            return Config(**data)
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{name}: not a configuration this version can read: {error}") from None


_ADDED_IN_2 = {"host": None, "normalise_observations": False, "train_every": 1, "gradient_steps": 1}


@dataclass(frozen=True)
class Parts:
    """The modules of a configuration, without the run axis."""

    task: Task
    learner: Learner
    bonus: Bonus | None
    lesson: LessonOptions | None

    def check(self, learner_name: str) -> None:
        if self.lesson is not None:  # first: it knows what fits it, where the learner only knows what fits the task
            self.lesson.check(self.task.spec)
            self.lesson.check_learner(learner_name, self.learner)
        self.learner.check(self.task.spec)
        if self.bonus is not None:
            self.bonus.check(self.task.spec)


def build_parts(config: Config) -> Parts:
    task = make_task(config.task, config.task_options, config.host)
    learner = make_learner(config.learner, config.learner_options, config.normalise_observations)
    bonus = None
    if config.bonus != "none":
        bonus = _with_options(config.bonus, BONUSES[config.bonus], config.bonus_options)
    lesson = _with_options("lesson", LessonOptions, config.method_options) if config.method == "lesson" else None
    return Parts(task, learner, bonus, lesson)


def first_difference(mine: Config, theirs: Config) -> tuple[str, str, str] | None:
    """Field and both values, in words, where two configurations differ; a longer training keeps its schedule."""
    one, other = (json.loads(config.to_json()) for config in (mine, theirs))  # as files hold them: tuples are lists
    return _difference({**one, "schedule_steps": 0}, {**other, "schedule_steps": 0})


def _difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, str, str] | None:
    for name in {**one, **other}:
        mine, theirs = one.get(name), other.get(name)
        if mine == theirs and (name in one) == (name in other):
            continue
        if isinstance(mine, dict) and isinstance(theirs, dict):
            inside = _difference(mine, theirs)
            assert inside is not None, "they are not equal"
            return f"{name}.{inside[0]}", inside[1], inside[2]
        said, said_there = (repr(each[name]) if name in each else "nothing" for each in (one, other))
        return name, said, said_there
    return None


def make_task(name: str, options: Mapping[str, Any], host: Mapping[str, Any] | None) -> Task:
    """The task as the compiled functions see it: a JAX task, or the description of an environment."""
    if host is not None:
        return task_from_json(host["spec"])
    made: Task = _with_options("task", find_task(name).make, options)
    return made


def require_named_task(config: Config, instead: str) -> None:
    """Refuse what a folder holds a name for, but nothing to make it from: an environment that was given, or made with
    what no file can hold."""
    if config.host is None:
        return
    if config.host.get("unwritten"):
        names = ", ".join(config.host["unwritten"])
        raise UserError(f"env: {config.task} was made with what no file can hold (env_kwargs: {names}); {instead}")
    if config.host["given"]:
        raise UserError(f"env: made on an environment object ({config.task}), which no name leads back to; {instead}")


def make_learner(name: str, options: Mapping[str, Any], normalise_observations: bool) -> Learner:
    made: Learner = _with_options(name, LEARNERS[name], options)
    return Normalised(made) if normalise_observations else made


def _with_options(what: str, make: Any, options: Mapping[str, Any]) -> Any:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    try:
        return make(**values)
    except TypeError as error:
        raise UserError(f"{what}: options {sorted(values)} do not fit: {error}") from None


def options_of(module: eqx.Module) -> dict[str, Any]:
    """A configured module as plain data for `config.json`."""
    return {f.name: getattr(module, f.name) for f in dataclasses.fields(module)}


def build_program(config: Config) -> Program:
    """All runs of the configuration, stacked on the run axis."""
    parts = build_parts(config)
    programs = [
        Program(
            task=parts.task,
            learner=parts.learner,
            bonus=parts.bonus,
            policies=make_policies(config.method, config.p_start, config.p_end, bounded=config.lengths == "bounded"),
            explorer_reward=_explorer_reward(config, beta, parts.lesson),
            streams=Streams.from_seed(seed),
            budget=config.schedule_steps,  # type: ignore[arg-type]
            capacity=config.capacity,
            train_every=config.train_every,
            gradient_steps=config.gradient_steps,
            lesson=parts.lesson,
        )
        for beta, seed in config.runs
    ]
    return stack_runs(programs)


def first_run(config: Config) -> Config:
    """The first of its runs alone: all of them take the same memory, and to build one is quick."""
    return dataclasses.replace(config, betas=config.betas[:1], seeds=config.seeds[:1])


def _explorer_reward(config: Config, beta: float, lesson: LessonOptions | None) -> ExplorerReward:
    reward = ExplorerReward(
        float(beta),
        bonus_scale=config.bonus_scale,  # type: ignore[arg-type]
        reward_scale=config.reward_scale,  # type: ignore[arg-type]
    )
    return reward if lesson is None else lesson.explorer_reward(reward)


def suggest_capacity(steps: int, observation: Box | Discrete) -> int:
    """The whole history up to the usual million; of images, a tenth of it: as many of 84 x 84 x 4 take 5.3 GiB."""
    return max(1, min(steps, 1_000_000 if image_of(observation) is None else 100_000))


def is_all_warmup(config: Config) -> bool:
    """Whether the steps end before anything is learned."""
    return config.warmup >= config.steps


def require_learning(config: Config) -> None:
    """For whoever trains once: an agent object may be given more steps later."""
    below = f"below the {config.steps} steps: nothing is learned before its end"
    require(not is_all_warmup(config), "warmup", config.warmup, below)


def check_precision(config: Config) -> None:
    """A run folder continues in the number format it was begun with."""
    if config.precision != precision():
        raise UserError(f"precision: the run was made in {config.precision}, this process computes in {precision()}")

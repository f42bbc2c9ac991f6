"""From what a person sets to a configuration with every number written out.

The command and the agent objects both come through here, so that a default means the same at either door.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import equinox as eqx

from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.config import LARGEST_SEED, Config, options_of, suggest_capacity
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.envs.host_env import EnvSource
from hyper_rl.envs.host_task import spec_to_json
from hyper_rl.envs.observation_reader import Reader, brief, read_observations
from hyper_rl.envs.registry import TaskEntry, any_environment, entry_of_id, find_task, is_gymnasium_id
from hyper_rl.envs.space_json import spaces_to_json
from hyper_rl.errors import UserError, require, require_choice, require_count, require_probability
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.methods.explorer_reward import BONUS_SCALES, RewardScale
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.methods.policies import METHODS
from hyper_rl.plain_values import split_plain
from hyper_rl.presets import PRESETS, Preset, find_preset
from hyper_rl.types import precision

BACKENDS = ("jax", "mujoco", "gymnasium")
"""'mujoco' and 'gymnasium' are two names for the same thing: the task as a real environment."""


@dataclass(frozen=True)
class TaskChoice:
    """A task, the environments behind it where it is not a JAX task, and what learners see of it."""

    name: str
    entry: TaskEntry
    spec: TaskSpec
    horizon: int
    options: Mapping[str, Any]
    source: EnvSource | None
    spaces: Mapping[str, Any] | None = None
    """The environment's own spaces, as plain data."""
    reader: Reader | None = None
    """Takes its observations apart."""
    unwritten: tuple[str, ...] = ()
    """Keyword arguments of the environments that no file can hold."""

    @property
    def host(self) -> dict[str, Any] | None:
        """What the configuration keeps of the environments."""
        if self.source is None:
            return None
        only_here = {"unwritten": list(self.unwritten)} if self.unwritten else {}
        return {
            **only_here,
            "env_id": self.source.env_id,
            "module": self.source.module,
            "given": self.source.factory is not None,
            "horizon": self.source.horizon,
            "success": self.source.success,
            "spec": spec_to_json(self.spec, self.horizon),
            "spaces": self.spaces,
        }


def choose_task(
    name: str,
    *,
    backend: str | None = None,
    options: Mapping[str, Any] | None = None,
    horizon: int | None = None,
    env_module: str | None = None,
    success: str | None = None,
) -> TaskChoice:
    """Look the task up and, for a Gymnasium environment, make one to see what it is like."""
    if horizon is not None:
        require_count("horizon", horizon)
    # An own module may register an id in any form; otherwise a name must be ours or look like an id.
    entry = find_task(name) if env_module is None or is_gymnasium_id(name) else entry_of_id(name)
    if backend is not None:
        require_choice("backend", backend, BACKENDS)
    on_host = backend in ("mujoco", "gymnasium") or (backend is None and entry.make is None)
    options = dict(options or {})
    if not on_host:
        if entry.make is None:
            raise UserError(f"backend: got {backend!r}, but {name} is only a Gymnasium environment; use 'mujoco'")
        for field_name, value in (("env_module", env_module), ("success", success)):
            if value is not None:
                raise UserError(f"{field_name}: got {value!r}, must be left out for the JAX task {name}")
        options, unusable = split_plain(options)
        for option in unusable:
            raise UserError(f"env_kwargs: {option} of the JAX task {name} must be a number or several, and is neither")
        # A list where a tuple is meant would be no part of a compiled program.
        options = {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
        if horizon is not None:
            options["horizon"] = horizon
        task = _make(name, entry, options)
        return TaskChoice(name, entry, task.spec, int(task.horizon), options, None)
    if entry.gym_id is None:
        raise UserError(f"backend: got {backend!r}, but {name} exists only as a JAX task")
    source = EnvSource(entry.gym_id, options, env_module, horizon=horizon, success=success or "info")  # type: ignore[arg-type]
    return choose_environment(name, source, entry)


def choose_environment(name: str, source: EnvSource, entry: TaskEntry | None = None) -> TaskChoice:
    """The environments themselves: one is made, looked at and closed."""
    env = source.make()
    try:
        seen = env.spec
        entry = entry or _entry_of(env.env, name)
        spaces = spaces_to_json(env.env.observation_space, env.env.action_space)
        reader = read_observations(env.env.observation_space)
    finally:
        env.close()
    options, unwritten = split_plain(source.kwargs)
    return TaskChoice(name, entry, seen.task, seen.horizon, options, source, spaces, reader, unwritten)


def _entry_of(env: Any, name: str) -> TaskEntry:
    """For an environment that was given: one of ours is ours as long as nothing is wrapped around it."""
    bare = env.spec is not None and not env.spec.additional_wrappers
    return entry_of_id(env.spec.id) if bare else any_environment(name)


def _make(name: str, entry: TaskEntry, options: Mapping[str, Any]) -> Any:
    assert entry.make is not None
    try:
        return entry.make(**options)
    except TypeError as error:
        raise UserError(f"env: options {sorted(options)} do not fit {name}: {error}") from None


def fitting_learner(choice: TaskChoice) -> str:
    """What a task is learned with when nobody says."""
    if choice.entry.learner:
        return choice.entry.learner
    if isinstance(choice.spec.action, Box):
        return "td3"
    return "tabular_q" if isinstance(choice.spec.observation, Discrete) else "dqn"


def fitting_bonus(learner: str) -> str:
    return {"td3": "disagreement", "sac": "disagreement", "tabular_q": "counts"}.get(learner, "rnd")


@dataclass(frozen=True)
class Settings:
    """What may be set. None: the preset's value, or what fits the task."""

    choice: TaskChoice
    learner: eqx.Module
    bonus: eqx.Module | None
    method: str = "hyper"
    preset: str = "robust"
    betas: tuple[float, ...] = (1.0,)
    seeds: tuple[int, ...] = (0,)
    steps: int | None = None
    warmup: int | None = None
    eval_every: int = 5_000
    eval_episodes: int = 10
    p_start: float | None = None
    p_end: str | float | None = None
    lengths: str = "bounded"
    bonus_scale: str | None = None
    reward_scale: str | None = None
    capacity: int | None = None
    normalise_observations: bool | None = None
    train_every: int | None = None
    gradient_steps: int = 1
    lesson: LessonOptions = dataclasses.field(default_factory=LessonOptions)
    """For the method lesson only."""

    def config(self) -> Config:
        """Every number written out and checked."""
        self._check_kinds()
        learner_name = LEARNERS.name_of(self.learner)
        preset = find_preset(self.preset, learner_name)
        deep = learner_name != "tabular_q"
        steps = self.steps if self.steps is not None else self.choice.entry.steps
        require_count("steps", steps)
        usual_p = 1 - self.learner.gamma  # type: ignore[attr-defined]
        p_start = as_number("p_start", usual_p if self.p_start is None else self.p_start)
        p_end = self._p_end(p_start, preset.p_end if deep else "1/H")
        require_probability("p_start", p_start)
        require_probability("p_end", p_end)
        options = self.method == "lesson"
        config = Config(
            task=self.choice.name,
            method=self.method,
            learner=learner_name,
            bonus="none" if self.bonus is None else BONUSES.name_of(self.bonus),
            preset=self.preset,
            betas=tuple(as_number("beta", beta) for beta in self.betas),
            seeds=tuple(as_seed(seed) for seed in self.seeds),
            steps=steps,
            schedule_steps=steps,
            warmup=self.warmup if self.warmup is not None else fitting_warmup(self.preset, learner_name, steps),
            eval_every=self.eval_every,
            eval_episodes=self.eval_episodes,
            p_start=p_start,
            p_end=p_end,
            lengths=self.lengths,
            bonus_scale=preset.bonus_scale if self.bonus_scale is None else self.bonus_scale,
            reward_scale=preset.reward_scale if self.reward_scale is None else self.reward_scale,
            capacity=self._capacity(steps),
            task_options=dict(self.choice.options),
            learner_options=options_of(greedy_unless_alone(self.learner, self.method)),
            bonus_options={} if self.bonus is None else options_of(self.bonus),
            method_options=options_of(self.lesson) if options else {},
            host=self.choice.host,
            normalise_observations=self._normalises(preset, deep),
            train_every=self.train_every if self.train_every is not None else preset.train_every if deep else 1,
            gradient_steps=self.gradient_steps,
            precision=precision(),
        )
        config.check()
        return config

    def _check_kinds(self) -> None:
        """From Python anything can come; what is of the wrong kind would fail far away, or mean something else."""
        require_word("method", self.method, METHODS)
        require_word("preset", self.preset, PRESETS)
        require_word("lengths", self.lengths, ("bounded", "plain"))
        for name, allowed in (("bonus_scale", BONUS_SCALES), ("reward_scale", get_args(RewardScale))):
            if getattr(self, name) is not None:
                require_word(name, getattr(self, name), allowed)
        switch = self.normalise_observations
        require(switch is None or isinstance(switch, bool), "normalise_observations", switch, "True, False or left out")
        require(isinstance(self.lesson, LessonOptions), "lesson", self.lesson, "a LessonOptions(...)")
        for part, made in (("learner", self.learner), ("bonus", self.bonus)):
            for name in () if made is None else split_plain(options_of(made))[1]:
                given = f"{type(made).__name__}.{name} is {brief(getattr(made, name))}"
                raise UserError(f"{part}: {given}, must be what a file can hold: numbers, words or lists of them")

    def _p_end(self, p_start: float, default: str | float) -> float:
        """As asked for. The default is never above the start: p falls, also where H < 1/(1-gamma)."""
        horizon = self.choice.horizon
        return min(p_start, parse_p_end(default, horizon)) if self.p_end is None else parse_p_end(self.p_end, horizon)

    def _capacity(self, steps: int) -> int:
        if self.capacity is not None:
            return self.capacity
        return fitting_capacity(self.method, self.learner, self.choice.spec.observation, steps)

    def _normalises(self, preset: Preset, deep: bool) -> bool:
        if self.normalise_observations is not None:
            return self.normalise_observations
        seen = self.choice.spec.observation
        vectors = isinstance(seen, Box) and seen.image is None
        return deep and preset.normalise_observations and vectors and not self.choice.entry.units_of_one


def greedy_unless_alone(learner: eqx.Module, method: str) -> eqx.Module:
    """Random actions of the learner's own are for a learner alone; with an explorer beside it, it acts greedily."""
    names = {f.name for f in dataclasses.fields(learner)}
    if method == "exploit" or not {"epsilon_start", "epsilon_end"} <= names:
        return learner
    return type(learner)(**{**options_of(learner), "epsilon_start": 0.0, "epsilon_end": 0.0})


def fitting_warmup(preset: str, learner: str, steps: int) -> int:
    """The preset's, but never more than its share of a short budget; tables need none."""
    chosen = find_preset(preset, learner)
    return 0 if learner == "tabular_q" else min(chosen.warmup, int(chosen.warmup_share * steps))


def fitting_capacity(method: str, learner: Any, observation: Box | Discrete, steps: int) -> int:
    needs_replay = method == "lesson" or learner.batch_size > 0
    return suggest_capacity(steps, observation) if needs_replay else 1


def parse_p_end(value: str | float, horizon: int) -> float:
    if isinstance(value, str) and value.replace(" ", "").upper() == "1/H":
        return 1 / horizon
    try:
        return as_number("p_end", float(value) if isinstance(value, str) else value)
    except (ValueError, UserError):
        raise UserError(f"p_end: got {value!r}, must be a probability in (0, 1] or 1/H") from None


def make_parts(
    choice: TaskChoice, preset: str, method: str, learner: str | eqx.Module | None, bonus: str | eqx.Module | None
) -> tuple[eqx.Module, eqx.Module | None]:
    """Learner and bonus: by name as the preset sets them, objects as given, else what fits the task and the learner.

    An object chooses the bonus that its name would; a class without a name, that of the learner that fits the task.
    """
    require_choice("method", method, METHODS)
    require_word("preset", preset, PRESETS)
    learner_name = learner if isinstance(learner, str) else LEARNERS.given_name(learner) or fitting_learner(choice)
    require_choice("learner", learner_name, LEARNERS)
    chosen = find_preset(preset, learner_name)
    bonus_name = bonus if isinstance(bonus, str) else fitting_bonus(learner_name)
    require_choice("bonus", bonus_name, BONUSES)
    if method == "exploit" and bonus is not None:
        raise UserError(f"bonus: got {bonus!r}, must be left out with method 'exploit', which has no explorer")
    made = chosen.learners[learner_name] if learner_name in chosen.learners else LEARNERS[learner_name]()
    made = learner if isinstance(learner, eqx.Module) else made
    if method == "exploit":
        return made, None
    made_bonus = chosen.bonuses[bonus_name] if bonus_name in chosen.bonuses else BONUSES[bonus_name]()
    return made, bonus if isinstance(bonus, eqx.Module) else made_bonus


def require_word(field: str, value: object, allowed: Iterable[str]) -> None:
    names = sorted(allowed)
    require(isinstance(value, str), field, value, f"one of {', '.join(names)}")
    require_choice(field, str(value), names)


def as_number(field: str, value: Any) -> float:
    try:
        if isinstance(value, (str, bytes, bool)):  # float() takes them, nobody means them
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{field}: got {value!r}, must be a number") from None


def as_steps(field: str, value: Any) -> int:
    """1e5 is how people write it."""
    whole = as_number(field, value).is_integer()
    require(whole and value >= 1, field, value, "a whole number >= 1")
    return int(value)


def as_seed(value: Any) -> int:
    try:
        seed = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        seed = -1
    require(0 <= seed <= LARGEST_SEED, "seed", value, f"a whole number between 0 and {LARGEST_SEED}")
    return seed

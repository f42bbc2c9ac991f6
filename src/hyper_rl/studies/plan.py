"""From a study file to its groups: each one checked configuration, that is one program over betas x seeds.

Configurations come from the same `Settings` as those of the command and of the agent objects, so that a default means
the same here. Nothing has been run or written when this is done, and everything wrong has been said.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import equinox as eqx

from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.config import Config, options_of, require_learning
from hyper_rl.envs.gym_make import import_registering
from hyper_rl.errors import UserError
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.methods.lesson import LessonOptions
from hyper_rl.own_parts import module_for_task
from hyper_rl.room_options import write_out_room
from hyper_rl.settings import Settings, TaskChoice, choose_task, make_parts
from hyper_rl.studies.study_file import Entries, StudyFile
from hyper_rl.studies.study_keys import ENV, parts
from hyper_rl.training.contained import INNER, OUTER, as_outer, normalised

LARGEST_STUDY = 100_000
"""Runs; more is a slip of the pen."""
ROOM_SYMBOLS = {"R": "goal_reward", "r": "subgoal_reward"}
"""The paper's names for what the Room pays."""
ALWAYS = ("task", "method", "preset", "learner")
"""Labels that every group has."""
LONGEST_NAME = 150
"""Letters of a folder's name, below what file systems allow."""
RUN_AXIS = ("beta", "seeds")
TASK_KEYS = ("backend", "horizon", "env_module", "success")
SETTINGS_KEYS = (
    "preset", "steps", "warmup", "eval_every", "eval_episodes", "p_start", "p_end", "lengths", "bonus_scale",
    "reward_scale", "capacity", "normalise_observations", "train_every", "gradient_steps",
)  # fmt: skip
DRAWS_LENGTHS = "hyper"
"""The only method that p and the distribution of L mean anything to."""


@dataclass(frozen=True)
class Group:
    """Runs that are one program: a run folder of the study."""

    name: str
    labels: Mapping[str, Any]
    config: Config
    within: str | None = None
    """Name of the group whose training contains these runs (`training.contained`): they are computed with it."""

    @property
    def run_steps(self) -> int:
        return self.config.steps * len(self.config.runs)


@dataclass(frozen=True)
class _Combination:
    """One choice of every key but beta and seeds."""

    values: Mapping[str, Any]
    entries: Entries
    used: set[str] = field(default_factory=set)
    """Keys that had a share in the configuration."""


def plan_study(study: StudyFile, scale: str) -> tuple[Group, ...]:
    """All groups at this scale, in the order of the file."""
    groups = study.at(scale)
    _check_size(study, groups)
    shared = {entry.line for entry in study.shared(scale).values()}
    combinations: list[_Combination] = []
    configs: list[Config] = []
    for entries in groups:
        mine = []
        for values in _combinations(entries):
            combination = _Combination(values, entries)
            configs.append(_configure(study, combination))
            mine.append(combination)
        _refuse_unused(study, mine, beside=shared)
        combinations += mine
    _refuse_unused(study, combinations)
    labels = _labels(combinations, configs)
    named = tuple(
        Group(name, label, config) for name, label, config in zip(_names(labels), labels, configs, strict=True)
    )
    _refuse_duplicates(study, named, combinations)
    return _find_contained(named)


def _check_size(study: StudyFile, groups: Sequence[Entries]) -> None:
    """Counted, not listed: a seeds = 10000000 must not fill the memory on the way to its refusal."""
    total = 0
    for entries in groups:
        runs = 1
        for entry in entries.values():
            runs *= len(entry.values)
        total += runs
        if total > LARGEST_STUDY:
            longest = max(entries.items(), key=lambda item: len(item[1].values))
            raise study.error(
                longest[1].line,
                f"{longest[0]}: {len(longest[1].values)} values make {total:,} runs, must be at most {LARGEST_STUDY:,}",
            )


def _combinations(entries: Entries) -> Iterator[dict[str, Any]]:
    varied = {key: entry.values for key, entry in entries.items() if key not in RUN_AXIS}
    for values in itertools.product(*varied.values()):
        yield dict(zip(varied, values, strict=True))


def _configure(study: StudyFile, combination: _Combination) -> Config:
    """The configuration of one group, or an error at the line that is to blame."""
    values, entries, used = combination.values, combination.entries, combination.used
    if "task" not in values:
        raise UserError(f"{study.source}: task: missing; name one in the group or at the top of the file")
    try:
        choice = _choose(values)
        method = values.get("method", "hyper")
        preset = values.get("preset", "robust")
        # Exploit has no explorer: what is said of the bonus is for the other methods beside it.
        bonus_name = None if method == "exploit" else values.get("bonus")
        learner, bonus = make_parts(choice, preset, method, values.get("learner"), bonus_name)
        settings = Settings(
            choice=choice,
            learner=_with_options(learner, values, used),
            bonus=None if bonus is None else _with_options(bonus, values, used),
            method=method,
            betas=entries["beta"].values if "beta" in entries else (1.0,),  # type: ignore[arg-type]
            seeds=tuple(entries["seeds"].values) if "seeds" in entries else (0,),
            lesson=_with_options(LessonOptions(), values, used) if method == "lesson" else LessonOptions(),
            **{key: values[key] for key in SETTINGS_KEYS if key in values},
        )
        config = settings.config()
        require_learning(config)
        return config
    except UserError as error:
        raise study.error(_line_of(error, entries), error) from None


def _choose(values: Mapping[str, Any]) -> TaskChoice:
    """The task and its options, those of the Room by their symbols too."""
    task = values["task"]
    options = {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{ENV}.")}
    options = write_out_room(task, values.get("backend"), options, symbols=ROOM_SYMBOLS)
    keys = {key: values[key] for key in TASK_KEYS if key in values}
    if "env_module" in keys:
        import_registering(keys["env_module"])  # again: this may be a worker, which has not read the file
        keys["env_module"] = module_for_task(task, keys["env_module"])
    return _make_choice(task, tuple(sorted(options.items())), tuple(keys.items()))


@cache
def _make_choice(task: str, options: tuple[tuple[str, Any], ...], keys: tuple[tuple[str, Any], ...]) -> TaskChoice:
    """Kept: the groups of a study share a few tasks, and to look at a Gymnasium environment is to make one."""
    return choose_task(task, options=dict(options), **dict(keys))


def _with_options(part: eqx.Module, values: Mapping[str, Any], used: set[str]) -> Any:
    """The preset's part with the file's options; only tables named like the part concern it."""
    name = _part_name(part)
    given = {key: value for key, value in values.items() if key.startswith(f"{name}.")}
    used |= set(given)
    return type(part)(**{**options_of(part), **{key.partition(".")[2]: value for key, value in given.items()}})


def _part_name(part: eqx.Module) -> str:
    if isinstance(part, LessonOptions):
        return "lesson"
    return (LEARNERS if type(part) in [LEARNERS[name] for name in LEARNERS] else BONUSES).name_of(part)


def _line_of(error: UserError, entries: Entries) -> int:
    """The line of the key an error begins with; that of the task where it names none of the file's."""
    words = re.match(r"([\w.]+):", str(error))
    name = words[1] if words else ""
    symbols = {long: short for short, long in ROOM_SYMBOLS.items()}
    last = name.removeprefix("room.")
    for key in (
        name,
        f"{ENV}.{last}",
        f"{ENV}.{symbols.get(last)}",
        next((k for k in entries if k.startswith(f"{name}.")), ""),
    ):
        if key in entries:
            return entries[key].line
    return entries["task"].line if "task" in entries else 1


def _refuse_unused(study: StudyFile, combinations: Sequence[_Combination], beside: Container[int] = ()) -> None:
    """Options of a part that takes no share in any of these runs would be ignored: say so instead.

    `beside`: lines that hold for other groups too, which may be the ones to use them.
    """
    used = {key for combination in combinations for key in combination.used}
    for combination in combinations:
        for key, entry in combination.entries.items():
            part = key.partition(".")[0]
            if "." in key and part in parts() and key not in used and entry.line not in beside:
                raise study.error(entry.line, f"{key}: set, but {part} takes no part in any of these runs")


def _labels(combinations: Sequence[_Combination], configs: Sequence[Config]) -> list[dict[str, Any]]:
    """What tells the groups apart: the four of `ALWAYS`, every key with several values, and what else is needed.

    A number of steps that goes with the task, say, tells nothing that the task does not.
    """
    keys = dict.fromkeys(key for c in combinations for key in c.entries if key not in (*ALWAYS, *RUN_AXIS))
    rows = [
        {**{key: getattr(config, key) for key in ALWAYS}, **{key: _label(key, c, config) for key in keys}}
        for c, config in zip(combinations, configs, strict=True)
    ]
    several = {key for c in combinations for key, entry in c.entries.items() if entry.several}
    several |= {"variant"} & set(keys)
    kept = [key for key in keys if key in several or _splits(key, rows)]
    return [{key: row[key] for key in (*ALWAYS, *kept) if row[key] is not None} for row in rows]


def _splits(key: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the key takes several values among groups that are alike in all of `ALWAYS`."""
    pairs = {(json.dumps([row[name] for name in ALWAYS]), json.dumps(row[key])) for row in rows}
    return len(pairs) > len({alike for alike, _ in pairs})


def _label(key: str, combination: _Combination, config: Config) -> Any:
    """As the configuration has it, so that a default and the same number written out are one label; else as written."""
    part, _, name = key.partition(".")
    if not name:
        value = getattr(config, key) if hasattr(config, key) else combination.values.get(key)
    elif part == ENV:
        value = config.task_options.get(ROOM_SYMBOLS.get(name, name) if config.task == "Room" else name)
    elif part == config.learner:
        value = config.learner_options.get(name)
    elif part == config.bonus:
        value = config.bonus_options.get(name)
    else:
        value = config.method_options.get(name) if part == config.method else None
    # 1 - 0.99 is not 0.01 to the last bit, but to everybody else.
    return float(f"{value:.12g}") if isinstance(value, float) else value


def _names(labels: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names for folders: task and method, and whatever else differs in the study."""
    keys = dict.fromkeys(key for row in labels for key in row)
    differs = [key for key in keys if len({json.dumps(row.get(key)) for row in labels}) > 1]
    if "variant" in differs:  # says it all
        differs = [key for key in ("preset", "learner", "variant") if key in differs]
    names: list[str] = []
    for row in labels:
        words = [str(row["task"]), str(row["method"])]
        for key in differs:
            if key in ("preset", "learner"):
                words.append(str(row[key]))
            elif key not in ("task", "method") and key in row:
                words.append(_plain(row[key]) if key == "variant" else f"{key.rpartition('.')[2]}-{_plain(row[key])}")
        name = re.sub(r"[^\w.=-]+", "-", "-".join(words))[:LONGEST_NAME]
        count = sum(1 for other in names if other == name or other.startswith(f"{name}~"))
        names.append(name if count == 0 else f"{name}~{count + 1}")
    return names


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _refuse_duplicates(study: StudyFile, groups: Sequence[Group], combinations: Sequence[_Combination]) -> None:
    seen: dict[tuple[str, float, int], str] = {}
    for group, combination in zip(groups, combinations, strict=True):
        what = _identity(group.config)
        for beta, seed in group.config.runs:
            first = seen.setdefault((what, beta, seed), group.name)
            if first is not group.name:
                line = max((entry.line for entry in combination.entries.values()), default=1)
                raise study.error(
                    line,
                    f"group: beta {beta:g}, seed {seed} of {group.name} is the same run as in {first}; leave one out",
                )


def _find_contained(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups, those of Curiosity with the name of the group of Decouple that contains them, if there is one."""

    outer = {normalised(group.config).to_json(): group.name for group in groups if group.config.method == OUTER}
    return tuple(
        dataclasses.replace(group, within=outer.get(as_outer(group.config).to_json()))
        if group.config.method == INNER
        else group
        for group in groups
    )


def _identity(config: Config) -> str:
    """Equal for configurations whose runs cannot differ."""
    data = dataclasses.asdict(dataclasses.replace(config, betas=(), seeds=()))
    if config.method != DRAWS_LENGTHS:
        data |= {"p_start": 1.0, "p_end": 1.0, "lengths": "bounded"}
    return json.dumps(data, sort_keys=True)

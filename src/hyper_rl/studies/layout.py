"""How the runs of a study are divided into folders that fit into memory.

The division is decided once, when the study begins, and kept in `study.json`: deep runs are the same to the last bit
only in groups of the same size.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyper_rl.config import Config, build_program
from hyper_rl.errors import UserError
from hyper_rl.studies.plan import Group
from hyper_rl.training.memory import HEADROOM, available, check_fits, estimate

PART_NAME = re.compile(r"-part-\d+$")


def divide(groups: Sequence[Group], free: int | None = None) -> tuple[Group, ...]:
    """Each group whole where it fits, else by betas, else by betas and seeds. `free`: bytes, for tests."""
    return tuple(part for group in groups for part in _divide_one(group, free if free is not None else available()))


def _divide_one(group: Group, free: int | None) -> list[Group]:
    config = group.config
    if free is None:
        return [group]
    one = build_program(replace(config, betas=config.betas[:1], seeds=config.seeds[:1]))
    most = int(HEADROOM * free // max(estimate(one)[0], 1))
    if most >= len(config.runs):
        return [group]
    if most < 1:
        check_fits(one, 1)  # says what is needed and what there is
        raise UserError(f"capacity: one run of {group.name} does not fit into the {free:,} bytes that are free")
    seeds = _chunks(config.seeds, min(most, len(config.seeds)))
    betas = _chunks(config.betas, max(most // len(config.seeds), 1))
    parts = [replace(config, betas=tuple(b), seeds=tuple(s)) for b in betas for s in seeds]
    return [_part(group, i, part) for i, part in enumerate(parts, start=1)]


def _part(group: Group, number: int, config: Config) -> Group:
    return Group(f"{group.name}-part-{number}", group.labels, config)


def _chunks(values: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """As even as possible."""
    count = -(-len(values) // most)
    size = -(-len(values) // count)
    return [values[i : i + size] for i in range(0, len(values), size)]


def restore_division(groups: Sequence[Group], stored: Sequence[Mapping[str, Any]], where: str) -> tuple[Group, ...]:
    """The division that `study.json` has; `where` names that file."""
    divided = []
    waiting = list(stored)
    for group in groups:
        mine = [one for one in waiting if PART_NAME.sub("", one["name"]) == group.name]
        waiting = [one for one in waiting if one not in mine]
        parts = [
            Group(
                one["name"], group.labels, replace(group.config, betas=tuple(one["betas"]), seeds=tuple(one["seeds"]))
            )
            for one in mine
        ]
        if sorted(run for part in parts for run in part.config.runs) != sorted(group.config.runs):
            raise UserError(f"{where}: the runs of {group.name} are not those of the study file; start a new folder")
        divided += parts
    if waiting:
        raise UserError(f"{where}: group {waiting[0]['name']!r} is not in the study file; start a new folder")
    return tuple(divided)

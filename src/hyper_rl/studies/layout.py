"""How the runs of a study are divided into folders that fit into memory.

The division is decided once, when the study begins, and kept in `study.json`: deep runs are the same to the last bit
only in groups of the same size.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hyper_rl.backend import usable_devices
from hyper_rl.config import Config, build_program, first_run
from hyper_rl.errors import UserError
from hyper_rl.studies.plan import Group
from hyper_rl.training.memory import HEADROOM, at_most, available, check_fits, estimate
from hyper_rl.training.sharding import share_evenly

PART_NAME = re.compile(r"-part-\d+$")


def divide(
    groups: Sequence[Group], free: int | None = None, *, devices: int | None = None, beside: int = 1
) -> tuple[Group, ...]:
    """Each group whole where it fits, else by betas, else by betas and seeds.

    It may fill all devices that will share its runs. `beside`: groups that run at the same time where this one does.
    `free`, `devices`: bytes on each device and their number, for tests.
    """
    count = devices if devices is not None else len(usable_devices())

    def free_on(used: int) -> int | None:
        total = used * free if free is not None else available(used)
        return None if total is None else total // beside

    alone = {group.name: _divide_one(group, count, free_on) for group in groups if group.within is None}
    # One that is computed with another is divided as that is, which needs more memory.
    parts = (alone[group.name] if group.within is None else _like(group, alone[group.within]) for group in groups)
    return tuple(itertools.chain.from_iterable(parts))


def _like(group: Group, outer: Sequence[Group]) -> list[Group]:
    if outer[0].name == group.within:
        return [group]
    configs = [replace(group.config, betas=part.config.betas, seeds=part.config.seeds) for part in outer]
    return [
        replace(_part(group, i, config), within=part.name)
        for i, (config, part) in enumerate(zip(configs, outer, strict=True), start=1)
    ]


def _divide_one(group: Group, devices: int, free_on: Callable[[int], int | None]) -> list[Group]:
    """The fewest parts whose every share fits into its device."""
    config = group.config
    one = build_program(first_run(config))
    needed = max(at_most(*estimate(one)), 1)

    def fits(runs: int) -> bool:
        free = free_on(share_evenly(runs, devices) if config.host is None else 1)
        return free is None or runs * needed <= HEADROOM * free

    if fits(len(config.runs)):
        return [group]
    if not fits(1):
        check_fits(one, 1)  # says what is needed and what there is
        raise UserError(f"capacity: one run of {group.name} does not fit into the {free_on(1):,} bytes that are free")
    betas, seeds = len(config.betas), len(config.seeds)
    sizes = [(b, seeds) for b in range(betas, 0, -1)] + [(1, s) for s in range(seeds - 1, 0, -1)]
    for b, s in sizes:
        parts = [
            replace(config, betas=tuple(some), seeds=tuple(few))
            for some in _chunks(config.betas, b)
            for few in _chunks(config.seeds, s)
        ]
        if all(fits(len(part.runs)) for part in parts):
            break
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
                one["name"],
                group.labels,
                replace(group.config, betas=tuple(one["betas"]), seeds=tuple(one["seeds"])),
                within=one.get("within"),  # not in studies that were begun before groups were computed together
            )
            for one in mine
        ]
        if sorted(run for part in parts for run in part.config.runs) != sorted(group.config.runs):
            raise UserError(f"{where}: the runs of {group.name} are not those of the study file; start a new folder")
        divided += parts
    if waiting:
        raise UserError(f"{where}: group {waiting[0]['name']!r} is not in the study file; start a new folder")
    names = {part.name for part in divided}
    for part in divided:
        if part.within is not None and part.within not in names:
            raise UserError(f"{where}: group {part.name!r} is within {part.within!r}, which is no group of the study")
    return tuple(divided)

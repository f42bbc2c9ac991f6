"""A group may fill every device that will share its runs, and no more."""

from __future__ import annotations

import dataclasses

import pytest

from hyper_rl.config import build_program
from hyper_rl.errors import UserError
from hyper_rl.studies.layout import divide
from hyper_rl.studies.plan import Group, plan_study
from hyper_rl.studies.study_file import parse_study
from hyper_rl.training.memory import HEADROOM, estimate
from hyper_rl.training.sharding import devices_for, share_evenly

TEXT = "title = 'x'\ntask = 'Room'\npreset = 'paper'\n[[group]]\nmethod = 'hyper'\nbetas = [1, 2, 3]\nseeds = 4\n"


@pytest.fixture(scope="module")
def group() -> Group:
    (made,) = plan_study(parse_study(TEXT, "x", "x.toml"), "paper")
    return made


@pytest.fixture(scope="module")
def one(group: Group) -> int:
    """Bytes of one run."""
    return estimate(build_program(dataclasses.replace(group.config, betas=(1.0,), seeds=(0,))))[0]


def room_for(runs: int, one: int) -> int:
    return int((runs + 0.5) * one / HEADROOM)


def test_all_devices_together_hold_a_group_that_one_does_not(group: Group, one: int) -> None:
    assert divide([group], room_for(3, one), devices=4) == (group,)  # 12 runs, 3 on each
    assert [len(part.config.runs) for part in divide([group], room_for(3, one), devices=1)] == 6 * [2]


@pytest.mark.parametrize("devices", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("most", [1, 2, 3, 5, 11])
def test_no_device_gets_more_than_it_holds(group: Group, one: int, devices: int, most: int) -> None:
    parts = divide([group], room_for(most, one), devices=devices)
    assert sorted(run for part in parts for run in part.config.runs) == sorted(group.config.runs)
    for part in parts:
        runs = len(part.config.runs)
        assert runs / share_evenly(runs, devices) <= most
    assert len(parts) <= len(divide([group], room_for(most, one), devices=1))


def test_groups_beside_each_other_share_the_memory(group: Group, one: int) -> None:
    assert divide([group], room_for(12, one)) == (group,)
    parts = divide([group], room_for(12, one), beside=3)
    assert [len(part.config.runs) for part in parts] == [4, 4, 4]


def test_an_environment_on_the_host_trains_on_one_device() -> None:
    text = TEXT.replace("task = 'Room'", "task = 'MountainCarContinuous-v0'\ncapacity = 1000")
    (group,) = plan_study(parse_study(text, "x", "x.toml"), "paper")
    one = estimate(build_program(dataclasses.replace(group.config, betas=(1.0,), seeds=(0,))))[0]
    assert [len(part.config.runs) for part in divide([group], room_for(4, one), devices=4)] == [4, 4, 4]


def test_one_run_too_large_is_refused(group: Group, one: int) -> None:
    with pytest.raises(UserError, match=r"does not fit|need"):
        divide([group], one // 2, devices=4)


def test_the_devices_of_some_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hyper_rl.training.sharding.usable_devices", lambda: list("abcd"))
    assert [devices_for(runs) for runs in (8, 6, 7)] == [list("abcd"), list("abc"), ["a"]]

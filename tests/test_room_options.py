"""The Room's options as run folders hold them."""

from __future__ import annotations

import pytest

from hyper_rl.config import options_of
from hyper_rl.envs.room import Room
from hyper_rl.room_options import write_out_room


@pytest.mark.parametrize("backend", [None, "jax"])
def test_the_compiled_rooms_are_all_written_out(backend: str | None) -> None:
    assert write_out_room("Room", backend, {}) == options_of(Room())
    assert write_out_room("Room", backend, {"R": 5.0}, symbols={"R": "goal_reward"}) == options_of(Room(5.0))
    given = Room(goal_reward=3.0, horizon=50)
    assert write_out_room("Room", backend, {"horizon": 9}, room=given) == options_of(Room(3.0, horizon=9))


@pytest.mark.parametrize(("task", "backend"), [("Room", "mujoco"), ("Room", "gymnasium"), ("CartPole", None)])
def test_other_tasks_have_what_they_were_given(task: str, backend: str | None) -> None:
    """An environment of somebody else's may well have an option R."""
    assert write_out_room(task, backend, {"R": 5.0}, room=Room(2.0), symbols={"R": "goal_reward"}) == {"R": 5.0}

"""For the whole suite: strict arithmetic (no silent change of dtype or rank), groups kept together, a shared agent."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from hyper_rl import Hyper

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


EXACT = (
    *("blocks", "contained", "contained_studies", "hidden_layers", "host_loop", "host_resume", "maze", "maze_parity"),
    *("products", "replay", "resume", "resume_safety", "room", "same_numbers", "several_devices", "study_lock"),
    *("study_ray", "study_runner", "sweeping", "tabular_q", "threefry"),
)
"""Files whose tests hold results against each other to the last bit or to rounding, which depends on how XLA compiles:
`make test` compiles them as users' programs are, and the others quickly."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem.removeprefix("test_") in EXACT:
            item.add_marker(pytest.mark.exact)


class ByGroup(LoadScopeScheduling):
    """Files marked with `xdist_group` go to one worker whole, other tests one by one.

    `--dist loadgroup` means just that, but xdist 3.8 writes a test's group into a field that pytest 9.2 no longer has,
    and so deals out every test alone: programs are compiled and folders made once in each worker.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return group_of(self.config.rootpath / file) or nodeid


@cache
def group_of(file: Path) -> str | None:
    found = re.search(r'^pytestmark = pytest\.mark\.xdist_group\("(.+?)"\)', file.read_text(), re.M)
    return found[1] if found else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup | None:
    return ByGroup(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def room_agent() -> Hyper:
    """A small agent to save, load and ask; files share it, so whoever trains on loads a copy."""
    from agent_checks import ROOM
    from hyper_rl import Hyper

    return Hyper("Room", **ROOM).learn(500)

"""What the tests of agent objects share: quick settings, and what they look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from hyper_rl.errors import UserError

ROOM: dict[str, Any] = {"eval_every": 500, "eval_episodes": 2}
TOY: dict[str, Any] = {"horizon": 12, "eval_every": 100, "eval_episodes": 2}


def same_policies(one: Any, other: Any) -> bool:
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def refused(make: Any) -> str:
    with pytest.raises(UserError) as caught:
        make()
    line = str(caught.value)
    assert "\n" not in line
    return line


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

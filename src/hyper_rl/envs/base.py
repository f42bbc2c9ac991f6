"""What a JAX task is: two pure functions and a description.

A task is an `equinox.Module`. Numbers a study may vary (rewards, horizon) are array leaves, so a batch of
tasks is one stacked pytree and `vmap` runs them side by side; everything that shapes the program is static.

Time limits are *not* the task's business: `step` reports termination only, and the training loop truncates at
`horizon`, stores the true next observation and bootstraps through the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

EnvState: TypeAlias = Any
"""Any pytree of arrays; only the task itself looks inside."""


@dataclass(frozen=True)
class Box:
    """Continuous actions (or observations): `size` numbers, each between `low` and `high`."""

    size: int
    low: float
    high: float
    image: tuple[int, int, int] | None = None
    """Height, width and channels where an observation is an image: a flat vector of bytes (uint8), row by row, the
    channels of a pixel side by side."""


@dataclass(frozen=True)
class Discrete:
    """`n` choices, numbered from 0."""

    n: int


@dataclass(frozen=True)
class TaskSpec:
    """The static description a learner, a bonus and the memory estimate need."""

    name: str
    observation: Box | Discrete
    action: Box | Discrete
    cells: int
    """Number of cells for the visited-share figure; 1 where the task has no notion of one."""
    grid: tuple[int, int] | None = None
    """Rows and columns when the cells form a grid, for heat maps."""


class StepResult(NamedTuple):
    state: EnvState
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    success: Bool[Array, ""]
    """The task was solved by this very step (for the room: the *optimal* goal)."""


@runtime_checkable
class Task(Protocol):
    """One unbatched environment; `vmap` makes many."""

    @property
    def spec(self) -> TaskSpec: ...

    @property
    def horizon(self) -> Int[Array, ""] | int:
        """The episode limit H, an array leaf."""
        ...

    def reset(self, key: PRNGKeyArray) -> EnvState: ...

    def step(self, state: EnvState, action: Shaped[Array, "..."], key: PRNGKeyArray) -> StepResult: ...

    def observe(self, state: EnvState) -> Shaped[Array, "..."]: ...

    def cell(self, state: EnvState) -> Int[Array, ""]:
        """Index in [0, spec.cells) of where the agent is, for the share of cells visited."""
        ...

"""Who learns from which reward, who acts, who is judged: the whole difference between the methods.

| method    | learners       | acts                                          | judged   |
|-----------|----------------|-----------------------------------------------|----------|
| exploit   | task           | task                                          | task     |
| curiosity | explorer       | explorer                                      | explorer |
| decouple  | task, explorer | explorer                                      | task     |
| hyper     | task, explorer | task for the first L-1 steps, then explorer   | task     |
| lesson    | task, explorer | the option that `methods/lesson.py` chooses   | task     |

Decouple is Hyper whose L is always 1 (p = 1): the same program with other data. UCB-Q is `curiosity` with a table and
counts. The name is therefore no part of the module: two methods of one structure share one compilation. LESSON's
explorer learns from the bonus alone; everything else that is special about it lives in its own file.
"""

from __future__ import annotations

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.errors import require_choice, require_probability
from hyper_rl.methods.repositioning import decayed_probability, sample_length

Role = Literal["task", "explorer"]
MethodName = Literal["exploit", "curiosity", "decouple", "hyper", "lesson"]
METHODS: tuple[MethodName, ...] = ("exploit", "curiosity", "decouple", "hyper", "lesson")

ROLES: dict[MethodName, tuple[Role, ...]] = {
    "exploit": ("task",),
    "curiosity": ("explorer",),
    "decouple": ("task", "explorer"),
    "hyper": ("task", "explorer"),
    "lesson": ("task", "explorer"),
}


class Policies(eqx.Module):
    """The policies of one method and the rule that hands the episode from one to the other."""

    p_start: float
    """Truncation probability at the first step."""
    p_end: float
    """Truncation probability at the end of the budget."""
    roles: tuple[Role, ...] = eqx.field(static=True)
    bounded: bool = eqx.field(static=True, default=True)
    """Bounded geometric lengths, or the plain geometric piled up at H."""

    def __check_init__(self) -> None:
        require_probability("p_start", self.p_start)
        require_probability("p_end", self.p_end)

    @property
    def judged(self) -> int:
        """Index of the judged learner: the task learner wherever there is one."""
        return self.roles.index("task") if "task" in self.roles else 0

    @property
    def explores(self) -> bool:
        return "explorer" in self.roles

    def probability(self, step: Int[Array, ""], budget: Int[Array, ""]) -> Float[Array, ""]:
        return decayed_probability(step, budget, self.p_start, self.p_end)

    def draw_length(
        self, key: PRNGKeyArray, step: Int[Array, ""], budget: Int[Array, ""], horizon: Int[Array, ""]
    ) -> Int[Array, ""]:
        """L of the episode that begins at environment step `step`; 1 where nobody repositions."""
        if len(self.roles) == 1:
            return jnp.ones((), jnp.int32)
        return sample_length(key, self.probability(step, budget), horizon, bounded=self.bounded)

    def acting(self, episode_step: Int[Array, ""], length: Int[Array, ""]) -> Int[Array, ""]:
        """Index of the learner that acts. The paper counts steps from i = 1 and repositions while i < L.

        Not a question for LESSON, where a learner acts while its option does.
        """
        if len(self.roles) == 1:
            return jnp.zeros((), jnp.int32)
        repositioning = episode_step + 1 < length
        return jnp.where(repositioning, self.roles.index("task"), self.roles.index("explorer")).astype(jnp.int32)


def make_policies(method: str, p_start: float, p_end: float, *, bounded: bool = True) -> Policies:
    require_choice("method", method, METHODS)
    name: MethodName = method  # type: ignore[assignment]
    if name != "hyper":
        p_start = p_end = 1.0
    return Policies(float(p_start), float(p_end), ROLES[name], bounded)

"""What follows from the budgets that an agent object is asked to learn for: warm-up, schedule, size of the replay.

The first budget decides all three. Later ones leave the first two alone and let the replay grow, which never changes
what is learned: as long as it grows it has held everything since the first step.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass

from hyper_rl.config import Config, build_program, is_all_warmup, make_learner, make_task, suggest_capacity
from hyper_rl.envs.base import Box, Discrete
from hyper_rl.errors import UserError
from hyper_rl.settings import fitting_capacity, fitting_warmup
from hyper_rl.training.memory import check_fits

GROWTH = 4
"""A replay that must grow does so by this factor, because every size is compiled anew: five sizes lead from a thousand
transitions to a million."""


@dataclass(frozen=True)
class Asked:
    """What somebody has set of that which otherwise follows from the budget; None: nobody has."""

    warmup: int | None = None
    capacity: int | None = None

    def first_budget(self, config: Config, steps: int) -> Config:
        """`config` as it is for a first budget of `steps`."""
        warmup = fitting_warmup(config.preset, config.learner, steps) if self.warmup is None else self.warmup
        capacity = self._capacity(config, steps)
        made = dataclasses.replace(config, steps=steps, schedule_steps=steps, warmup=warmup, capacity=capacity)
        made.check()
        if is_all_warmup(made):
            warnings.warn(
                f"warmup: {warmup} steps of it leave none of these {steps} to learn in; it goes on in the next call",
                stacklevel=4,  # whoever called `learn`
            )
        return made

    def longer_budget(self, config: Config, step: int, steps: int) -> Config:
        """`config` for `steps` in all, `step` of them taken: the schedule stays, the replay may grow.

        It does so only while it holds everything since the first step. After that (the command trains on without
        growing it) its size stays, because a larger ring would have rows that nothing was written to.
        """
        made = dataclasses.replace(config, steps=steps)
        needed = self._capacity(config, steps)
        if step <= config.capacity < needed:
            made = _with_room(made, needed)
        made.check()
        return made

    def _capacity(self, config: Config, steps: int) -> int:
        if self.capacity is not None:
            return self.capacity
        learner = make_learner(config.learner, config.learner_options, config.normalise_observations)
        return fitting_capacity(config.method, learner, _observation(config), steps)


def _observation(config: Config) -> Box | Discrete:
    return make_task(config.task, config.task_options, config.host).spec.observation


def _with_room(config: Config, needed: int) -> Config:
    """A replay of `needed` transitions or, where there is memory for it, one that need not grow again soon.

    What is learned is the same with either: up to its size a replay holds all there was.
    """
    wanted = suggest_capacity(GROWTH * config.capacity, _observation(config))
    roomy = dataclasses.replace(config, capacity=max(needed, wanted))
    try:
        check_fits(build_program(roomy), 1)
        return roomy
    except UserError:
        tight = dataclasses.replace(config, capacity=needed)
        check_fits(build_program(tight), 1, remedy="learn fewer steps, or make an agent with a smaller capacity")
        return tight

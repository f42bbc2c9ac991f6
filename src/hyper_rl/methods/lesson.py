"""LESSON (Kim, Kim and Sung, ICML 2023): learning which of four ways to act is worth following now.

| option   | acts                                                          | at most |
|----------|---------------------------------------------------------------|---------|
| random   | a uniform action at every step                                | 95%     |
| sticky   | one uniform action, drawn when the option begins, held        | 95%     |
| explorer | greedily for the explorer, which learns from the bonus alone  | 90%     |
| task     | greedily for the task learner, which learns from r            | 85%     |

An option lasts until its termination is drawn; then, and at the start of every episode, `option_critic` chooses the
next one. "At most" is the share of choices the option can get: every probability is kept in [0.05, 0.95] and the draw
walks along them in this order, so the last of four cannot be sure of more than 1 - 3 x 0.05. By the same rule an option
behind a clear winner is not chosen at all while the winner's value stands: with `explorer` ahead, `task` never is.
Order and rule are those of the published code.

The option critic learns from the batch of the learners and the option stored with each transition; it sees observations
as they are, also where learners see them normalised. Warm-up acts as the option `random` does and is stored as such.
`reposition_*` in the curve is what happened under the option `task`, and `mean_length` - 1 the mean number of such
steps in an episode, counted. (For Hyper it is L as drawn, which the episode may end before.)
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError, require, require_count, require_finite, require_positive, require_widths
from hyper_rl.learners.base import Learner
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.option_critic import (
    Number,
    OptionCritic,
    make_option_critic,
    of_option,
    option_loss,
    option_target,
    sample_in_order,
    selection_probabilities,
    termination_weight,
)
from hyper_rl.optimisers import RMSpropState, rmsprop_init, rmsprop_step
from hyper_rl.types import Transition

OptionName = Literal["random", "sticky", "explorer", "task"]
OPTIONS: tuple[OptionName, ...] = ("random", "sticky", "explorer", "task")


class LessonState(NamedTuple):
    """What the method carries from step to step."""

    option: Int[Array, ""]
    """Index of the option that takes the coming step."""
    held: Int[Array, ""]
    """The action that `sticky` repeats; drawn anew with every option."""
    chosen: Int[Array, " options"]
    """How often each option was chosen since the first step, warm-up left out."""
    critic: OptionCritic
    target: OptionCritic
    optimiser: RMSpropState


class LessonOptions(eqx.Module):
    """The numbers of LESSON; the defaults are those of its authors' code."""

    lr: float = 1e-4
    """Learning rate of the option critic (RMSprop)."""
    softmax_factor: float = 50.0
    """How sharply better options are preferred."""
    select_low: float = 0.05
    """Smallest probability of an option before the draw,"""
    select_high: float = 0.95
    """and the largest."""
    end_low: float = 0.1
    """Smallest probability that an option ends at a step,"""
    end_high: float = 0.9
    """and the largest."""
    reward_factor: float = 10.0
    """What the option critic's task reward is multiplied by, whatever the learners make of theirs."""
    rnd_scale: float = 0.0
    """Bonus in the option critic's reward; there it must be given, and the published example gives 0."""
    bonus_factor: float = 1.0
    """The explorer's reward is beta times this times the bonus, and nothing else. (There all rewards are multiplied by
    ten; here that is the learner's business: `dqn.reward_factor`, 10 under preset minigrid.)"""
    target_every: int = eqx.field(static=True, default=100)
    """Updates between two copies of the option critic's target."""
    batch_size: int = eqx.field(static=True, default=256)
    """Transitions of an update where the learner replays none or few (tabular_q); otherwise the learner's batch."""
    widths: tuple[int, ...] = eqx.field(static=True, default=(73, 36, 64))
    """Hidden layers under both heads of the option critic."""
    options: tuple[OptionName, ...] = eqx.field(static=True, default=OPTIONS)
    """The options, in the order of the draw; some may be left out, but not `random`, as which warm-up acts."""

    def __check_init__(self) -> None:
        for name in ("lr", "softmax_factor", "reward_factor", "bonus_factor"):
            require_positive(f"lesson.{name}", getattr(self, name))
        require_finite("lesson.rnd_scale", self.rnd_scale, low=0.0)
        for low, high in (("select_low", "select_high"), ("end_low", "end_high")):
            require_finite(f"lesson.{low}", getattr(self, low), low=0.0, high=1.0)
            require_finite(f"lesson.{high}", getattr(self, high), low=getattr(self, low), high=1.0)
        require_count("lesson.target_every", self.target_every)
        require_count("lesson.batch_size", self.batch_size, low=2)
        require_widths("lesson.widths", self.widths)
        fits = set(self.options) <= set(OPTIONS) and len(set(self.options)) == len(self.options)
        allowed = f"some of {', '.join(OPTIONS)}, 'random' among them, without repetitions"
        require(fits and "random" in self.options, "lesson.options", self.options, allowed)

    def check(self, spec: TaskSpec) -> None:
        if not isinstance(spec.action, Discrete):
            raise UserError(
                f"method: 'lesson' needs a finite set of actions, and {spec.name} has continuous ones; it goes with a "
                "discrete learner: dqn, tabular_q"
            )

    def check_learner(self, name: str, learner: Learner) -> None:
        """Refuse a learner of forces before it complains of the task, whose actions are as they should be."""
        box, choice = Box(1, -1.0, 1.0), Discrete(2)
        if not any(_takes(learner, TaskSpec("choices", observation, choice, 1)) for observation in (box, choice)):
            raise UserError(
                f"learner: got {name!r}, which is for continuous actions, and method 'lesson' chooses among finitely "
                "many; it goes with a discrete learner: dqn, tabular_q"
            )

    def explorer_reward(self, plain: ExplorerReward) -> ExplorerReward:
        """What this method's explorer is paid where another's is paid `plain`."""
        return dataclasses.replace(plain, beta=plain.beta * self.bonus_factor, bonus_only=True)

    def init(self, key: PRNGKeyArray, spec: TaskSpec, observation: Shaped[Array, "..."]) -> LessonState:
        """Before the first step, which begins at `observation`."""
        critic_key, choice_key = jax.random.split(key)
        count, nothing = len(self.options), jnp.zeros((), jnp.int32)
        critic = make_option_critic(critic_key, spec.observation, self.widths, count)
        target = jax.tree.map(jnp.copy, critic)
        empty = jnp.zeros((count,), jnp.int32)
        state = LessonState(nothing, nothing, empty, critic, target, rmsprop_init(critic))
        return self.next_option(state, spec, observation, jnp.ones((), bool), choice_key)

    def acts(self, state: LessonState, name: OptionName) -> Bool[Array, ""]:
        """Is it the option `name` that takes the coming step?"""
        return state.option == self.options.index(name) if name in self.options else jnp.zeros((), bool)

    def action(
        self,
        state: LessonState,
        anything: Int[Array, ""],
        explorer: Int[Array, ""],
        task: Int[Array, ""],
    ) -> Int[Array, ""]:
        """What the current option does, given a uniform action and those of the two learners."""
        answers = {"random": anything, "sticky": state.held, "explorer": explorer, "task": task}
        return jnp.stack([answers[name] for name in self.options])[state.option]

    def randomly(self, state: LessonState) -> LessonState:
        """A step of warm-up: uniform actions, which is what `random` does."""
        return state._replace(option=jnp.asarray(self.options.index("random"), jnp.int32))

    def next_option(
        self,
        state: LessonState,
        spec: TaskSpec,
        observation: Shaped[Array, "..."],
        begins: Bool[Array, ""],
        key: PRNGKeyArray,
    ) -> LessonState:
        """Who takes the step at `observation`: a new option if the old one ends there or an episode `begins`."""
        assert isinstance(spec.action, Discrete)
        end_key, choice_key, held_key = jax.random.split(key, 3)
        values, terminations = (said[0] for said in state.critic(observation[None]))
        end = jnp.clip(terminations[state.option], self.end_low, self.end_high)
        anew = begins | (jax.random.uniform(end_key, dtype=float) < end)
        odds = selection_probabilities(values, self.softmax_factor, self.select_low, self.select_high)
        option = sample_in_order(jax.random.uniform(choice_key, dtype=float), odds)
        held = jax.random.randint(held_key, (), 0, spec.action.n, dtype=jnp.int32)
        return state._replace(
            option=jnp.where(anew, option, state.option),
            held=jnp.where(anew, held, state.held),
            chosen=state.chosen.at[option].add(anew.astype(jnp.int32)),
        )

    def learn(
        self,
        state: LessonState,
        batch: Transition,
        bonus: Float[Array, " batch"],
        gamma: Number,
        index: Int[Array, ""],
    ) -> LessonState:
        """One update of the option critic. `index` counts updates from 1 and is shared by all runs."""
        assert batch.option is not None
        options, terminated = batch.option, batch.terminated
        then, now = state.target(batch.next_observation).values, state.target(batch.observation).values
        end = of_option(state.critic(batch.next_observation).terminations, options)
        end = jnp.clip(end, self.end_low, self.end_high)
        reward = self.reward_factor * batch.reward + self.rnd_scale * bonus
        targets = option_target(reward, terminated, end, of_option(then, options), then.max(axis=1), gamma)
        weights = termination_weight(of_option(now, options), now.max(axis=1), terminated)
        grads = jax.grad(option_loss)(state.critic, batch.observation, options, targets, weights)
        critic, optimiser = rmsprop_step(state.critic, grads, state.optimiser, self.lr)
        # `index` is shared by all runs, so this stays a true branch under vmap.
        copies = index % self.target_every == 0
        target = jax.lax.cond(copies, lambda online, _: online, lambda _, old: old, critic, state.target)
        return state._replace(critic=critic, target=target, optimiser=optimiser)


def _takes(learner: Learner, spec: TaskSpec) -> bool:
    try:
        learner.check(spec)
    except UserError:
        return False
    return True

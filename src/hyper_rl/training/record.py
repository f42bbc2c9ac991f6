"""What a run records about its own behaviour between two evaluations."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

NOBODY, REPOSITIONER, EXPLORER = 0, 1, 2
"""Who reached the goal of an episode, or did what else its task calls a success."""


class Episode(NamedTuple):
    """The episode in progress."""

    number: Int[Array, ""]
    step: Int[Array, ""]
    length: Int[Array, ""]
    """L: the learner 'task' acts in the first L-1 steps, as far as the episode gets and after warm-up.

    It is drawn at the start. Under LESSON it is counted: one more than the steps that the option 'task' took so far.
    """
    reposition_return: Float[Array, ""]
    explore_return: Float[Array, ""]
    winner: Int[Array, ""]
    """Whoever took the step of its first success: in some tasks an episode goes on after one, and may have more."""


class Window(NamedTuple):
    """Sums since the last evaluation, over finished episodes and over updates."""

    episodes: Int[Array, ""]
    reposition_successes: Int[Array, ""]
    explore_successes: Int[Array, ""]
    reposition_return: Float[Array, ""]
    explore_return: Float[Array, ""]
    length: Float[Array, ""]
    """Of L, so of what was drawn: an episode that ended before its L counts with all of it, one of warm-up too."""
    updates: Int[Array, ""]
    loss: Float[Array, " learners"]
    actor_loss: Float[Array, " learners"]
    bonus_loss: Float[Array, ""]
    bonus_mean: Float[Array, ""]
    bonus_divisor: Float[Array, ""]
    task_share: Float[Array, ""]


class Totals(NamedTuple):
    """Since the first step."""

    goals: Int[Array, ""]
    """Episodes with a success."""
    visits: Int[Array, " cells"]
    """How often a step led into each cell, goals included."""


def begin_episode(number: Int[Array, ""], length: Int[Array, ""]) -> Episode:
    zero = jnp.zeros((), float)
    none = jnp.zeros((), jnp.int32)
    return Episode(number, none, length, zero, zero, winner=none + NOBODY)


def empty_window(learners: int) -> Window:
    count, number = jnp.zeros((), jnp.int32), jnp.zeros((), float)
    per_learner = jnp.zeros((learners,), float)
    return Window(
        episodes=count, reposition_successes=count, explore_successes=count,
        reposition_return=number, explore_return=number, length=number,
        updates=count, loss=per_learner, actor_loss=per_learner, bonus_loss=number,
        bonus_mean=number, bonus_divisor=number, task_share=number,
    )  # fmt: skip


def empty_totals(cells: int) -> Totals:
    return Totals(jnp.zeros((), jnp.int32), jnp.zeros((cells,), jnp.int32))


def take_step(
    episode: Episode, reward: Float[Array, ""], success: Bool[Array, ""], repositioning: Bool[Array, ""]
) -> Episode:
    zero = jnp.zeros((), float)
    acting = jnp.where(repositioning, REPOSITIONER, EXPLORER)
    return episode._replace(
        winner=jnp.where(success & (episode.winner == NOBODY), acting, episode.winner).astype(jnp.int32),
        step=episode.step + 1,
        reposition_return=episode.reposition_return + jnp.where(repositioning, reward, zero),
        explore_return=episode.explore_return + jnp.where(repositioning, zero, reward),
    )


def finish_episode(window: Window, episode: Episode, done: Bool[Array, ""]) -> Window:
    """Add the episode to the sums if it is `done`."""
    count, number = done.astype(jnp.int32), done.astype(float)
    return window._replace(
        episodes=window.episodes + count,
        reposition_successes=window.reposition_successes + (done & (episode.winner == REPOSITIONER)).astype(jnp.int32),
        explore_successes=window.explore_successes + (done & (episode.winner == EXPLORER)).astype(jnp.int32),
        reposition_return=window.reposition_return + number * episode.reposition_return,
        explore_return=window.explore_return + number * episode.explore_return,
        length=window.length + number * episode.length.astype(float),
    )

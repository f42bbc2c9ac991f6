"""One row per run and evaluation: the judgement, the behaviour since the last one, and whether all is finite."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hyper_rl.training.evaluation import Judgement
from hyper_rl.training.loop import Loop
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.record import empty_window

COLUMNS: tuple[str, ...] = (
    "step", "run", "beta", "seed",
    "success", "return", "steps_to_goal", "discounted_return", "critic_estimate",
    "behaviour_success", "behaviour_return",
    "reposition_success", "reposition_return", "explore_success", "explore_return",
    "episodes", "goals", "cells_visited",
    "bonus_mean", "bonus_scale", "task_share", "mean_length", "p",
    "task_loss", "explorer_loss", "task_actor_loss", "explorer_actor_loss", "bonus_loss", "finite",
)  # fmt: skip


def all_finite(tree: Any) -> Array:
    """Per run: are all numbers of its learners and bonus finite?"""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    flags = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1) for leaf in leaves]
    return jnp.stack(flags).all(axis=0)


def measure(loop: Loop, step: int, index: int, episodes: int) -> dict[str, Float[Array, " runs"]]:
    """Everything a curve row holds except the names of the run."""
    return measure_judged(loop.program, loop.state, loop.judge(index, episodes), step)


def measure_judged(program: Program, state: RunState, judged: Judgement, step: int) -> dict[str, Float[Array, " runs"]]:
    """The same of runs that are judged already."""
    return _measure(program, state._replace(replay=None), judged, jnp.asarray(step, jnp.int32))  # not needed, and large


@jax.jit
def _measure(
    program: Program, state: RunState, judged: Judgement, step: Int[Array, ""]
) -> dict[str, Float[Array, " runs"]]:
    window, totals, roles = state.window, state.totals, program.policies.roles
    count = window.episodes.astype(float)
    updates = jnp.maximum(window.updates, 1).astype(float)
    nothing = jnp.full_like(count, jnp.nan)

    def per_role(sums: Float[Array, "runs roles"], role: str) -> Float[Array, " runs"]:
        return sums[:, roles.index(role)] / updates if role in roles else nothing

    def if_any(mean: Float[Array, " runs"]) -> Float[Array, " runs"]:
        """A part that has no network to train reports a loss of exactly 0, which is none."""
        return jnp.where(mean == 0, jnp.nan, mean)

    explores, repositions = program.policies.explores, len(roles) > 1
    wins = (window.reposition_successes + window.explore_successes).astype(float)
    p = jax.vmap(lambda policies, budget: policies.probability(step, budget))(program.policies, program.budget)
    return {
        "success": judged.success,
        "return": judged.total,
        "steps_to_goal": judged.steps_to_goal,
        "discounted_return": judged.discounted,
        "critic_estimate": judged.estimate,
        "behaviour_success": wins / count,
        "behaviour_return": (window.reposition_return + window.explore_return) / count,
        "reposition_success": window.reposition_successes.astype(float) / count if repositions else nothing,
        "reposition_return": window.reposition_return / count if repositions else nothing,
        "explore_success": window.explore_successes.astype(float) / count if explores else nothing,
        "explore_return": window.explore_return / count if explores else nothing,
        "episodes": count,
        "goals": totals.goals.astype(float),
        "cells_visited": (totals.visits > 0).astype(float).mean(axis=1) if program.spec.cells > 1 else nothing,
        "bonus_mean": window.bonus_mean / updates if explores else nothing,
        "bonus_scale": window.bonus_divisor / updates if explores else nothing,
        "task_share": window.task_share / updates if explores else nothing,
        "mean_length": window.length / count if repositions else nothing,
        "p": p if repositions and program.lesson is None else nothing,
        "task_loss": per_role(window.loss, "task"),
        "explorer_loss": per_role(window.loss, "explorer"),
        "task_actor_loss": if_any(per_role(window.actor_loss, "task")),
        "explorer_actor_loss": if_any(per_role(window.actor_loss, "explorer")),
        "bonus_loss": if_any(window.bonus_loss / updates) if explores else nothing,
        "finite": all_finite((state.learners, state.bonus, state.method)).astype(float),
    }


def clear_window(program: Program, state: RunState) -> RunState:
    """Start counting anew after an evaluation."""
    runs = state.totals.goals.shape[0]
    empty = jax.tree.map(
        lambda leaf: jnp.zeros((runs, *leaf.shape), leaf.dtype), empty_window(len(program.policies.roles))
    )
    return state._replace(window=empty)


def rows(measured: dict[str, Any], step: int, betas: list[float], seeds: list[int]) -> list[dict[str, float]]:
    """The measured arrays as one dictionary per run, in the order of COLUMNS."""
    host = {name: np.asarray(values, dtype=np.float64) for name, values in measured.items()}
    table = []
    for run, (beta, seed) in enumerate(zip(betas, seeds, strict=True)):
        row: dict[str, float] = {"step": step, "run": run, "beta": beta, "seed": seed}
        row.update({name: float(values[run]) for name, values in host.items()})
        table.append({name: row[name] for name in COLUMNS})
    return table

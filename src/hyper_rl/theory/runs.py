"""Many runs of Algorithm 1 side by side: seeds, β and p are the axes of one compiled program, in float64.

`run` is the front door. It yields, for every run and episode, the exact values of the policies in use and how the
optimistic and pessimistic estimates stand to Q*; nothing here is sampled but the data the algorithm learns from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from hyper_rl.errors import UserError
from hyper_rl.theory import lsvi
from hyper_rl.theory.lsvi import OPTIMISTIC, PESSIMISTIC, PLAIN, Estimates, Statistics, Tables
from hyper_rl.theory.mdp import LinearMDP
from hyper_rl.theory.settings import Settings, make_settings
from hyper_rl.theory.solve import optimal, reachable

Algorithm = Literal["linear-ucb-hyper", "lsvi-ucb"]
Record: TypeAlias = dict[str, Array]
"""One episode of a `Trace`, still on the device."""
CHUNK = 250
"""Episodes per call of the compiled program; progress is told between calls."""


class RunState(eqx.Module):
    statistics: Statistics
    estimates: Estimates


class Truth(NamedTuple):
    """What the estimates are held against; the algorithm never sees it."""

    q: Float[Array, "H S A"]
    reachable: Bool[Array, "H S"]


class Trace(NamedTuple):
    """Per episode, of the tables in use *during* it (so entry 0 is before any data). Axes: run, episode."""

    task_value: Float[np.ndarray, "R K"]
    """V of the policy greedy in Q, the one Hyper puts out."""
    explorer_value: Float[np.ndarray, "R K"]
    """V of the policy greedy in Q̂, the one LSVI-UCB puts out."""
    behaviour_value: Float[np.ndarray, "R K"]
    """V of what acted in this episode, its L given."""
    upper_slack: Float[np.ndarray, "R K"]
    """min over (h,s,a) of Q̂ - Q*: negative where optimism fails."""
    upper_slack_reachable: Float[np.ndarray, "R K"]
    """The same over (h,s) that some policy reaches: the others never get data, and keep Q̂ = clip(β·||φ||/sqrt(λ))."""
    lower_slack: Float[np.ndarray, "R K"]
    """min over (h,s,a) of Q* - Q̌: negative where pessimism fails."""
    upper_free: Float[np.ndarray, "R K"]
    """Share of (h,s,a) where Q̂ is below its clip at H."""
    lower_free: Float[np.ndarray, "R K"]
    """Share of (h,s,a) where Q̌ is above its clip at 0."""
    updated: Bool[np.ndarray, "R K"]
    """L = 0, so the weights were refitted after this episode."""


class Result(NamedTuple):
    trace: Trace
    final: RunState
    settings: Settings
    seeds: Int[np.ndarray, " R"]
    optimal_value: float


def grid(
    seeds: int, betas: Sequence[float], ps: Sequence[float], ridge: float = 1.0
) -> tuple[Settings, Int[np.ndarray, " R"]]:
    """Every (p, β, seed), seed fastest: reshape an axis of runs to [len(ps), len(betas), seeds]."""
    if seeds < 1:
        raise UserError(f"seeds = {seeds}: must be at least 1")
    # Checked before they are multiplied out, so that the index in a message is the caller's own.
    make_settings([*betas], [1.0] * len(betas), [ridge] * len(betas))
    make_settings([0.0] * len(ps), [*ps], [ridge] * len(ps))
    cells = [(beta, p, seed) for p in ps for beta in betas for seed in range(seeds)]
    beta, p, seed = zip(*cells, strict=True)
    return make_settings(beta, p, [ridge] * len(cells)), np.asarray(seed)


def run(
    mdp: LinearMDP,
    chosen: Settings,
    seeds: Int[np.ndarray, " R"],
    episodes: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Runs `episodes` episodes of Linear-UCB-Hyper for every entry of `chosen` and `seeds`."""
    if episodes < 1:
        raise UserError(f"episodes = {episodes}: must be at least 1")
    best, reached = optimal(mdp), reachable(mdp)
    with jax.enable_x64(True):
        lanes: Settings = jax.tree.map(jnp.asarray, chosen)
        keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
        state = _begin(mdp, lanes)
        parts: list[dict[str, np.ndarray]] = []
        for first in range(0, episodes, CHUNK):
            count = min(CHUNK, episodes - first)
            state, part = _advance(mdp, best.q, reached, lanes, keys, state, jnp.asarray(first), count)
            parts.append({field: np.asarray(leaf) for field, leaf in part.items()})
            progress(first + count, episodes)
    trace = Trace(**{field: np.concatenate([part[field] for part in parts], axis=1) for field in Trace._fields})
    return Result(trace, jax.tree.map(np.asarray, state), chosen, seeds, best.value)


@eqx.filter_jit
def _begin(mdp: LinearMDP, lanes: Settings) -> RunState:
    world = lsvi.tables(mdp)

    def one(chosen: Settings) -> RunState:
        statistics = lsvi.no_data(world, jnp.asarray(chosen.ridge))
        return RunState(statistics, lsvi.fit(world, statistics, chosen))

    return jax.vmap(one)(lanes)


@eqx.filter_jit(donate="none")
def _advance(
    mdp: LinearMDP,
    optimal_q: Float[np.ndarray, "H S A"],
    reached: Bool[np.ndarray, "H S"],
    lanes: Settings,
    keys: PRNGKeyArray,
    state: RunState,
    first: Int[Array, ""],
    count: int,
) -> tuple[RunState, Record]:
    world, truth = lsvi.tables(mdp), Truth(jnp.asarray(optimal_q), jnp.asarray(reached))

    def one(chosen: Settings, key: PRNGKeyArray, state: RunState) -> tuple[RunState, Record]:
        def body(state: RunState, k: Int[Array, ""]) -> tuple[RunState, Record]:
            return _episode(world, truth, chosen, jax.random.fold_in(key, k), state)

        return jax.lax.scan(body, state, first + jnp.arange(count))

    return jax.vmap(one)(lanes, keys, state)


def _episode(
    world: Tables, truth: Truth, chosen: Settings, key: PRNGKeyArray, state: RunState
) -> tuple[RunState, Record]:
    """Algorithm 1's loop body."""
    length_key, roll_key = jax.random.split(key)
    horizon = truth.q.shape[0]
    length = lsvi.repositioning_length(length_key, jnp.asarray(chosen.p))
    q = state.estimates.q
    both = lsvi.greedy(q[:, : PLAIN + 1])
    repositioning = jnp.arange(horizon, dtype=length.dtype) < length
    behaviour = jnp.where(repositioning[:, None, None], both[:, PLAIN], both[:, OPTIMISTIC])

    episode = lsvi.rollout(world, roll_key, behaviour)
    statistics = lsvi.observe(world, state.statistics, episode)
    # Runs with their own p share a program, so "if L = 0" is a choice of results, not of work.
    fresh = lsvi.fit(world, statistics, chosen)
    update = length == 0
    estimates: Estimates = jax.tree.map(lambda new, old: jnp.where(update, new, old), fresh, state.estimates)

    explorer, task, acted = lsvi.policy_values(world, jnp.concatenate([both, behaviour[:, None]], axis=1))
    upper, lower = q[:, OPTIMISTIC], q[:, PESSIMISTIC]
    record = Record(
        task_value=task,
        explorer_value=explorer,
        behaviour_value=acted,
        upper_slack=jnp.min(upper - truth.q),
        upper_slack_reachable=jnp.min(jnp.where(truth.reachable[:, :, None], upper - truth.q, jnp.inf)),
        lower_slack=jnp.min(truth.q - lower),
        upper_free=jnp.mean((upper < horizon).astype(q.dtype)),
        lower_free=jnp.mean((lower > 0).astype(q.dtype)),
        updated=update,
    )
    return RunState(statistics, estimates), record


def output_value(trace: Trace, algorithm: Algorithm) -> Float[np.ndarray, "R K"]:
    """The value of the policy the algorithm puts out."""
    return trace.explorer_value if algorithm == "lsvi-ucb" else trace.task_value


def settled_after(gap: Float[np.ndarray, "R K"], epsilon: float) -> Float[np.ndarray, " R"]:
    """Episodes after which the gap to V* stays within ε to the end of the run; inf for runs that never get there."""
    outside = gap > epsilon
    last = np.where(outside.any(-1), gap.shape[-1] - 1 - np.argmax(outside[:, ::-1], axis=-1), -1)
    return np.where(last == gap.shape[-1] - 1, np.inf, last + 1.0)

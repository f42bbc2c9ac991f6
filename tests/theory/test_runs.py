"""The loop of Algorithm 1: when it updates, who acts, what is recorded, and that lanes do not touch each other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.errors import UserError
from hyper_rl.theory import greedy, grid, lock, lowrank, lsvi, optimal, policy_value, riverswim, room, run
from hyper_rl.theory.runs import output_value, settled_after
from hyper_rl.theory.solve import reachable
from hyper_rl.theory.study_complexity import average_reaches


def test_lanes_equal_runs_of_their_own() -> None:
    """A run is the same alone and beside others, and p, β and seed are told apart."""
    mdp = riverswim(4, 6)
    chosen, seeds = grid(2, [1.0, 5.0], [1.0, 0.3])
    together = run(mdp, chosen, seeds, 60)
    for lane in (0, 3, 6):
        alone = run(mdp, jax.tree.map(lambda x, i=lane: x[i : i + 1], chosen), seeds[lane : lane + 1], 60)
        np.testing.assert_allclose(together.trace.task_value[lane], alone.trace.task_value[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(together.final.estimates.q[lane], alone.final.estimates.q[0], rtol=0, atol=1e-9)
    assert len({values.tobytes() for values in together.trace.behaviour_value}) == 8


def test_float64_does_not_leak() -> None:
    before = jnp.ones(()).dtype
    assert run(lock(3, 2), *grid(2, [1.0], [1.0]), 20).trace.task_value.dtype == np.float64
    assert jnp.ones(()).dtype == before


def test_updates_only_when_the_length_is_zero() -> None:
    trace = run(riverswim(4, 6), *grid(8, [2.0], [0.25]), 60).trace
    assert trace.updated.mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.25 * 0.75 / 480))
    moved = trace.explorer_value[:, 1:] != trace.explorer_value[:, :-1]
    assert not moved[~trace.updated[:, :-1]].any()
    assert moved[trace.updated[:, :-1]].any()
    assert run(lock(3, 2), *grid(2, [1.0], [1.0]), 20).trace.updated.all()


def test_lengths_are_geometric_from_zero() -> None:
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 40_000)
        draw = jax.vmap(lsvi.repositioning_length, in_axes=(0, None))
        lengths = np.asarray(draw(keys, jnp.asarray(0.3)))
        assert (np.asarray(draw(keys, jnp.asarray(1.0))) == 0).all()
    for n in range(5):
        share = 0.3 * 0.7**n
        assert (lengths == n).mean() == pytest.approx(share, abs=4 * np.sqrt(share / 40_000))


def test_the_first_tables_are_those_without_data() -> None:
    """Q = 0, Q̂ = clip(β·||φ||/sqrt(λ)), Q̌ = 0, and all actions tie: every policy is uniform."""
    mdp = lock(3, 2)
    result = run(mdp, *grid(2, [3.0], [0.5], ridge=4.0), 20)
    uniform = policy_value(mdp, np.full((3, 4, 2), 0.5)).value
    trace = result.trace
    for value in (trace.task_value, trace.explorer_value, trace.behaviour_value):
        assert value[0, 0] == pytest.approx(uniform, abs=1e-12)
    assert trace.upper_slack[0, 0] == pytest.approx(3.0 / 2 - 1.0)
    assert trace.lower_free[0, 0] == 0.0


def test_recorded_values_are_exact() -> None:
    """One episode more shows the value of the tables the last one left, which numpy evaluates again."""
    mdp, (chosen, seeds) = lowrank(), grid(3, [1.0], [1.0])
    final = np.asarray(run(mdp, chosen, seeds, 40).final.estimates.q)
    shown = run(mdp, chosen, seeds, 41).trace
    for lane in range(3):
        task = policy_value(mdp, greedy(final[lane, :, lsvi.PLAIN])).value
        explorer = policy_value(mdp, greedy(final[lane, :, lsvi.OPTIMISTIC])).value
        assert shown.task_value[lane, 40] == pytest.approx(task, abs=1e-12)
        assert shown.explorer_value[lane, 40] == pytest.approx(explorer, abs=1e-12)
        assert shown.behaviour_value[lane, 40] == pytest.approx(explorer, abs=1e-12)
        gap = (final[lane, :, lsvi.OPTIMISTIC] - optimal(mdp).q).min()
        assert shown.upper_slack[lane, 40] == pytest.approx(gap, abs=1e-12)


def test_the_lock_is_learned_and_judged_by_the_right_table() -> None:
    """At β = 10 the explorer still explores after 1,000 episodes while Q has the code: Hyper yes, LSVI-UCB not yet."""
    result = run(lock(6, 3), *grid(5, [10.0], [1.0]), 1000)
    hyper, lsvi_ucb = (output_value(result.trace, name)[:, -50:].mean() for name in ("linear-ucb-hyper", "lsvi-ucb"))
    assert hyper > 0.95
    assert lsvi_ucb < 0.8


def test_a_small_room_is_learned() -> None:
    """One-hot of the room: 1 step to the sub-goal, 2 to the goal."""
    mdp = room(4, 4, sub_goal=(2, 3), small=0.1)
    result = run(mdp, *grid(3, [1.0], [0.5]), 200)
    assert result.optimal_value == 1.0
    assert (result.trace.task_value[:, -1] == 1.0).all()


def test_reachable_states() -> None:
    """The lock's state h is reached at step h only, its sink from the second step on."""
    seen = reachable(lock(3, 2))
    np.testing.assert_array_equal(seen, [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1]])


def test_settled_and_average() -> None:
    gap = np.array([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1.0]])
    np.testing.assert_array_equal(settled_after(gap, 0.5), [3, 0, np.inf])
    np.testing.assert_array_equal(average_reaches(gap, 0.45), [5, 1, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: grid(0, [1.0], [1.0]), "seeds = 0: must be at least 1"),
        (lambda: grid(3, [1.0, -1.0], [1.0]), r"beta\[1\] = -1: must be >= 0"),
        (lambda: grid(3, [1.0], [1.0, 0.5, 2.0]), r"p\[2\] = 2: must be in \(0, 1\]"),
        (lambda: grid(3, [1.0], [1.0], ridge=-1.0), r"lambda\[0\] = -1: must be > 0"),
        (lambda: run(lock(3, 2), *grid(1, [1.0], [1.0]), 0), "episodes = 0: must be at least 1"),
    ],
)
def test_bad_runs_are_refused(call: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        call()  # type: ignore[operator]

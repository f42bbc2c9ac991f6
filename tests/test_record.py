"""What a run records of its own behaviour, and how it is judged, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from hyper_rl.config import Config, build_program
from hyper_rl.envs.room import DOWN, LEFT, RIGHT
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.program import Program, RunState
from hyper_rl.training.record import Episode, Window, begin_episode, empty_window, finish_episode, take_step
from hyper_rl.training.snapshot import COLUMNS, clear_window, rows
from measuring import measure_state

REPOSITION, EXPLORE = True, False


def number(value: int) -> Array:
    return jnp.asarray(value, jnp.int32)


def real(*values: float) -> Float[Array, " n"]:
    return jnp.asarray(values, float)


def config_of(method: str, **changes: Any) -> Config:
    settings: dict[str, Any] = dict(
        task="Room", method=method, learner="tabular_q", bonus="none" if method == "exploit" else "counts",
        preset="paper", betas=(0.1,), seeds=(0, 1), steps=1000, schedule_steps=1000, warmup=0, eval_every=1000,
        eval_episodes=10, p_start=0.5, p_end=0.1, lengths="bounded", bonus_scale="none", reward_scale="none",
        capacity=1, learner_options={"gamma": 0.9},
    )  # fmt: skip
    return Config(**(settings | changes))


def play(
    window: Window, index: int, length: int, steps: list[tuple[float, bool]], *, success: bool, done: bool = True
) -> tuple[Window, Episode]:
    """One episode of (reward, who acted); `success` and `done` tell of its last step."""
    episode = begin_episode(number(index), number(length))
    for t, (reward, who) in enumerate(steps):
        last = t == len(steps) - 1
        acted = jnp.asarray(who)
        episode = take_step(episode, jnp.asarray(reward, float), jnp.asarray(success and last), acted)
        window = finish_episode(window, episode, jnp.asarray(done and last))
    return window, episode


def hand_made_window() -> Window:
    """Three finished episodes and one in progress.

    0: L = 3, pays 1, 2 while repositioning and 4 at the first exploring step, which succeeds
    1: L = 5, pays 0, 10 while repositioning, and the second step succeeds before the explorer's turn
    2: L = 1, pays 3, 0 while exploring, and runs into the time limit
    3: L = 9, has paid 100 so far: not counted
    """
    window = empty_window(2)
    window, _ = play(window, 0, 3, [(1.0, REPOSITION), (2.0, REPOSITION), (4.0, EXPLORE)], success=True)
    window, _ = play(window, 1, 5, [(0.0, REPOSITION), (10.0, REPOSITION)], success=True)
    window, _ = play(window, 2, 1, [(3.0, EXPLORE), (0.0, EXPLORE)], success=False)
    window, _ = play(window, 3, 9, [(100.0, REPOSITION)], success=False, done=False)
    return window


def test_sums_over_hand_made_episodes() -> None:
    window = hand_made_window()
    assert int(window.episodes) == 3
    assert (int(window.reposition_successes), int(window.explore_successes)) == (1, 1)
    # 1 + 2 + 0 + 10 while repositioning, 4 + 3 while exploring, lengths 3 + 5 + 1.
    assert (float(window.reposition_return), float(window.explore_return)) == (13.0, 7.0)
    assert float(window.length) == 9.0


def test_an_episode_in_progress_keeps_its_own_account() -> None:
    _, episode = play(empty_window(2), 7, 3, [(1.0, REPOSITION), (2.0, EXPLORE)], success=False, done=False)
    assert (int(episode.number), int(episode.step), int(episode.length)) == (7, 2, 3)
    assert (float(episode.reposition_return), float(episode.explore_return)) == (1.0, 2.0)


def test_curve_columns_of_a_hand_made_window() -> None:
    program = build_program(config_of("hyper", p_start=0.01, p_end=0.001))
    state = init_runs(program)
    one = hand_made_window()._replace(
        updates=number(4), loss=real(8.0, 2.0), actor_loss=real(-4.0, 1.0), bonus_loss=jnp.asarray(12.0, float),
        bonus_mean=jnp.asarray(2.0, float), bonus_divisor=jnp.asarray(6.0, float), task_share=jnp.asarray(1.0, float),
    )  # fmt: skip
    window = jax.tree.map(lambda mine, empty: jnp.stack([mine, empty]), one, empty_window(2))
    # 90 of the room's 900 cells in the first run, and the start alone in the second.
    visits = state.totals.visits.at[0, :90].set(3).at[0, 465].set(0)
    state = state._replace(window=window, totals=state.totals._replace(goals=jnp.asarray([11, 0]), visits=visits))
    first, second = rows(measure_state(program, state, 250, 0, episodes=2), 250, [0.1, 0.1], [0, 1])
    assert tuple(first) == COLUMNS
    by_hand = {
        "step": 250, "run": 0, "beta": 0.1, "seed": 0,
        "behaviour_success": 2 / 3, "behaviour_return": 20 / 3,
        "reposition_success": 1 / 3, "reposition_return": 13 / 3, "explore_success": 1 / 3, "explore_return": 7 / 3,
        "episodes": 3, "goals": 11, "cells_visited": 0.1, "mean_length": 3.0,
        "bonus_mean": 0.5, "bonus_scale": 1.5, "task_share": 0.25, "bonus_loss": 3.0,
        "task_loss": 2.0, "explorer_loss": 0.5, "task_actor_loss": -1.0, "explorer_actor_loss": 0.25,
        "p": 0.01 - 0.009 / 4, "finite": 1,
    }  # fmt: skip
    for name, expected in by_hand.items():
        assert first[name] == pytest.approx(expected, rel=1e-5), name
    # Nothing finished in the second run: no mean, rather than a zero.
    assert np.isnan(second["behaviour_success"]) and np.isnan(second["mean_length"])
    assert second["episodes"] == 0 and second["cells_visited"] == pytest.approx(1 / 900)

    cleared = clear_window(program, state)
    assert all(not np.asarray(leaf).any() for leaf in jax.tree.leaves(cleared.window))
    assert cleared.totals is state.totals


def test_columns_that_a_method_does_not_have_are_empty() -> None:
    program = build_program(config_of("exploit"))
    measured = measure_state(program, init_runs(program), 0, 0, episodes=1)
    empty = {name for name, values in measured.items() if np.isnan(np.asarray(values)).all()}
    without = {
        "reposition_success", "reposition_return", "explore_success", "explore_return", "mean_length", "p",
        "bonus_mean", "bonus_scale", "task_share", "bonus_loss", "explorer_loss", "explorer_actor_loss",
    }  # fmt: skip
    # Nothing has happened yet either: no episode, no success, no update.
    assert empty == without | {"behaviour_success", "behaviour_return", "steps_to_goal", "task_actor_loss"}


def host(state: RunState) -> RunState:
    """A copy that survives the next step, which donates its input."""
    return jax.tree.map(np.array, state)


def test_a_real_runs_account_equals_one_kept_from_outside() -> None:
    """Two seeds of Hyper in a 4x4 room, watched step by step; the first 60 steps are warm-up and never reposition."""
    options = {"size": 4, "subgoal": (0, 1), "horizon": 12, "goal_reward": 2.0}
    program = build_program(config_of("hyper", task_options=options))
    warmup, steps, goal, subgoal = 60, 500, 15, 1
    state = init_runs(program)
    before = host(state)
    kept = [dict(episodes=0, repo_wins=0, expl_wins=0, repo=0.0, expl=0.0, length=0, taken=0) for _ in range(2)]
    stood = np.zeros((2, 16), int)
    for run in range(2):
        stood[run, before.env[run]] += 1
    for step in range(steps):
        state = advance_to(program, state, step, step + 1, warmup)
        after = host(state)
        for run in range(2):
            s, a = np.argwhere(after.bonus[run] - before.bonus[run])[0]
            row, column = divmod(int(s), 4)
            row, column = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)][a]
            reached = min(max(row, 0), 3) * 4 + min(max(column, 0), 3)
            reward = {goal: 2.0, subgoal: 0.1}.get(reached, 0.0)
            taken = int(before.episode.step[run])
            repositions = step >= warmup and taken + 1 < before.episode.length[run]
            kept[run]["repo" if repositions else "expl"] += reward
            kept[run]["taken"] += int(repositions)
            kept[run]["repo_wins" if repositions else "expl_wins"] += reached == goal
            if reached in (goal, subgoal) or taken + 1 == 12:
                kept[run]["episodes"] += 1
                kept[run]["length"] += int(before.episode.length[run])
            stood[run, reached] += 1
        before = after
    window, totals = before.window, before.totals
    for run, mine in enumerate(kept):
        assert mine["repo_wins"] > 0 and mine["expl_wins"] > 0
        assert window.episodes[run] == mine["episodes"] == before.episode.number[run]
        assert window.reposition_successes[run] == mine["repo_wins"]
        assert window.explore_successes[run] == mine["expl_wins"]
        assert totals.goals[run] == mine["repo_wins"] + mine["expl_wins"]
        assert window.length[run] == mine["length"]
        assert mine["length"] - mine["episodes"] > mine["taken"], "L as drawn: warm-up and early ends take less"
        open_account = before.episode.reposition_return[run], before.episode.explore_return[run]
        assert window.reposition_return[run] + open_account[0] == pytest.approx(mine["repo"], rel=1e-5)
        assert window.explore_return[run] + open_account[1] == pytest.approx(mine["expl"], rel=1e-5)
    assert (window.updates == steps - warmup).all()
    # Visits: where every step led, goals included, and the very first start.
    np.testing.assert_array_equal(totals.visits, stood)


def walker(action_of: Any) -> Float[np.ndarray, "900 4"]:
    """A table whose greedy action at (row, column) is `action_of(row, column)`, worth 0.7."""
    table = np.zeros((900, 4))
    for cell in range(900):
        for action in np.atleast_1d(action_of(*divmod(cell, 30))):
            table[cell, action] = 0.7
    return table


def to_goal(row: int, column: int) -> int:
    """Right along the start's row, then down: 28 steps."""
    return RIGHT if column < 29 else DOWN


def to_subgoal(row: int, column: int) -> int:
    """Two down, then two right: 4 steps."""
    return DOWN if row < 17 else RIGHT


def to_either(row: int, column: int) -> Any:
    """An even choice in the first step; after it, whichever path was begun."""
    if (row, column) == (15, 15):
        return [RIGHT, DOWN]
    return to_goal(row, column) if row == 15 or column == 29 else to_subgoal(row, column)


def nowhere(row: int, column: int) -> int:
    return LEFT


def judged(program: Program, table: Any, index: int, episodes: int) -> dict[str, Any]:
    """Measures of one run whose task table is `table` and whose explorer only walks left."""
    state = init_runs(program)
    runs = state.totals.goals.shape[0]
    tables = np.broadcast_to(np.stack([table, walker(nowhere)]), (runs, 2, 900, 4))
    state = state._replace(learners=state.learners._replace(q=jnp.asarray(tables, float)))
    measured = measure_state(program, state, 0, index, episodes=episodes)
    return {name: np.asarray(values) for name, values in measured.items()}


def room_program(horizon: int) -> Program:
    options = {"goal_reward": 2.0, "subgoal_reward": 0.5, "horizon": horizon}
    return build_program(config_of("hyper", seeds=(0,), task_options=options))


@pytest.mark.parametrize(
    ("action_of", "horizon", "success", "total", "steps", "discounted"),
    [
        # R = 2 at step 28 is worth 2 * 0.9^27; r = 0.5 at step 4 is worth 0.5 * 0.9^3.
        (to_goal, 100, 1.0, 2.0, 28.0, 2 * 0.9**27),
        (to_goal, 28, 1.0, 2.0, 28.0, 2 * 0.9**27),
        (to_goal, 27, 0.0, 0.0, np.nan, 0.0),
        (to_subgoal, 100, 0.0, 0.5, np.nan, 0.5 * 0.9**3),
        (nowhere, 100, 0.0, 0.0, np.nan, 0.0),
    ],
)
def test_judgement_of_a_hand_set_table(
    action_of: Any, horizon: int, success: float, total: float, steps: float, discounted: float
) -> None:
    got = judged(room_program(horizon), walker(action_of), 0, 10)
    np.testing.assert_allclose(got["success"], [success])
    np.testing.assert_allclose(got["return"], [total], rtol=1e-6)
    np.testing.assert_allclose(got["steps_to_goal"], [steps])
    np.testing.assert_allclose(got["discounted_return"], [discounted], rtol=1e-5)
    np.testing.assert_allclose(got["critic_estimate"], [0.7], rtol=1e-6)


def test_judgement_averages_over_episodes_on_a_stream_of_its_own() -> None:
    """Half the episodes begin towards either goal: shares and means must fit each other, whatever the draw."""
    program = room_program(100)
    got = [judged(program, walker(to_either), index, 200) for index in (0, 0, 1)]
    share = float(got[0]["success"][0])
    # Standard error of the share of 200 fair coins: 0.035.
    assert share == pytest.approx(0.5, abs=0.14)
    assert float(got[0]["return"][0]) == pytest.approx(share * 2 + (1 - share) * 0.5, rel=1e-5)
    worth = share * 2 * 0.9**27 + (1 - share) * 0.5 * 0.9**3
    assert float(got[0]["discounted_return"][0]) == pytest.approx(worth, rel=1e-5)
    assert float(got[0]["steps_to_goal"][0]) == 28.0
    # The same evaluation draws the same episodes, another one draws others.
    assert got[1]["success"] == got[0]["success"] != got[2]["success"]


def test_evaluating_changes_nothing_that_is_learned() -> None:
    program = build_program(config_of("hyper", task_options={"size": 4, "subgoal": (0, 1), "horizon": 12}))
    watched, alone = init_runs(program), init_runs(program)
    for part in range(5):
        watched = advance_to(program, watched, 40 * part, 40 * (part + 1), 50)
        before = host(watched)
        measure_state(program, watched, 40 * (part + 1), part, episodes=3)
        for mine, theirs in zip(jax.tree.leaves(host(watched)), jax.tree.leaves(before), strict=True):
            np.testing.assert_array_equal(mine, theirs)
        watched = clear_window(program, watched)
    alone = advance_to(program, alone, 0, 200, 50)
    kept = [host(state)._replace(window=None) for state in (watched, alone)]  # type: ignore[arg-type]
    for mine, theirs in zip(jax.tree.leaves(kept[0]), jax.tree.leaves(kept[1]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_run_that_is_not_finite_is_named() -> None:
    program = build_program(config_of("hyper"))
    state = init_runs(program)
    q = state.learners.q.at[1, 0, 3, 2].set(jnp.inf)
    state = state._replace(learners=state.learners._replace(q=q))
    measured = measure_state(program, state, 0, 0, episodes=2)
    assert np.asarray(measured["finite"]).tolist() == [1.0, 0.0]

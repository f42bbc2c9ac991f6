"""Counting continuous observations by cell: cells by hand, what is counted, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hyper_rl.bonuses.counts import LARGEST_TABLE, Counts, cell
from hyper_rl.envs.base import Box, Discrete, TaskSpec
from hyper_rl.errors import UserError
from hyper_rl.types import Transition, stack_runs, take_run

KEY = jax.random.key(0)
STEPS = TaskSpec("steps", Box(2, -1.0, 1.0), Discrete(3), 1)
PLANE = TaskSpec("plane", Box(2, -1.0, 1.0), Box(1, -1.0, 1.0), 1)
GRID = TaskSpec("grid", Discrete(3), Discrete(2), 3)
CELLS: dict[str, Any] = {"bins": 4, "low": (0.0, -2.0), "high": (1.0, 2.0)}


def visits(observation: Any, action: Any) -> Transition:
    before = jnp.asarray(observation, float)
    taken = jnp.asarray(action, float if np.asarray(action).dtype.kind == "f" else jnp.int32)
    nothing = jnp.zeros((len(observation),), float)
    return Transition(before, taken, nothing, before, jnp.zeros((len(observation),), bool))


def counted(bonus: Counts, spec: TaskSpec, data: Transition) -> Any:
    bonus.check(spec)
    return jax.lax.scan(lambda state, one: (bonus.observe(state, one), None), bonus.init(KEY, spec), data)[0]


def test_cells_by_hand() -> None:
    # Four cells of a quarter in x from 0 to 1 and four of one in y from -2 to 2, y fastest: 4 * column + row.
    # (0.1, -1.5): 0 and 0. (0.3, -0.5): 1 and 1 -> 5. (0.99, 1.99): 3 and 3 -> 15. Edges belong to the cell above:
    # (0.5, 0): 2 and 2 -> 10. Outside: (-7, 9): 0 and 3 -> 3; the upper ends themselves: (1, 2) -> 15.
    where = [[0.1, -1.5], [0.3, -0.5], [0.99, 1.99], [0.5, 0.0], [-7.0, 9.0], [1.0, 2.0]]
    cells = cell(jnp.asarray(where, float), CELLS["low"], CELLS["high"], 4)
    assert np.asarray(cells).tolist() == [0, 5, 15, 10, 3, 15]
    assert cell(jnp.asarray(where[1], float), CELLS["low"], CELLS["high"], 4).shape == ()


def test_visits_to_one_cell_are_shared_by_all_of_it() -> None:
    # Cell 5 with action 1 twice from different places, once with action 0; cell 15 never.
    bonus = Counts(**CELLS)
    state = counted(bonus, STEPS, visits([[0.3, -0.5], [0.49, -0.01], [0.26, -0.9]], [1, 1, 0]))
    assert state.shape == (16, 3) and int(state.sum()) == 3
    batch = visits([[0.4, -0.2], [0.4, -0.2], [0.9, 1.9]], [1, 0, 1])
    paid, same, loss = bonus.learn(state, batch, KEY)
    np.testing.assert_allclose(np.asarray(paid), [2**-0.5, 1.0, 1.0], rtol=1e-6)
    assert same is state and float(loss) == 0.0


def test_continuous_actions_count_alike_or_by_cell() -> None:
    where, actions = [[0.3, -0.5]] * 3, np.asarray([[-0.9], [-0.6], [0.9]])
    alike, halves = (Counts(**CELLS, action_bins=n) for n in (1, 2))
    data = visits(where, actions)
    tables = [counted(bonus, PLANE, data) for bonus in (alike, halves)]
    assert [table.shape for table in tables] == [(16, 1), (16, 2)]
    np.testing.assert_allclose(np.asarray(alike.reward(tables[0], data)), [3**-0.5] * 3, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(halves.reward(tables[1], data)), [2**-0.5, 2**-0.5, 1.0], rtol=1e-6)


def test_several_runs_at_once_equal_each_alone() -> None:
    bonus = Counts(**CELLS)
    rng = np.random.default_rng(0)
    data = [visits(rng.uniform(0, 1, (50, 2)), rng.integers(0, 3, 50)) for _ in range(3)]
    states = [counted(bonus, STEPS, one) for one in data]
    together = jax.jit(jax.vmap(bonus.reward))(stack_runs(states), stack_runs(data))
    for i, (state, one) in enumerate(zip(states, data, strict=True)):
        np.testing.assert_array_equal(np.asarray(take_run(together, i)), np.asarray(bonus.reward(state, one)))


def test_what_does_not_fit_is_refused_with_what_does() -> None:
    with pytest.raises(UserError, match=r"counts\.bins, counts\.low and counts\.high \(2 numbers each\).*'rnd'"):
        Counts().check(STEPS)
    with pytest.raises(UserError, match=r"counts\.low: got \(0\.0,\), must be 2 numbers for steps"):
        Counts(bins=4, low=(0.0,), high=(1.0,)).check(STEPS)
    with pytest.raises(UserError, match=r"counts\.bins: got 4, must be 0 for grid"):
        Counts(**CELLS).check(GRID)
    with pytest.raises(UserError, match=r"counts\.action_bins: got 2, must be 1 for steps"):
        Counts(**CELLS, action_bins=2).check(STEPS)
    with pytest.raises(UserError, match=f"at most {LARGEST_TABLE} cells"):
        Counts(bins=2000, low=(0.0, 0.0), high=(1.0, 1.0)).check(STEPS)
    Counts().check(GRID)
    Counts(**CELLS).check(PLANE)
    nan, bad = float("nan"), {**CELLS}
    for name, value in (("bins", -1), ("action_bins", 0), ("low", (nan, 0.0)), ("high", (1.0,)), ("high", (0.0, 2.0))):
        with pytest.raises(UserError, match=f"counts.{name}"):
            Counts(**{**bad, name: value})
    with pytest.raises(UserError, match=r"counts\.low: .* left out without counts\.bins"):
        Counts(low=(0.0,), high=(1.0,))

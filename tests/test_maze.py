"""The maze tasks themselves: maps, cells, resets, rewards, and walls that hold."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium_robotics.envs.maze.maps import LARGE_MAZE, MEDIUM_MAZE
from jaxtyping import Array, Float

from hyper_rl.envs.base import Box, Task
from hyper_rl.envs.maze import GOAL_RADIUS, MAZES, PLACEMENT_NOISE, MazeState, PointMaze, make_maze
from hyper_rl.envs.maze_layout import LARGE, MEDIUM, Cell, MazeLayout
from hyper_rl.envs.maze_physics import (
    BALL_MASS,
    CONTACT_RANGE,
    DAMPING,
    GEAR,
    MAX_SPEED,
    TIME_STEP,
    VELOCITY_GAIN,
    Ball,
)

KEY = jax.random.key(0)


def ball_at(task: PointMaze, cell: Cell) -> MazeState:
    """A ball at rest in the middle of a cell, the goal in the middle of its own."""
    x, y = task.layout.centre(cell)
    goal_x, goal_y = task.layout.centre(task.goal)
    zero = jnp.zeros(())
    return MazeState(Ball(zero + x, zero + y, zero, zero), zero + goal_x, zero + goal_y)


@pytest.mark.parametrize(("layout", "theirs"), [(MEDIUM, MEDIUM_MAZE), (LARGE, LARGE_MAZE)], ids=["medium", "large"])
def test_maps_are_those_of_gymnasium_robotics(layout: MazeLayout, theirs: list[list[int]]) -> None:
    assert layout.walls.tolist() == [[mark == 1 for mark in row] for row in theirs]


def test_named_tasks_have_the_papers_horizons_and_fixed_cells() -> None:
    horizons = {name: int(make().horizon) for name, make in MAZES.items()}
    assert horizons == {
        "MediumMaze-Easy": 500,
        "MediumMaze-Medium": 200,
        "LargeMaze-Easy": 1000,
        "LargeMaze-Medium": 500,
        "LargeMaze-Hard": 300,
    }
    for name, make in MAZES.items():
        task = make()
        assert isinstance(task, Task)
        assert task.horizon.dtype == jnp.int32
        assert task.spec.name == name
        assert (task.start, task.goal) == ((1, 1), (6, 6) if name.startswith("Medium") else (7, 10))


def test_spec_describes_observation_action_and_cells() -> None:
    medium, large = make_maze("MediumMaze-Easy").spec, make_maze("LargeMaze-Hard").spec
    assert medium.action == Box(2, -1.0, 1.0)
    assert isinstance(medium.observation, Box) and medium.observation.size == 4
    assert (medium.cells, medium.grid) == (26, (8, 8))
    assert (large.cells, large.grid) == (sum(line.count("0") for line in LARGE.lines), (9, 12))


def test_numbers_of_a_named_task_can_be_replaced() -> None:
    task = make_maze("LargeMaze-Easy", horizon=77, start=(7, 1), goal=(1, 6))
    assert (int(task.horizon), task.start, task.goal) == (77, (7, 1), (1, 6))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "TinyMaze"}, "no maze called 'TinyMaze'"),
        ({"name": "MediumMaze-Easy", "start": (0, 0)}, "start cell .* is a wall"),
        ({"name": "MediumMaze-Easy", "goal": (6, 8)}, "goal cell .* is outside"),
        ({"name": "MediumMaze-Easy", "horizon": 0}, "horizon must be at least 1"),
    ],
)
def test_mistakes_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_maze(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("lines", [("111", "101", "11"), ("111", "1x1", "111"), ("111", "100", "111")])
def test_a_map_must_be_rectangular_and_walled_in(lines: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="maze map"):
        MazeLayout(lines)


@pytest.mark.parametrize("name", ["MediumMaze-Easy", "LargeMaze-Easy"])
def test_cell_index_and_row_column_are_inverse(name: str) -> None:
    task = make_maze(name)
    corners = [(-0.49, -0.49), (-0.49, 0.49), (0.49, -0.49), (0.49, 0.49), (0.0, 0.0)]
    for index, (row, column) in enumerate(task.layout.free_cells):
        assert task.layout.lines[row][column] == "0"
        assert task.cell_row_column(index) == (row, column)
        middle = ball_at(task, (row, column))
        for off_x, off_y in corners:
            ball = middle.ball._replace(x=middle.ball.x + off_x, y=middle.ball.y + off_y)
            assert int(task.cell(MazeState(ball, middle.goal_x, middle.goal_y))) == index


def test_first_and_last_cell_lie_where_the_map_says() -> None:
    assert MEDIUM.centre((1, 1)) == (-2.5, 2.5)
    assert MEDIUM.centre((6, 6)) == (2.5, -2.5)
    assert LARGE.centre((7, 10)) == (4.5, -3.0)


def test_reset_spreads_start_and_goal_evenly_around_their_cells() -> None:
    task = make_maze("LargeMaze-Easy")
    states = jax.vmap(task.reset)(jax.random.split(KEY, 20_000))
    observations = np.asarray(jax.vmap(task.observe)(states))
    assert (observations[:, 2:] == 0).all()
    goals = np.stack([states.goal_x, states.goal_y], axis=1)
    for points, cell in ((observations[:, :2], task.start), (goals, task.goal)):
        offsets = (points - np.array(task.layout.centre(cell))) / PLACEMENT_NOISE
        assert np.abs(offsets).max() <= 1.0 + 1e-5
        # Uniform on [-1, 1]: mean 0, variance 1/3, and independent axes, each within about four standard errors.
        assert np.abs(offsets.mean(axis=0)).max() < 0.017
        assert np.abs(offsets.var(axis=0) - 1 / 3).max() < 0.0085
        assert abs(np.corrcoef(offsets.T)[0, 1]) < 0.03
    assert abs(np.corrcoef(observations[:, 0], goals[:, 0])[0, 1]) < 0.03


def test_middle_of_the_goal_cell_always_counts_as_reached() -> None:
    assert PLACEMENT_NOISE * np.sqrt(2) < GOAL_RADIUS
    task = make_maze("MediumMaze-Easy")
    drawn = jax.vmap(task.reset)(jax.random.split(KEY, 1000))
    middle = ball_at(task, task.goal).ball

    def rest_in_the_middle(state: MazeState) -> Float[Array, ""]:
        return task.step(MazeState(middle, state.goal_x, state.goal_y), jnp.zeros(2), KEY).reward

    assert (jax.vmap(rest_in_the_middle)(drawn) == 1).all()


@pytest.mark.parametrize(
    ("distance", "speed_towards", "reached"),
    [(0.46, 0.0, False), (0.44, 0.0, True), (0.46, 2.0, True), (0.44, -2.0, False)],
)
def test_reward_and_termination_are_judged_after_the_step(distance: float, speed_towards: float, reached: bool) -> None:
    task = make_maze("MediumMaze-Easy")
    goal = ball_at(task, task.goal)
    ball = goal.ball._replace(x=goal.goal_x - distance, vx=jnp.zeros(()) + speed_towards)
    result = task.step(MazeState(ball, goal.goal_x, goal.goal_y), jnp.zeros(2), KEY)
    assert float(result.reward) == float(reached)
    assert bool(result.terminated) is bool(result.success) is reached


def test_actions_and_speeds_are_clipped() -> None:
    task = make_maze("MediumMaze-Easy")
    state = ball_at(task, (4, 5))
    hard, full = (task.step(state, jnp.array(push), KEY) for push in ([9.0, -9.0], [1.0, -1.0]))
    assert hard.state.ball == full.state.ball
    racing = MazeState(state.ball._replace(vx=jnp.zeros(()) + 50.0), state.goal_x, state.goal_y)
    assert float(task.step(racing, jnp.zeros(2), KEY).state.ball.vx) < MAX_SPEED


@pytest.mark.parametrize("name", ["MediumMaze-Easy", "LargeMaze-Easy"])
def test_walls_hold_against_100_000_held_actions(name: str) -> None:
    task = make_maze(name)
    balls, actions, hold = 1000, 100, 20
    x, y = np.array([task.layout.centre((row, column)) for row, column in np.argwhere(task.layout.walls)]).T
    wall_x, wall_y = jnp.asarray(x, float), jnp.asarray(y, float)

    def clearance(state: MazeState) -> Float[Array, ""]:
        """Distance from the ball's centre to the nearest wall box: 0 when the centre is inside one."""
        outside_x = jnp.maximum(jnp.abs(wall_x - state.ball.x) - 0.5, 0.0)
        outside_y = jnp.maximum(jnp.abs(wall_y - state.ball.y) - 0.5, 0.0)
        return jnp.sqrt(outside_x**2 + outside_y**2).min()

    def push(state: MazeState, action: Float[Array, "2"]) -> tuple[MazeState, Float[Array, ""]]:
        def body(state: MazeState, _: None) -> tuple[MazeState, Float[Array, ""]]:
            state = task.step(state, action, KEY).state
            return state, clearance(state)

        state, clearances = jax.lax.scan(body, state, None, length=hold)
        return state, clearances.min()

    def run(key: Array) -> tuple[MazeState, Float[Array, ""]]:
        start_key, action_key = jax.random.split(key)
        uniform = jax.random.uniform(action_key, (actions, 2), minval=-1.0, maxval=1.0)
        full = jnp.where(jnp.arange(actions)[:, None] % 2 == 0, jnp.sign(uniform), uniform)
        state, nearest = jax.lax.scan(push, task.reset(start_key), full)
        return state, nearest.min()

    states, nearest = jax.jit(jax.vmap(run))(jax.random.split(KEY, balls))
    assert np.isfinite(np.asarray(jax.vmap(task.observe)(states))).all()
    cells = np.asarray(jax.vmap(task.cell)(states))
    assert len(np.unique(cells)) > 20, "the balls should have roamed the maze"
    # A wall pushes only from within the contact range, so a ball may fly one full step into it unhindered, and no more.
    top_speed = MAX_SPEED + VELOCITY_GAIN * (GEAR - DAMPING * MAX_SPEED) / BALL_MASS
    assert float(nearest.min()) > CONTACT_RANGE - TIME_STEP * np.sqrt(2) * top_speed > 0

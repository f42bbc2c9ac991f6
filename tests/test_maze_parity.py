"""The maze against the real thing: gymnasium-robotics' PointMaze on MuJoCo."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import gymnasium_robotics
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from hyper_rl.envs.maze import MazeState, PointMaze
from hyper_rl.envs.maze_layout import LARGE, MEDIUM, Cell, MazeLayout
from hyper_rl.envs.maze_physics import Ball, move_ball
from maze_controller import WaypointController

gymnasium.register_envs(gymnasium_robotics)

MakeMujoco = Callable[[MazeLayout], Any]


@pytest.fixture
def make_mujoco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeMujoco:
    # Each PointMaze leaves its model file in the temporary folder.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return make_mujoco_maze


def make_mujoco_maze(layout: MazeLayout) -> Any:
    maze_map = [[int(mark) for mark in line] for line in layout.lines]
    made = gymnasium.make("PointMaze_Medium-v3", maze_map=maze_map, continuing_task=False, max_episode_steps=10**9)
    return made.unwrapped


class Steps(NamedTuple):
    """Single steps taken by MuJoCo: (x, y, vx, vy) before and after, and how many walls were in reach."""

    before: Float[np.ndarray, "n 4"]
    action: Float[np.ndarray, "n 2"]
    after: Float[np.ndarray, "n 4"]
    walls: Int[np.ndarray, " n"]


def record_contact_steps(env: Any, layout: MazeLayout, seed: int, episodes: int) -> Steps:
    """Random held actions from random cells; half are full force along a diagonal, which presses into corners."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[Any, Any, Any, int]] = []
    for episode in range(episodes):
        cell = np.array(layout.free_cells[rng.integers(len(layout.free_cells))])
        observation = env.reset(seed=seed + episode, options={"reset_cell": cell, "goal_cell": cell})[0]["observation"]
        for step in range(200):
            if step % 20 == 0:
                action = rng.uniform(-1, 1, 2) if rng.random() < 0.5 else rng.choice([-1.0, 1.0], 2)
            after = env.step(action)[0]["observation"]
            walls = env.data.ncon - 1  # the ball always touches the floor as well
            if walls:
                rows.append((observation, action, after, walls))
            observation = after
    before, actions, afters, counts = zip(*rows, strict=True)
    return Steps(np.array(before), np.array(actions), np.array(afters), np.array(counts))


def place_and_step(env: Any, layout: MazeLayout, seed: int, tries: int) -> Steps:
    """Single steps from states set by hand, deeper in walls and corners than a drive gets: also triple contacts."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    rows: list[tuple[Any, Any, Any, int]] = []
    for _ in range(tries):
        centre = layout.centre(layout.free_cells[rng.integers(len(layout.free_cells))])
        gap = rng.uniform(0.0, 0.11, 2)
        if rng.random() < 0.5:
            gap[rng.integers(2)] = rng.uniform(0.0, 0.5)
        position = np.array(centre) + rng.choice([-1.0, 1.0], 2) * (0.5 - gap)
        velocity = rng.uniform(-6, 6, 2) * rng.choice([1.0, 0.1, 0.01])
        action = rng.uniform(-1, 1, 2) if rng.random() < 0.5 else rng.choice([-1.0, 1.0], 2)
        env.point_env.set_state(position, velocity)
        after = env.step(action)[0]["observation"]
        if env.data.ncon > 1:
            rows.append((np.concatenate([position, velocity]), action, after, env.data.ncon - 1))
    before, actions, afters, counts = zip(*rows, strict=True)
    return Steps(np.array(before), np.array(actions), np.array(afters), np.array(counts))


def one_step_velocity_error(layout: MazeLayout, steps: Steps) -> Float[np.ndarray, " n"]:
    with jax.enable_x64(True):
        ball = Ball(*jnp.asarray(steps.before.T))
        moved = jax.jit(jax.vmap(lambda b, a: move_ball(layout, b, a[0], a[1])))(ball, jnp.asarray(steps.action))
        assert moved.x.dtype == jnp.float64
        return np.asarray(np.abs(np.stack(moved[2:], axis=1) - steps.after[:, 2:]).max(axis=1))


def test_free_flight_follows_mujoco_for_1000_steps(make_mujoco: MakeMujoco) -> None:
    side = 50
    layout = MazeLayout(("1" * side, *("1" + "0" * (side - 2) + "1",) * (side - 2), "1" * side))
    env = make_mujoco(layout)
    cell = np.array([25, 25])
    first = env.reset(seed=0, options={"reset_cell": cell, "goal_cell": cell})[0]["observation"]
    turn = np.arange(1000) * (2 * np.pi / 550)
    actions = np.stack([np.cos(turn), np.sin(0.7 * turn)], axis=1)
    expected = np.array([env.step(action)[0]["observation"] for action in actions])
    assert np.abs(expected[:, :2]).max() < side / 2 - 1.5, "the flight must stay clear of the walls"
    assert np.ptp(expected[:, 0]) > 10
    assert np.abs(expected[:, 2:]).max() > 5, "the flight should meet the speed limit"
    with jax.enable_x64(True):
        _, path = jax.lax.scan(
            lambda ball, a: (moved := move_ball(layout, ball, a[0], a[1]), jnp.stack(moved)),
            Ball(*jnp.asarray(first)),
            jnp.asarray(actions),
        )
    assert np.abs(np.asarray(path) - expected).max() < 1e-12


@pytest.mark.parametrize("layout", [MEDIUM, LARGE], ids=["medium", "large"])
def test_one_step_equals_mujoco_solved_to_the_end(layout: MazeLayout, make_mujoco: MakeMujoco) -> None:
    env = make_mujoco(layout)
    env.model.opt.tolerance, env.model.opt.iterations = 0.0, 100
    driven = record_contact_steps(env, layout, seed=1, episodes=100)
    assert min((driven.walls == n).sum() for n in (1, 2)) > 200, "walls, seams and corners must occur"
    assert one_step_velocity_error(layout, driven).max() < 1e-8
    placed = place_and_step(env, layout, seed=1, tries=10_000)
    assert min((placed.walls == n).sum() for n in (1, 2, 3)) > 200, "also all three walls at once"
    assert one_step_velocity_error(layout, placed).max() < 1e-8


@pytest.mark.parametrize("layout", [MEDIUM, LARGE], ids=["medium", "large"])
def test_one_step_agrees_with_mujoco_as_shipped(layout: MazeLayout, make_mujoco: MakeMujoco) -> None:
    steps = record_contact_steps(make_mujoco(layout), layout, seed=2, episodes=100)
    assert (one_step_velocity_error(layout, steps) < 1e-5).mean() >= 0.999


class Route(NamedTuple):
    layout: MazeLayout
    start: Cell
    goal: Cell


ROUTES = (Route(MEDIUM, (1, 1), (6, 6)), Route(LARGE, (1, 1), (7, 10)), Route(MEDIUM, (6, 1), (1, 6)))
# Look-ahead, stiffness, damping. Both cut corners, so that they touch walls; the second leans on them.
DRIVERS = ((2, 3.0, 0.3), (3, 2.0, 0.3))
EPISODES = 50
LIMIT = 1000


class Drives(NamedTuple):
    """Steps to the goal (LIMIT where it was missed) of the same episodes on both sides."""

    mujoco: Int[np.ndarray, " n"]
    ours: Int[np.ndarray, " n"]
    contact_share: float
    """Share of MuJoCo's steps with a wall in reach."""


def drive_both(env: Any, route: Route, driver: tuple[int, float, float]) -> Drives:
    controller = WaypointController(route.layout, route.goal, *driver)
    targets = controller.targets
    options = {"reset_cell": np.array(route.start), "goal_cell": np.array(route.goal)}
    starts, goals, counts, touching = [], [], [], 0
    for seed in range(EPISODES):
        first, _ = env.reset(seed=seed, options=options)
        starts.append(first["observation"])
        goals.append(first["desired_goal"])
        observation, terminated, count = first["observation"], False, 0
        while not terminated and count < LIMIT:
            seen, reward, terminated, _, _ = env.step(controller.act(targets, observation, np))
            observation, count = seen["observation"], count + 1
            touching += env.data.ncon > 1
            assert reward == terminated
        counts.append(count)
    ours = drive_ours(controller, route, np.array(starts), np.array(goals))
    return Drives(np.array(counts), ours, touching / sum(counts))


def drive_ours(
    controller: WaypointController, route: Route, starts: Float[np.ndarray, "n 4"], goals: Float[np.ndarray, "n 2"]
) -> Int[np.ndarray, " n"]:
    task = PointMaze("drive", route.layout, route.start, route.goal, horizon=LIMIT)
    targets = jnp.asarray(controller.targets, jnp.float32)
    unused_key = jax.random.key(0)

    def first_arrival(start: Float[Array, "4"], goal: Float[Array, "2"]) -> Int[Array, ""]:
        def body(state: MazeState, _: None) -> tuple[MazeState, Array]:
            result = task.step(state, controller.act(targets, task.observe(state), jnp), unused_key)
            return result.state, result.terminated

        _, reached = jax.lax.scan(body, MazeState(Ball(*start), goal[0], goal[1]), None, length=LIMIT)
        return jnp.where(reached.any(), jnp.argmax(reached) + 1, LIMIT)

    arrive = jax.jit(jax.vmap(first_arrival))
    return np.asarray(arrive(jnp.asarray(starts, jnp.float32), jnp.asarray(goals, jnp.float32)))


def test_float32_drives_take_as_many_steps_as_mujoco(make_mujoco: MakeMujoco) -> None:
    drives = [drive_both(make_mujoco(route.layout), route, driver) for route in ROUTES for driver in DRIVERS]
    assert all((drive.mujoco < LIMIT).all() for drive in drives), "every drive must reach its goal"
    assert min(drive.contact_share for drive in drives) > 0.03, "every route must use the walls"
    assert sum((drive.mujoco == drive.ours).sum() for drive in drives) >= 295

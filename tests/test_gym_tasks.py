"""The tasks under Gymnasium ids: registration, the mazes on MuJoCo, and JAX tasks seen through Gymnasium."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from jaxtyping import Array, Float, Int, PRNGKeyArray

from hyper_rl.envs.base import Box, StepResult, TaskSpec
from hyper_rl.envs.gym_tasks import REGISTRATIONS, register_all, task_id
from hyper_rl.envs.gym_tasks.jax_task import JaxTaskEnv
from hyper_rl.envs.maze import SETTINGS, MazeState, make_maze
from hyper_rl.envs.maze_physics import Ball
from hyper_rl.envs.room import DOWN, RIGHT, Room
from hyper_rl.errors import UserError
from hyper_rl.threefry import make_key
from maze_controller import WaypointController

MAZE = "MediumMaze-Easy"


def make(name: str, **keywords: Any) -> Any:
    return gymnasium.make(task_id(name), **keywords)


def test_registered_limits_are_those_of_the_jax_tasks() -> None:
    for name, setting in SETTINGS.items():
        assert gymnasium.spec(task_id(name)).max_episode_steps == setting.horizon
    assert gymnasium.spec("hyper_rl/Room-v0").max_episode_steps == Room().horizon


def test_registering_again_changes_nothing() -> None:
    before = {name: gymnasium.spec(task_id(name)) for name in REGISTRATIONS}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register_all()
    assert all(gymnasium.spec(task_id(name)) is entry for name, entry in before.items())


WITHOUT_SIMULATORS = """
import sys
for name in ("mujoco", "gymnasium_robotics", "minigrid"):
    sys.modules[name] = None  # importing it now raises ImportError
import gymnasium
gymnasium.make("hyper_rl.envs.gym_tasks:hyper_rl/Room-v0").reset(seed=0)
from hyper_rl.envs.gym_tasks import REGISTRATIONS, task_id
from hyper_rl.errors import UserError
for name in REGISTRATIONS:
    try:
        gymnasium.make(task_id(name))
    except UserError as error:
        print(name, error)
"""


def test_a_missing_simulator_is_named_and_hurts_only_its_own_tasks() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_SIMULATORS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said.keys() == REGISTRATIONS.keys() - {"Room"}
    assert "pip install 'hyper-rl[minigrid]'" in said["Fetch-8x8"]
    assert all("pip install 'hyper-rl[mujoco]'" in said[name] for name in (MAZE, "Hopper", "SparseHopper"))


def test_registering_does_not_start_jax() -> None:
    program = "import sys, hyper_rl.envs.gym_tasks; print('jax' in sys.modules, 'mujoco' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.parametrize("name", [*SETTINGS, "Room"])
def test_gymnasiums_own_checker_passes(name: str) -> None:
    check_env(make(name).unwrapped, skip_render_check=True)


def episode(env: Any, seed: int, actions: Any) -> list[Any]:
    first, info = env.reset(seed=seed)
    return [(first.tolist(), info), *((o.tolist(), *rest) for o, *rest in map(env.step, actions))]


@pytest.mark.parametrize("name", [MAZE, "LargeMaze-Hard"])
def test_an_episode_of_a_maze_is_a_function_of_its_seed(name: str) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (60, 2)).astype(np.float32)
    env, other = make(name), make(name)
    expected = episode(env, 5, actions)
    assert episode(other, 5, actions) == expected
    assert episode(env, 5, actions) == expected, "nothing is carried over from the episode before"
    assert episode(env, 6, actions) != expected
    copied = pickle.loads(pickle.dumps(env.unwrapped))
    assert episode(copied, 5, actions) == expected


def test_a_maze_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    env = make("LargeMaze-Easy")
    assert list(tmp_path.iterdir()) == []
    env.reset(seed=0)


@pytest.mark.parametrize("name", [MAZE, "LargeMaze-Easy"])
def test_a_maze_follows_the_jax_task_to_the_goal(name: str) -> None:
    env = make(name)
    task = make_maze(name)
    assert env.unwrapped.cell_count == task.spec.cells
    assert env.unwrapped.cell_grid == task.spec.grid
    controller = WaypointController(task.layout, task.goal, 2, 3.0, 0.3)
    observation, info = env.reset(seed=3)
    states, cells, actions = [observation], [info["cell"]], []
    ends: list[tuple[float, bool, bool]] = []
    while not ends or not ends[-1][1]:
        actions.append(controller.act(controller.targets, observation, np))
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        states.append(observation)
        cells.append(info["cell"])
        ends.append((reward, terminated, info["success"]))
        assert not truncated
        assert observation in env.observation_space
    with jax.enable_x64(True):
        goal_x, goal_y = (jnp.asarray(z) for z in env.unwrapped.goal)

        def follow(state: MazeState, action: Float[Array, "2"]) -> tuple[MazeState, Any]:
            result = task.step(state, action, jax.random.key(0))
            return result.state, (task.observe(result.state), task.cell(result.state), result)

        start = MazeState(Ball(*jnp.asarray(states[0])), goal_x, goal_y)
        _, (path, visited, results) = jax.jit(lambda: jax.lax.scan(follow, start, jnp.asarray(np.array(actions))))()
    assert np.abs(np.asarray(path) - np.array(states[1:])).max() < 1e-10
    assert np.asarray(visited).tolist() == cells[1:]
    assert len(set(cells)) > 8
    expected = np.stack([results.reward, results.terminated, results.success], axis=1)
    assert expected.tolist() == np.array(ends, float).tolist()
    assert ends[-1] == (1.0, True, True)
    assert {end for end in ends[:-1]} == {(0.0, False, False)}


def test_the_time_limit_of_a_maze_is_no_termination() -> None:
    env = make("MediumMaze-Medium")
    env.reset(seed=0)
    for step in range(1, 201):
        _, reward, terminated, truncated, info = env.step(np.zeros(2, np.float32))
        assert (reward, terminated, info["success"]) == (0.0, False, False)
        assert truncated == (step == 200)


def test_a_maze_takes_other_cells_and_refuses_walls() -> None:
    env = make(MAZE, start=(6, 1), goal=(1, 6)).unwrapped
    first, info = env.reset(seed=0)
    assert env.layout.free_cells[info["cell"]] == (6, 1)
    assert np.abs(first[:2] - env.layout.centre((6, 1))).max() <= 0.25
    assert np.abs(np.array(env.goal) - env.layout.centre((1, 6))).max() <= 0.25
    with pytest.raises(UserError, match=r"goal: the goal cell \(0, 0\) is a wall"):
        make(MAZE, goal=(0, 0))


def test_a_maze_is_drawn_where_mujoco_can_render(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "egl")
    import mujoco

    try:  # MuJoCo alone, so that a fault of ours is not taken for a machine without graphics
        mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
    except Exception as error:  # what is raised depends on which part of the graphics system is missing
        pytest.skip(f"MuJoCo cannot render here: {error}")
    env = make(MAZE, render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (480, 480, 3)
    assert picture.std() > 1
    env.close()


def test_room_pays_and_ends_at_both_goals() -> None:
    env = make("Room", goal_reward=2.0, subgoal_reward=0.5)
    env.reset(seed=0)
    for action in [RIGHT, RIGHT, DOWN]:
        assert env.step(action)[1:4] == (0.0, False, False)
    observation, reward, terminated, truncated, info = env.step(DOWN)
    assert (observation, reward, terminated, truncated) == (17 * 30 + 17, 0.5, True, False)
    assert info == {"success": False, "cell": 17 * 30 + 17}
    assert isinstance(observation, np.int64)
    env.reset(seed=0)
    for action in [RIGHT] * 14 + [DOWN] * 13:
        env.step(action)
    assert env.step(DOWN)[1:] == (2.0, True, False, {"success": True, "cell": 899})
    assert (env.unwrapped.cell_count, env.unwrapped.cell_grid) == (900, (30, 30))


def test_room_is_drawn_from_above() -> None:
    env = make("Room", size=5, subgoal=(0, 0), render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step(RIGHT)
    after = env.render()
    assert before.shape == after.shape == (40, 40, 3)
    changed = (before != after).any(axis=-1).reshape(5, 8, 5, 8).any(axis=(1, 3))
    assert np.argwhere(changed).tolist() == [[2, 2], [2, 3]]
    with pytest.raises(UserError, match=r"room\.subgoal"):
        make("Room", size=5)


class Drift(eqx.Module):
    """Adds a random number to what the action says: shows which keys a task is handed."""

    horizon: int = 10
    spec: TaskSpec = eqx.field(static=True, default=TaskSpec("Drift", Box(1, -9.0, 9.0), Box(1, -1.0, 1.0), 1))

    def reset(self, key: PRNGKeyArray) -> Float[Array, "1"]:
        return jax.random.normal(key, (1,))

    def step(self, state: Float[Array, "1"], action: Float[Array, "1"], key: PRNGKeyArray) -> StepResult:
        moved = state + action + jax.random.normal(key, (1,))
        never = jnp.zeros((), bool)
        return StepResult(moved, moved[0], never, never)

    def observe(self, state: Float[Array, "1"]) -> Float[Array, "1"]:
        return state

    def cell(self, state: Float[Array, "1"]) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)


def test_a_jax_task_gets_the_keys_of_seed_and_step() -> None:
    task = Drift()
    env = JaxTaskEnv(task)
    check_env(env, skip_render_check=True)
    key = make_key(7)
    state = task.reset(key)
    observation, _ = env.reset(seed=7)
    assert observation.dtype == env.observation_space.dtype == np.float32
    for number in range(3):
        np.testing.assert_array_equal(observation, state)
        state = task.step(state, jnp.full(1, 0.5), jax.random.fold_in(key, number)).state
        observation, reward, *_ = env.step(np.full(1, 0.5, np.float32))
        assert reward == float(state[0])
    observation += 1  # what was handed out belongs to the caller
    env.reset(seed=7)
    env.reset()
    unseeded = env.step(np.zeros(1, np.float32))[0]
    env.reset(seed=7)
    env.reset()
    np.testing.assert_array_equal(env.step(np.zeros(1, np.float32))[0], unseeded)


def test_a_jax_task_keeps_double_precision() -> None:
    with jax.enable_x64(True):
        env = JaxTaskEnv(make_maze(MAZE))
        assert env.observation_space.dtype == env.action_space.dtype == np.float64
        first, _ = env.reset(seed=1)
        expected = make_maze(MAZE).reset(make_key(1))
        assert first.tolist() == [float(z) for z in expected.ball]
        action = np.array([1 / 3, -1 / 7])
        moved = make_maze(MAZE).step(expected, jnp.asarray(action), make_key(0)).state
        assert np.abs(env.step(action)[0] - np.array(moved.ball)).max() < 1e-15

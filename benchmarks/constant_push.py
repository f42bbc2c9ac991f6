"""How far does one get in a maze with the same action for ever? A policy that has learned nothing and is stuck at the
edge of its actions does just that.

    python benchmarks/constant_push.py
    python benchmarks/constant_push.py --task MediumMaze-Easy --start 1 1 --goal 6 5
    python benchmarks/constant_push.py --task MediumMaze-Easy LargeMaze-Medium --mujoco 60

Success of the best of 32 directions over episodes of the task, how many of them ever succeed, and the mean of all.
`--mujoco` has the best one in so many episodes of the real maze besides.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from hyper_rl.envs.maze import SETTINGS, MazeState, PointMaze, make_maze

DIRECTIONS = 32


class Pushed(NamedTuple):
    action: Float[np.ndarray, "2"]
    """The best."""
    best: float
    ever: int
    """Directions that succeed in any episode."""
    mean: float


def directions(count: int) -> Float[np.ndarray, "count 2"]:
    """At the edge of the square of actions."""
    angle = 2 * np.pi * np.arange(count) / count
    push = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return push / np.abs(push).max(axis=1, keepdims=True)


def push(task: PointMaze, episodes: int, key: PRNGKeyArray) -> Pushed:
    def succeeds(action: Float[Array, "2"], key: PRNGKeyArray) -> Bool[Array, ""]:
        def step(_: Array, carry: tuple[MazeState, Array]) -> tuple[MazeState, Array]:
            state, done = carry
            result = task.step(state, action, key)
            return result.state, done | result.success

        return jax.lax.fori_loop(0, int(task.horizon), step, (task.reset(key), jnp.zeros((), bool)))[1]

    over_episodes = jax.vmap(succeeds, in_axes=(None, 0))
    keys = jax.random.split(key, episodes)
    tried = directions(DIRECTIONS)
    found = jax.jit(jax.vmap(over_episodes, in_axes=(0, None)))(jnp.asarray(tried, float), keys)
    success = np.asarray(found).mean(axis=1)
    return Pushed(tried[success.argmax()], float(success.max()), int((success > 0).sum()), float(success.mean()))


def push_in_mujoco(task: PointMaze, action: Float[np.ndarray, "2"], episodes: int) -> float:
    import gymnasium

    env = gymnasium.make(f"hyper_rl/{task.name}-v0", start=task.start, goal=task.goal)
    successes = 0
    for episode in range(episodes):
        env.reset(seed=episode)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(action.astype(np.float32))
            over = terminated or truncated
        successes += bool(info["success"])
    return successes / episodes


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--start", type=int, nargs=2, help="row and column of another start cell")
    parser.add_argument("--goal", type=int, nargs=2, help="row and column of another goal cell")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--mujoco", type=int, default=0, metavar="EPISODES")
    options = parser.parse_args()
    start, goal = (None if cell is None else (cell[0], cell[1]) for cell in (options.start, options.goal))
    print(f"| task | cells | success of the best push | directions of {DIRECTIONS} that ever succeed | mean of all |")
    print("|---|---|---|---|---|")
    for name in options.task:
        task = make_maze(name, start=start, goal=goal)
        found = push(task, options.episodes, jax.random.key(0))
        print(f"| {name} | {task.start} to {task.goal} | {found.best:.2f} | {found.ever} | {found.mean:.3f} |")
        if options.mujoco:
            print(f"the best push in MuJoCo: {push_in_mujoco(task, found.action, options.mujoco):.2f}")


if __name__ == "__main__":
    main()

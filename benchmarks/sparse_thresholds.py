"""Are the sparse locomotion tasks sparse? What agents that know nothing collect on them.

    python benchmarks/sparse_thresholds.py --policies random untrained held --steps 20000
    python benchmarks/sparse_thresholds.py --tasks HalfCheetah --agent runs/HalfCheetah-exploit-paper/runs/0/agent

A threshold is right when behaviour without training collects (almost) nothing, so that there is something to explore
for, and a trained agent holds it. `measure` takes any maker of policies, so a trained agent is judged by the same
code. Prints one line per task and policy and, last, one JSON object.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import gymnasium
import jax
import numpy as np

import hyper_rl
from hyper_rl.envs.gym_tasks import task_id
from hyper_rl.envs.gym_tasks.locomotion import THRESHOLDS
from hyper_rl.networks import make_mlp
from hyper_rl.threefry import make_key

Policy: TypeAlias = Callable[[Any], Any]
"""From an observation to an action."""
PolicyMaker: TypeAlias = Callable[[Any, np.random.Generator], Policy]
"""A policy for one episode of this environment."""

NOISE = 0.1
WIDTHS = (256, 256)

_draw_actor = jax.jit(make_mlp, static_argnums=1)


def uniform(env: Any, rng: np.random.Generator) -> Policy:
    """A fresh action anywhere in its range at every step: what fills the replay buffer before learning starts."""
    low, high = env.action_space.low, env.action_space.high
    return lambda observation: rng.uniform(low, high)


def untrained_actor(env: Any, rng: np.random.Generator) -> Policy:
    """TD3's actor as it is before its first update, drawn anew in every episode, with TD3's exploration noise."""
    low, high = env.action_space.low, env.action_space.high
    sizes = (env.observation_space.shape[0], *WIDTHS, *env.action_space.shape)
    actor = jax.tree.map(np.asarray, _draw_actor(make_key(int(rng.integers(2**32))), sizes))

    def act(observation: Any) -> Any:
        x = observation
        for weight, bias in zip(actor.weights[:-1], actor.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias, 0.0)
        unit = np.tanh(x @ actor.weights[-1] + actor.biases[-1]) + NOISE * rng.standard_normal(low.shape)
        return low + (np.clip(unit, -1, 1) + 1) / 2 * (high - low)

    return act


def held(env: Any, rng: np.random.Generator) -> Policy:
    """Every motor pushes fully one way for the whole episode: the strongest way of falling over."""
    low, high = env.action_space.low, env.action_space.high
    sides = rng.choice([-1.0, 1.0], low.shape)

    def act(observation: Any) -> Any:
        unit = np.clip(sides + NOISE * rng.standard_normal(low.shape), -1, 1)
        return low + (unit + 1) / 2 * (high - low)

    return act


def trained(folder: str) -> PolicyMaker:
    """A saved agent, without noise; one trained on the dense task shows whether the threshold can be held."""
    agent = hyper_rl.load(folder)
    return lambda env, rng: lambda observation: agent.predict(observation)[0]


POLICIES: Mapping[str, PolicyMaker] = {"random": uniform, "untrained": untrained_actor, "held": held}


@dataclass(frozen=True)
class Found:
    """What one kind of policy collected on one task. Shares are fractions."""

    task: str
    policy: str
    threshold: float
    steps: int
    episodes: int
    rewarded_steps: float
    rewarded_episodes: float
    mean_return: float
    """Over whole episodes; at most 1000."""
    top_speed: float
    """m/s, over all steps."""


def measure(name: str, policy: str, make_policy: PolicyMaker, steps: int, seed: int, threshold: float | None) -> Found:
    """Whole episodes until at least `steps` steps have been made."""
    env: Any = gymnasium.make(task_id(f"Sparse{name}"), threshold=threshold)
    rng = np.random.default_rng(seed)
    returns: list[float] = []
    made, top_speed = 0, -np.inf
    while made < steps:
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        act, total, over = make_policy(env, rng), 0.0, False
        while not over:
            observation, reward, terminated, truncated, info = env.step(act(observation).astype(np.float32))
            over = terminated or truncated
            total, made, top_speed = total + reward, made + 1, max(top_speed, info["x_velocity"])
        returns.append(total)
    return Found(
        task=f"Sparse{name}",
        policy=policy,
        threshold=env.unwrapped.threshold,
        steps=made,
        episodes=len(returns),
        rewarded_steps=sum(returns) / made,
        rewarded_episodes=float(np.mean(np.array(returns) > 0)),
        mean_return=float(np.mean(returns)),
        top_speed=float(top_speed),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(THRESHOLDS), default=list(THRESHOLDS))
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=list(POLICIES))
    parser.add_argument("--agent", default=None, help="folder of a trained agent, instead of the policies")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--threshold", type=float, default=None, help="instead of each task's own")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    policies = POLICIES if args.agent is None else {"trained": trained(args.agent)}
    table = []
    for name in args.tasks:
        for policy in args.policies if args.agent is None else policies:
            found = measure(name, policy, policies[policy], args.steps, args.seed, args.threshold)
            table.append(found)
            print(
                f"{found.task:18} {policy:10} > {found.threshold:g} m/s: reward in {found.rewarded_steps:.3%} of"
                f" {found.steps} steps, {found.rewarded_episodes:.2%} of {found.episodes} episodes;"
                f" mean return {found.mean_return:.3f}; top speed {found.top_speed:.2f}",
                flush=True,
            )
    print(json.dumps([asdict(found) for found in table]))


if __name__ == "__main__":
    main()

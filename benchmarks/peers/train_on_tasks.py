"""Can other libraries use the registered tasks as they are? Checked with Stable-Baselines3 and SBX.

    PYTHONPATH=src .bench-venv/bin/python benchmarks/peers/train_on_tasks.py

First SB3's own environment checker on every task, then both libraries' TD3 trained for a short while on a maze, on the
id alone: no wrapper, no conversion, the libraries' defaults except that learning starts early enough for updates to
happen. Needs the peers' environment (`benchmarks/peers_requirements.txt`) and this package's simulators in it. Exits
with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Any

import gymnasium
import numpy as np

from hyper_rl.envs.gym_tasks import REGISTRATIONS, task_id

TD3_OF = {"SB3": "stable_baselines3", "SBX": "sbx"}
PACKAGES = ("stable_baselines3", "sbx-rl", "torch", "jax", "gymnasium", "gymnasium-robotics", "mujoco", "minigrid")


@dataclass(frozen=True)
class Outcome:
    what: str
    passed: bool
    note: str

    def __str__(self) -> str:
        return f"{self.what:40} {'ok' if self.passed else 'FAILED':7} {self.note}"


def check(name: str) -> Outcome:
    """SB3's checker: errors fail, its advice (warnings) is only quoted."""
    what = f"check_env {task_id(name)}"
    with warnings.catch_warnings(record=True) as advice:
        warnings.simplefilter("always")
        env = gymnasium.make(task_id(name))
        try:
            import_module("stable_baselines3.common.env_checker").check_env(env, warn=True, skip_render_check=True)
        except Exception as error:
            return Outcome(what, False, f"{type(error).__name__}: {error}")
        finally:
            env.close()
    own = sorted({str(warning.message).split(". ")[0] for warning in advice if "stable_baselines3" in warning.filename})
    return Outcome(what, True, "; ".join(own))


def parameters(model: Any) -> list[Any]:
    """The actor's parameters as arrays, whichever library they belong to."""
    if hasattr(model.policy, "actor_state"):
        return [np.array(leaf) for leaf in import_module("jax").tree.leaves(model.policy.actor_state.params)]
    return [tensor.detach().numpy().copy() for tensor in model.policy.actor.parameters()]


def train(library: str, name: str, steps: int, learning_starts: int) -> Outcome:
    what = f"{library} TD3 on {task_id(name)}"
    try:
        model = import_module(TD3_OF[library]).TD3("MlpPolicy", task_id(name), learning_starts=learning_starts, seed=0)
        before, begun = parameters(model), time.perf_counter()
        model.learn(steps)
        took = time.perf_counter() - begun
    except Exception as error:
        return Outcome(what, False, f"{type(error).__name__}: {error}")
    after = parameters(model)
    moved = max(float(np.abs(new - old).max()) for new, old in zip(after, before, strict=True))
    finite = all(np.isfinite(new).all() for new in after)
    episodes = len(model.ep_info_buffer)
    note = f"{model.num_timesteps} steps, {episodes} episodes, actor moved by {moved:.3g}, {took:.0f} s"
    return Outcome(what, model.num_timesteps == steps and moved > 0 and finite, note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(REGISTRATIONS), default=list(REGISTRATIONS))
    parser.add_argument("--train-on", choices=list(REGISTRATIONS), default="MediumMaze-Easy")
    parser.add_argument("--libraries", nargs="*", choices=list(TD3_OF), default=list(TD3_OF))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--learning-starts", type=int, default=500)
    args = parser.parse_args()
    print(", ".join(f"{package} {version(package)}" for package in PACKAGES), flush=True)
    outcomes = []
    for name in args.tasks:
        outcomes.append(check(name))
        print(outcomes[-1], flush=True)
    for library in args.libraries:
        outcomes.append(train(library, args.train_on, args.steps, args.learning_starts))
        print(outcomes[-1], flush=True)
    sys.exit(0 if all(outcome.passed for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()

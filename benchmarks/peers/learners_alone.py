"""A peer's DQN on CartPole-v1 or SAC on Pendulum-v1, judged as `benchmarks/learners_alone.py` judges ours.

    python benchmarks/peers/learners_alone.py dqn --library sb3 --seed 0

DQN needs the hyper-parameters tuned for this task by rl-baselines3-zoo (hyperparams/dqn.yml): with the library's own
defaults it does not solve it. SAC runs with the library's defaults, which are ours as well (rate 3e-4, batch 256, two
layers of 256, tau 0.005, one update a step). Prints one JSON object with the fields of `Result`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

TASKS = {"dqn": "CartPole-v1", "sac": "Pendulum-v1"}
# The zoo lets epsilon fall over 16% of 50,000 steps.
EPSILON_STEPS = 8_000


def settings(case: str, steps: int, warmup: int) -> dict[str, Any]:
    if case == "sac":
        return {"learning_starts": warmup, "policy_kwargs": {"net_arch": [256, 256]}}
    return {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": warmup,
        "gamma": 0.99,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": EPSILON_STEPS / steps,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=list(TASKS))
    parser.add_argument("--library", choices=["sb3", "sbx"], default="sb3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--warmup", type=int, default=1_000)
    parser.add_argument("--wanted", type=float, default=475.0)
    parser.add_argument("--evaluate-every", type=int, default=2_500)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--fresh-episodes", type=int, default=100)
    parser.add_argument("--fresh-seed", type=int, default=10_000)
    args = parser.parse_args()

    import_module("torch").set_num_threads(1)
    make_vec_env = import_module("stable_baselines3.common.env_util").make_vec_env
    evaluate_policy = import_module("stable_baselines3.common.evaluation").evaluate_policy
    callbacks = import_module("stable_baselines3.common.callbacks")
    library = import_module("stable_baselines3" if args.library == "sb3" else "sbx")
    algorithm = getattr(library, args.case.upper())

    task = TASKS[args.case]
    numbers = settings(args.case, args.steps, args.warmup)
    model = algorithm("MlpPolicy", task, seed=args.seed, device="cpu", verbose=0, **numbers)
    # All episodes of one evaluation side by side, one in each copy of the task.
    copies = make_vec_env(task, n_envs=args.episodes, seed=args.fresh_seed + 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        callback = callbacks.EvalCallback(
            copies,
            n_eval_episodes=args.episodes,
            eval_freq=args.evaluate_every,
            best_model_save_path=folder,
            log_path=folder,
            verbose=0,
        )
        model.learn(args.steps, callback=callback, log_interval=10**9)
        judged = np.load(Path(folder) / "evaluations.npz")
        best = algorithm.load(Path(folder) / "best_model.zip", device="cpu")
    fresh = make_vec_env(task, n_envs=args.episodes, seed=args.fresh_seed)
    fresh_return, _ = evaluate_policy(best, fresh, n_eval_episodes=args.fresh_episodes)
    returns, at = judged["results"].mean(axis=1), judged["timesteps"]
    solved = at[returns >= args.wanted]
    result = {
        "who": f"{args.library} {version('stable-baselines3' if args.library == 'sb3' else 'sbx-rl')}",
        "case": args.case,
        "seed": args.seed,
        "best_step": int(at[returns.argmax()]),
        "best_return": round(float(returns.max()), 1),
        "fresh_return": round(float(fresh_return), 1),
        "first_solved": int(solved[0]) if len(solved) else None,
        "last_return": round(float(returns[-1]), 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""DQN alone on CartPole-v1 and SAC alone on Pendulum-v1 (both as JAX tasks): does each learner learn by itself?

    python benchmarks/learners_alone.py                      # both, three seeds
    python benchmarks/learners_alone.py --cases dqn --peer   # and the same task in Stable-Baselines3 or SBX beside it

Every 2,500 steps the policy is judged on 20 episodes and the best one of each seed is kept; what counts is the mean
return of the kept policy over 100 fresh episodes. Peers (`peers/learners_alone.py`, in an environment of their own)
are judged in the same way. Prints a table and, last, one JSON object.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hyper_rl.envs.cartpole import CartPole
from hyper_rl.envs.pendulum import Pendulum
from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.sac import SAC
from hyper_rl.methods.explorer_reward import ExplorerReward
from hyper_rl.methods.policies import make_policies
from hyper_rl.threefry import make_key
from hyper_rl.training.device_loop import advance_to, init_runs
from hyper_rl.training.evaluation import evaluate, judge_episodes, judged_policies, summarise
from hyper_rl.training.program import Program, Streams
from hyper_rl.types import stack_runs

HERE = Path(__file__).parent
PEER_PYTHON = HERE.parent / ".bench-venv" / "bin" / "python"
EVALUATE_EVERY, EPISODES, FRESH_EPISODES = 2_500, 20, 100
# Far from any training seed, and apart from each other: a peer's copies of the task take seeds one after another.
FRESH_SEED, FRESH_APART = 10_000, 1_000


@dataclass(frozen=True)
class Case:
    """One learner on one task."""

    task: Any
    learner: Any
    steps: int
    warmup: int
    wanted: float
    """Mean return that counts as solved."""
    peer: str


CASES = {
    "dqn": Case(CartPole(), DQN(), steps=100_000, warmup=1_000, wanted=475.0, peer="sb3"),
    "sac": Case(Pendulum(), SAC(), steps=20_000, warmup=1_000, wanted=-200.0, peer="sbx"),
}


@dataclass(frozen=True)
class Result:
    """Of one seed. The peers' script prints the same fields."""

    who: str
    case: str
    seed: int
    best_step: int
    best_return: float
    """Over the episodes it was chosen by: flattered by the choice."""
    fresh_return: float
    """Of the same policy over fresh episodes: the figure that counts."""
    first_solved: int | None
    """First step at which an evaluation reached the wanted return."""
    last_return: float
    """Of the policy at the last step, which need not be a good one."""


def make_program(case: Case, seeds: range) -> Program:
    policies, budget = make_policies("exploit", 1.0, 1.0), jnp.asarray(case.steps, jnp.int32)
    return stack_runs(
        [
            Program(
                task=case.task,
                learner=case.learner,
                bonus=None,
                policies=policies,
                explorer_reward=ExplorerReward(0.0),
                streams=Streams.from_seed(seed),
                budget=budget,
                capacity=case.steps,
            )
            for seed in seeds
        ]
    )


def keep_better(better: jax.Array, new: Any, old: Any) -> Any:
    """Run by run."""
    return jax.tree.map(lambda n, o: jnp.where(better.reshape(-1, *[1] * (n.ndim - 1)), n, o), new, old)


def ours(name: str, seeds: range, *, layer_norm: bool) -> list[Result]:
    case = CASES[name]
    case = dataclasses.replace(case, learner=dataclasses.replace(case.learner, layer_norm=layer_norm))
    program = make_program(case, seeds)
    state = init_runs(program)
    judge = jax.jit(partial(evaluate, episodes=EPISODES))
    best_policies, best = judged_policies(program, state), jnp.full((len(seeds),), -jnp.inf, float)
    last = best
    best_step, first_solved = np.zeros(len(seeds), int), np.full(len(seeds), case.steps + 1)
    for index, step in enumerate(range(EVALUATE_EVERY, case.steps + 1, EVALUATE_EVERY), start=1):
        state = advance_to(program, state, step - EVALUATE_EVERY, step, case.warmup)
        last = returns = judge(program, state, jnp.asarray(index, jnp.int32)).total
        better = returns > best
        best_policies = keep_better(better, judged_policies(program, state), best_policies)
        best, best_step = jnp.maximum(best, returns), np.where(better, step, best_step)
        first_solved = np.where(np.asarray(returns) >= case.wanted, np.minimum(first_solved, step), first_solved)
        print(f"{name} step {step:6d} returns {[round(float(r), 1) for r in returns]}", flush=True)

    keys = jnp.stack([make_key(FRESH_SEED + FRESH_APART * seed) for seed in seeds])
    fresh = jax.jit(partial(judge_episodes, episodes=FRESH_EPISODES))
    totals = summarise(*fresh(program.task, program.learner, best_policies, keys)).total
    return [
        Result(
            who="hyper-rl, layer norm" if layer_norm else "hyper-rl",
            case=name,
            seed=seed,
            best_step=int(best_step[run]),
            best_return=round(float(best[run]), 1),
            fresh_return=round(float(totals[run]), 1),
            first_solved=int(first_solved[run]) if first_solved[run] <= case.steps else None,
            last_return=round(float(last[run]), 1),
        )
        for run, seed in enumerate(seeds)
    ]


def peer(name: str, library: str, seed: int) -> Result:
    case = CASES[name]
    command = [str(PEER_PYTHON), str(HERE / "peers" / "learners_alone.py"), name, "--library", library]
    numbers = {
        "seed": seed,
        "steps": case.steps,
        "warmup": case.warmup,
        "wanted": case.wanted,
        "evaluate-every": EVALUATE_EVERY,
        "episodes": EPISODES,
        "fresh-episodes": FRESH_EPISODES,
        "fresh-seed": FRESH_SEED + FRESH_APART * seed,
    }
    flags = [f"--{flag}={value}" for flag, value in numbers.items()]
    output = subprocess.run([*command, *flags], check=True, capture_output=True, text=True).stdout
    return Result(**json.loads(output.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--layer-norm", action="store_true", help="normalise hidden layers, as preset robust does")
    parser.add_argument("--peer", action="store_true", help="also train the peer, one seed after another")
    parser.add_argument("--library", choices=["sb3", "sbx"], help="the peer, where not the usual one")
    parser.add_argument("--only-peer", action="store_true", help="train the peer alone")
    args = parser.parse_args()
    results: list[Result] = []
    for name in args.cases:
        seeds = range(args.seeds)
        if not args.only_peer:
            results += ours(name, seeds, layer_norm=args.layer_norm)
        if args.peer or args.only_peer:
            results += [peer(name, args.library or CASES[name].peer, seed) for seed in seeds]
    print(
        "| who | learner | seed | best step | return over fresh episodes | wanted | first reached | at the last step |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for r in results:
        wanted, reached = CASES[r.case].wanted, r.first_solved if r.first_solved is not None else "never"
        cells = (r.who, r.case, r.seed, r.best_step, r.fresh_return, f"{wanted:g}", reached, r.last_return)
        print("| " + " | ".join(map(str, cells)) + " |")
    print(json.dumps({"device": jax.devices()[0].device_kind, "results": [asdict(r) for r in results]}))


if __name__ == "__main__":
    main()

"""The provable version: LSVI-UCB and Linear-UCB-Hyper (the paper's Algorithm 1) on linear MDPs. See docs/linear.md."""

from hyper_rl.theory.families import deepsea, lock, lowrank, riverswim, room, timed_lock
from hyper_rl.theory.mdp import LinearMDP, linear_mdp, one_hot
from hyper_rl.theory.runs import Result, Trace, grid, run
from hyper_rl.theory.settings import Settings, make_settings, theory_beta
from hyper_rl.theory.solve import Solution, greedy, optimal, policy_value

__all__ = [
    "LinearMDP",
    "Result",
    "Settings",
    "Solution",
    "Trace",
    "deepsea",
    "greedy",
    "grid",
    "linear_mdp",
    "lock",
    "lowrank",
    "make_settings",
    "one_hot",
    "optimal",
    "policy_value",
    "riverswim",
    "room",
    "run",
    "theory_beta",
    "timed_lock",
]

"""Judging policies that come from files, without anything of the training they come from."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from hyper_rl.config import make_task
from hyper_rl.settings import TaskChoice
from hyper_rl.training.agent_file import Agent
from hyper_rl.training.evaluation import Judgement, judge_episodes, summarise
from hyper_rl.training.host_evaluation import HostJudge
from hyper_rl.training.program import Streams
from hyper_rl.types import stack_runs


def judge_agents(
    agents: list[Agent], choice: TaskChoice, key: PRNGKeyArray, episodes: int, *, workers: int = 0
) -> Judgement:
    """All agents on the same `episodes` starts, side by side."""
    learner = stack_runs([agent.learner for agent in agents])
    policies = stack_runs([agent.policy for agent in agents])
    keys = jnp.stack([key] * len(agents))
    if choice.source is not None:
        judge = HostJudge(choice.source, choice.spec, choice.horizon, workers=workers)
        try:
            return jax.device_get(judge.judge(learner, policies, keys, episodes))
        finally:
            judge.close()
    task = stack_runs([make_task(choice.name, choice.options, None)] * len(agents))
    compiled = jax.jit(partial(judge_episodes, episodes=episodes))
    return jax.device_get(summarise(*compiled(task, learner, policies, keys)))


def judge_policy(agent: Agent, choice: TaskChoice, number: int, episodes: int) -> Judgement:
    """On the very episodes that evaluation `number` of its run would have been judged on."""
    key = jax.random.fold_in(Streams.from_seed(agent.meta["seed"]).evaluations, number)
    return judge_agents([agent], choice, key, episodes)

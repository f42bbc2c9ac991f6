"""The learners by name."""

from __future__ import annotations

from hyper_rl.learners.dqn import DQN
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.registry import Registry

LEARNERS = Registry("learner", {"td3": TD3, "sac": SAC, "dqn": DQN, "tabular_q": TabularQ})

"""The presets: what the parts are set to when nobody says otherwise.

`paper` is the paper as this project reads it. `robust` (the default) keeps the method and changes what keeps an
optimiser from following it at extreme beta, or on a task in unusual units: LayerNorm in the critics, models that
predict normalised changes, learners that see normalised observations (except in mazes, where they are of order one), a
bonus that pays nothing on average, and an explorer's reward brought to unit scale. `minigrid` has the networks and
optimisers of the discrete experiments (appendix A.5, which takes them from LESSON), with a loss, a discount and a
centred bonus that learn there. Tables need none of that: for `tabular_q` all presets are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.bonuses.icm import ICM
from hyper_rl.bonuses.rnd import LESSON_OUTPUTS, LESSON_TRUNK, RND
from hyper_rl.errors import require_choice
from hyper_rl.learners.dqn import DQN, minigrid_dqn
from hyper_rl.learners.sac import SAC
from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.explorer_reward import BonusScale, RewardScale

PresetName = Literal["paper", "robust", "minigrid"]
PRESETS: tuple[PresetName, ...] = ("paper", "robust", "minigrid")


@dataclass(frozen=True)
class Preset:
    learners: Mapping[str, Any]
    bonuses: Mapping[str, Any]
    bonus_scale: BonusScale
    reward_scale: RewardScale
    normalise_observations: bool = False
    """Deep learners see vectors in units of their running deviation, where the task's own are not of order one."""
    train_every: int = 1
    warmup: int = 25_000
    """Steps with uniform actions for deep learners,"""
    warmup_share: float = 0.5
    """but at most this share of the budget: a short one would otherwise end before anything is learned."""
    p_end: str | float = 0.001
    """Truncation probability at the last step for deep learners."""


PAPER = Preset(
    learners=MappingProxyType({"td3": TD3(), "sac": SAC(), "dqn": DQN(), "tabular_q": TabularQ()}),
    bonuses=MappingProxyType({"disagreement": Disagreement(), "rnd": RND(), "icm": ICM(), "counts": Counts()}),
    bonus_scale="none",
    reward_scale="none",
)
ROBUST = Preset(
    learners=MappingProxyType(
        {
            "td3": TD3(layer_norm=True),
            "sac": SAC(layer_norm=True),
            "dqn": DQN(layer_norm=True),
            "tabular_q": TabularQ(),
        }
    ),
    bonuses=MappingProxyType(
        {**PAPER.bonuses, "disagreement": Disagreement(target="change", normalise=True), "rnd": RND(lr=1e-3)}
    ),
    bonus_scale="centred",
    reward_scale="running-rms",
    normalise_observations=True,
    warmup_share=0.1,
)
MINIGRID = Preset(
    learners=MappingProxyType({**PAPER.learners, "dqn": minigrid_dqn()}),
    bonuses=MappingProxyType({**PAPER.bonuses, "rnd": RND(widths=LESSON_TRUNK, outputs=LESSON_OUTPUTS)}),
    bonus_scale="centred",
    reward_scale="none",
    train_every=10,
    warmup=1_000,
    p_end="1/H",
)


def find_preset(name: str, learner: str = "td3") -> Preset:
    require_choice("preset", name, PRESETS)
    if name == "paper" or learner == "tabular_q":
        return PAPER
    return ROBUST if name == "robust" else MINIGRID

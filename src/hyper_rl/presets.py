"""The two presets.

`paper` is the paper as this project reads it. `robust` (the default) keeps the method and changes what keeps an
optimiser from following it at extreme beta: LayerNorm in the critics, forward models that learn faster and work in
normalised units, and an explorer's reward brought to unit scale. Tables need none of that: for `tabular_q` the two
presets are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.errors import require_choice
from hyper_rl.learners.td3 import TD3
from hyper_rl.methods.explorer_reward import BonusScale, RewardScale

PresetName = Literal["paper", "robust"]
PRESETS: tuple[PresetName, ...] = ("paper", "robust")


@dataclass(frozen=True)
class Preset:
    td3: TD3
    disagreement: Disagreement
    bonus_scale: BonusScale
    reward_scale: RewardScale


def find_preset(name: str, learner: str = "td3") -> Preset:
    require_choice("preset", name, PRESETS)
    plain = Preset(TD3(), Disagreement(), "none", "none")
    if name == "paper" or learner == "tabular_q":
        return plain
    return Preset(
        TD3(layer_norm=True),
        Disagreement(lr=1e-3, target="change", normalise=True),
        bonus_scale="running-rms",
        reward_scale="running-rms",
    )

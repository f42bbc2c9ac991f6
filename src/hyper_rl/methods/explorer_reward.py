"""What the explorer is paid: r + beta b, optionally brought to unit scale; for LESSON beta b alone.

`bonus_scale` divides b by its own running deviation, root mean square or mean, which gives beta a meaning that does not
depend on the units of the bonus: under the mean, a step is worth beta on average, however heavy the tail of the bonus
is. `reward_scale` multiplies the sum by (1 - gamma) / RMS(r + beta b), which keeps the explorer's Q of order one at
every beta: the explorer's objective is scale-free, its optimiser is not. Neither changes an optimum.

`centred` does: it takes the running mean away before it divides by the deviation. A bonus that is never negative pays
for every step that an episode lasts, so an explorer keeps away from whatever ends one, the goal among it; centred, the
known costs something and only what is newer than usual pays.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hyper_rl.errors import is_number, require, require_choice, require_finite
from hyper_rl.normalise import (
    RunningScale,
    scale_add,
    scale_centre,
    scale_init,
    scale_mean,
    scale_rms,
    scale_std,
)

BonusScale = Literal["none", "running-std", "running-rms", "running-mean", "centred"]
BONUS_SCALES: tuple[BonusScale, ...] = ("none", "running-std", "running-rms", "running-mean", "centred")
MEASURES = {"running-rms": scale_rms, "running-std": scale_std, "running-mean": scale_mean, "centred": scale_std}
"""What each divides by."""
RewardScale = Literal["none", "running-rms"]


class ExplorerScales(NamedTuple):
    bonus: RunningScale
    reward: RunningScale


class ExplorerBatch(NamedTuple):
    rewards: Float[Array, " batch"]
    bonus: Float[Array, " batch"]
    """As it is paid, before beta."""
    bonus_mean: Float[Array, ""]
    """Mean raw bonus of the batch."""
    bonus_divisor: Float[Array, ""]
    """What the bonus was divided by."""
    task_share: Float[Array, ""]
    """Share of the explorer's reward that is task reward: |r| / (|r| + beta |b|), so that beta is seen to act."""


class ExplorerReward(eqx.Module):
    beta: float
    """The curiosity coefficient."""
    bonus_scale: BonusScale = eqx.field(static=True, default="none")
    """What the bonus is divided by, and whether its mean is taken away first."""
    reward_scale: RewardScale = eqx.field(static=True, default="none")
    """What the explorer's whole reward is divided by."""
    rate: float = eqx.field(static=True, default=1e-3)
    """Forgetting rate of the running scales, per update."""
    bonus_only: bool = eqx.field(static=True, default=False)
    """The task reward is no part of it (method lesson)."""

    def __check_init__(self) -> None:
        require_finite("beta", self.beta, low=0.0)
        require_choice("bonus_scale", self.bonus_scale, BONUS_SCALES)
        require_choice("reward_scale", self.reward_scale, ("none", "running-rms"))
        require(is_number(self.rate) and 0 < self.rate <= 1, "scale_rate", self.rate, "in (0, 1]")

    def init(self) -> ExplorerScales:
        return ExplorerScales(scale_init(), scale_init())

    def __call__(
        self,
        scales: ExplorerScales,
        r: Float[Array, " batch"],
        b: Float[Array, " batch"],
        gamma: Float[Array, ""] | float,
    ) -> tuple[ExplorerScales, ExplorerBatch]:
        bonus_scale, reward_scale = scales
        divisor = jnp.ones((), float)
        if self.bonus_scale != "none":
            bonus_scale = scale_add(bonus_scale, b, self.rate)
            divisor = MEASURES[self.bonus_scale](bonus_scale)
        scaled = (b - scale_centre(bonus_scale) if self.bonus_scale == "centred" else b) / divisor
        curiosity = self.beta * scaled
        rewards = curiosity if self.bonus_only else r + curiosity
        if self.reward_scale != "none":
            reward_scale = scale_add(reward_scale, rewards, self.rate)
            rewards = rewards * ((1 - gamma) / scale_rms(reward_scale))
        task, intrinsic = jnp.abs(r).mean(), jnp.abs(curiosity).mean()
        share = jnp.zeros((), float) if self.bonus_only else task / jnp.maximum(task + intrinsic, 1e-12)
        return ExplorerScales(bonus_scale, reward_scale), ExplorerBatch(rewards, scaled, b.mean(), divisor, share)

"""The bonuses by name."""

from __future__ import annotations

from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.disagreement import Disagreement
from hyper_rl.bonuses.icm import ICM
from hyper_rl.bonuses.rnd import RND
from hyper_rl.registry import Registry

BONUSES = Registry("bonus", {"disagreement": Disagreement, "rnd": RND, "icm": ICM, "counts": Counts})

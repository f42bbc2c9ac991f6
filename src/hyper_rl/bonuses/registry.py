"""The bonuses by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hyper_rl.bonuses.counts import Counts
from hyper_rl.bonuses.disagreement import Disagreement

BONUSES: Mapping[str, type[Any]] = MappingProxyType({"disagreement": Disagreement, "counts": Counts})

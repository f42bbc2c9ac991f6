"""The learners by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hyper_rl.learners.tabular_q import TabularQ
from hyper_rl.learners.td3 import TD3

LEARNERS: Mapping[str, type[Any]] = MappingProxyType({"td3": TD3, "tabular_q": TabularQ})

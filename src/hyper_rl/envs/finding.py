"""One thing that was found out about an environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    topic: str
    status: Status
    says: str
    data: dict[str, Any] = field(default_factory=dict)

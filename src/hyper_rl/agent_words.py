"""What an agent object says of itself."""

from __future__ import annotations

from collections.abc import Mapping

from hyper_rl.config import Config

NO_COPY = "agent: cannot be copied or pickled, as it holds environments; use save(path) and load(path)"


def shown_as(kind: str, config: Config, steps: int) -> str:
    """The call that makes such an agent, and how far it has come."""
    parts = [repr(config.task), f"learner={config.learner!r}"]
    if config.bonus != "none":  # exploit has none, and of a policy alone nobody knows it
        parts.append(f"bonus={config.bonus!r}")
    if config.method != "exploit":
        parts.append(f"beta={config.betas[0]:g}")
    return f"{kind}({', '.join(parts)}, seed={config.seeds[0]}, num_timesteps={steps})"


def evaluation_line(label: str, row: Mapping[str, float]) -> str:
    shown = (f"{name} {row[name]:.4g}" for name in ("success", "return", "behaviour_return"))
    return f"{label}: step {int(row['step'])}, {', '.join(shown)}"

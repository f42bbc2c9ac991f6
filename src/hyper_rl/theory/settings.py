"""The numbers Algorithm 1 takes (λ, β, β', p) and the paper's "theory β", checked once, here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from hyper_rl.errors import UserError
from hyper_rl.theory.mdp import LinearMDP


class Settings(eqx.Module):
    """Array leaves, so a sweep over any of them is a `vmap`. R = one entry per run (no axis inside the `vmap`)."""

    beta: Float[np.ndarray | Array, " R"]
    """β: the bonus of the optimistic Q̂."""
    beta_low: Float[np.ndarray | Array, " R"]
    """β': the malus of the pessimistic Q̌, which never acts."""
    p: Float[np.ndarray | Array, " R"]
    """Truncation probability: L ~ Geometric(p) on {0, 1, ...}; 1 explores from the first step of every episode."""
    ridge: Float[np.ndarray | Array, " R"]
    """λ: the ridge of Λ."""


def make_settings(
    beta: Sequence[float], p: Sequence[float], ridge: Sequence[float], beta_low: Sequence[float] | None = None
) -> Settings:
    """One entry per run in every field; `beta_low` defaults to `beta`."""
    low = beta if beta_low is None else beta_low
    lengths = {len(beta), len(p), len(ridge), len(low)}
    if len(lengths) != 1:
        raise UserError(f"beta, p, ridge, beta_low have lengths {sorted(lengths)}: must be equally long")
    return Settings(
        _checked("beta", beta, lambda x: x >= 0, ">= 0"),
        _checked("beta_low", low, lambda x: x >= 0, ">= 0"),
        _checked("p", p, lambda x: 0 < x <= 1, "in (0, 1]"),
        _checked("lambda", ridge, lambda x: x > 0, "> 0"),
    )


def theory_beta(mdp: LinearMDP, episodes: int, delta: float = 0.1, c: float = 1.0) -> float:
    """β = c·d·H·sqrt(log(2dT/δ)) with T = episodes·H, as Theorem "Pseudo Regret Bound" sets it."""
    if not 0 < delta < 1:
        raise UserError(f"delta = {delta}: must lie in (0, 1)")
    if c <= 0:
        raise UserError(f"c = {c}: must be > 0")
    if episodes < 1:
        raise UserError(f"episodes = {episodes}: must be at least 1")
    steps = episodes * mdp.horizon
    return c * mdp.dimension * mdp.horizon * math.sqrt(math.log(2 * mdp.dimension * steps / delta))


def _checked(
    field: str, values: Sequence[float], allowed: Callable[[float], bool], words: str
) -> Float[np.ndarray, " R"]:
    for i, value in enumerate(values):
        if not (math.isfinite(value) and allowed(value)):
            raise UserError(f"{field}[{i}] = {value:g}: must be {words}")
    return np.asarray(values, dtype=np.float64)

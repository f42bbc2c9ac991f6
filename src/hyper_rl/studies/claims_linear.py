"""What the paper says about the provable version: section 4, its theorem and lemmas, as far as runs can tell.

A bound is not refuted by runs that need more than some budget below it, so the entries ask for what must show within
the budgets of the study: that the bounds hold, that the exponents are not exceeded, that every p gets there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hyper_rl.studies.statistics import Estimate, share_of_trials
from hyper_rl.studies.store import StudyResult
from hyper_rl.studies.verdicts import Check, Claim, NotRun, at_least, at_most, more_than

STUDY = "linear"
CERTAIN = 0.9
"""1 - delta, the 'high probability' of the theorem with the study's delta of 0.1."""
NEAR_OPTIMAL = 0.95
REPOSITIONS = "Hyper p=0.1"
NEVER_REPOSITIONS = "Hyper p=1"
BASELINE = "LSVI-UCB"
NORMAL_95 = 1.96

Row = Mapping[str, Any]


def tables(study: StudyResult, part: str) -> Mapping[str, Any]:
    if part not in study.parts:
        raise NotRun(f"part {part} is not finished")
    return study.parts[part]


def bound_holds(study: StudyResult, column: str, sign: str) -> list[Check]:
    """In as many seeds as claimed, at the paper's own beta."""
    document = tables(study, "confidence")["confidence.json"]
    checks = []
    for mdp, about in document.items():
        if not isinstance(about, dict) or "at_theory_beta" not in about:
            continue
        for row in about["at_theory_beta"]:
            found = share_of_trials(round(row[column] * row["seeds"]), row["seeds"])
            checks.append(at_least(f"share of seeds with {sign}, {mdp}, p = {row['p']:g}", found, CERTAIN))
    return checks


def cells(study: StudyResult, mdp: str, policy: str) -> list[Row]:
    rows = [row for row in tables(study, "table")["table.csv"] if (row["mdp"], row["policy"]) == (mdp, policy)]
    if not rows:
        raise NotRun(f"{mdp}, {policy}")
    return sorted(rows, key=lambda row: float(row["beta"]))


def mdps(study: StudyResult) -> list[str]:
    return list(dict.fromkeys(row["mdp"] for row in tables(study, "table")["table.csv"]))


def seeds_of(study: StudyResult) -> int:
    return int(tables(study, "table")["table.json"]["seeds"])


def near_optimal(study: StudyResult) -> list[Check]:
    seeds, checks = seeds_of(study), []
    for mdp in mdps(study):
        best = max(cells(study, mdp, REPOSITIONS), key=lambda row: float(row["value_share"]))
        found = _estimate(float(best["value_share"]), float(best["value_share_sd"]) / math.sqrt(seeds))
        checks.append(at_least(f"V/V* at beta {best['beta']:g}, {mdp}", found, NEAR_OPTIMAL))
    return checks


def score_difference(study: StudyResult, mdp: str, first: str, second: str) -> Estimate:
    """Area under V/V* against log10 beta, divided by the width, of one policy minus that of another."""
    seeds, value, variance = seeds_of(study), 0.0, 0.0
    for policy, sign in ((first, 1.0), (second, -1.0)):
        rows = cells(study, mdp, policy)
        weights = trapezoid_weights([float(row["beta"]) for row in rows])
        value += sign * float(weights @ np.array([float(row["value_share"]) for row in rows]))
        deviations = np.array([float(row["value_share_sd"]) for row in rows])
        variance += float((weights**2) @ (deviations**2)) / seeds
    return _estimate(value, math.sqrt(variance))


def trapezoid_weights(betas: Sequence[float]) -> np.ndarray:
    """Of the values at these betas in the area under them against log10 beta, in units of the width."""
    x = np.log10(betas)
    gaps = np.diff(x)
    weights = np.zeros(len(x))
    weights[:-1] += gaps / 2
    weights[1:] += gaps / 2
    return weights / gaps.sum()


def _estimate(value: float, error: float) -> Estimate:
    return Estimate(value, value - NORMAL_95 * error, value + NORMAL_95 * error)


def better(study: StudyResult, first: str, second: str) -> list[Check]:
    return [
        more_than(f"score, {first} - {second}, {mdp}", score_difference(study, mdp, first, second), 0.0)
        for mdp in mdps(study)
    ]


def slopes(study: StudyResult, axis: str) -> list[Row]:
    found = [
        row
        for row in tables(study, "complexity")["complexity.json"]["slopes"]
        if (row["axis"], row["measure"]) == (axis, "settled")
    ]
    if not found:
        raise NotRun(f"slope against {axis}")
    return found


def slope_checks(study: StudyResult, axis: str, limit: float) -> list[Check]:
    return [
        at_most(f"slope against {axis}, {row['family']}", Estimate(row["slope"], row["low"], row["high"]), limit)
        for row in slopes(study, axis)
    ]


def scaling(study: StudyResult) -> list[Check]:
    return [*slope_checks(study, "H", 4.0), *slope_checks(study, "d", 3.0)]


def any_p(study: StudyResult) -> list[Check]:
    checks = []
    for row in slopes(study, "1/p"):
        found = share_of_trials(row["runs"] - row["censored"], row["runs"])
        checks.append(at_least(f"share of runs that get there, {row['family']}, p = 1 to 0.01", found, CERTAIN))
    return [*checks, *slope_checks(study, "1/p", 1.0)]


THEOREM = (
    "With any truncation probability p ∈ (0, 1) as truncation probability for the repositioning phase it takes at most "
    "Õ(d³H⁴/ε²) steps for Linear-UCB-Hyper to obtain an ε-optimal exploitation policy μ with high probability"
)
CLAIMS: tuple[Claim, ...] = (
    Claim(
        "linear-near-optimal", "Linear-UCB-Hyper learns a near-optimal exploitation policy",
        "Linear-Hyper learns a near-optimal exploitation policy of any task with high probability", "4, Theorem 4.2",
        (STUDY,), "Hyper, p = 0.1, three MDPs, 3,000 episodes, the best of nine betas",
        "V/V* over the last tenth of the episodes", ">= 0.95 on each",
        "within 5% is near-optimal; beta is free because the theorem's own needs far more episodes than these",
        near_optimal,
    ),
    Claim(
        "linear-upper-bound", "The optimistic estimate stays above the optimum",
        "we have Q̂ᵏₕ(s, a) ≥ Q*ₕ(s, a) for all (s, a, h, k)", "B, Lemma (upper confidence bound)",
        (STUDY,), "two MDPs at the theorem's beta, p = 1 and 0.1",
        "share of seeds in which it holds everywhere and throughout, exact interval", ">= 0.9",
        "1 - delta. Nearly all entries are clipped at that beta, so this is a weak test (docs/linear.md)",
        lambda study: bound_holds(study, "upper_holds", "Q-hat >= Q*"),
    ),
    Claim(
        "linear-lower-bound", "The pessimistic estimate stays below the optimum",
        "for any policy π, Q̌ᵏₕ(s, a) ≤ Q^πₕ(s, a) for all (s, a, h, k)", "B, Lemma (lower confidence bound), π optimal",
        (STUDY,), "two MDPs at the theorem's beta, p = 1 and 0.1",
        "share of seeds in which it holds everywhere and throughout, exact interval", ">= 0.9",
        "1 - delta. For any other policy the lemma is false by a counter-example (docs/linear.md); as weak a test",
        lambda study: bound_holds(study, "lower_holds", "Q-check <= Q*"),
    ),
    Claim(
        "linear-scaling", "Episodes to a near-optimal policy grow no faster than d³H⁴",
        "The number of samples required scales polynomially with the intrinsic dimension and the horizon associated "
        "with the task", "4, Theorem 4.2, and B",
        (STUDY,), "timed lock and RiverSwim, beta fixed",
        "slope of log episodes until within 5% of V* for good against log H and log d, bootstrap interval",
        "<= 4 for H; <= 3 for d", "the exponents that the regret bound gives for episodes", scaling,
    ),
    Claim(
        "linear-any-p", "Any p gets there, at a cost of at most 1/p", THEOREM, "B, main theorem",
        (STUDY,), "timed lock and RiverSwim, p from 1 to 0.01, beta fixed",
        "share of runs within 5% of V* for good, exact interval; slope of log episodes against log 1/p",
        ">= 0.9; <= 1", "1 - delta; the proof's sums give 1/p at a fixed beta, although the theorem shows no p", any_p,
    ),
    Claim(
        "linear-more-robust", "Linear-UCB-Hyper is more robust to beta than LSVI-UCB",
        "the repositioning-and-exploration mechanism, which is central to Hyper's efficiency as well as robustness "
        "against β", "5",
        (STUDY,), "Hyper, p = 0.1, and LSVI-UCB, three MDPs, all nine betas",
        "robustness score of V/V*, Hyper - LSVI-UCB, normal interval from 20 seeds in each cell", "> 0 on each",
        "any difference beyond the noise", lambda study: better(study, REPOSITIONS, BASELINE),
    ),
    Claim(
        "linear-repositioning", "Repositioning itself makes the provable version more efficient",
        "This mechanism significantly boosts the sample efficiency of Hyper compared to standard approaches", "4",
        (STUDY,), "Hyper at p = 0.1 and at p = 1, which never repositions, three MDPs, all nine betas",
        "robustness score of V/V* after 3,000 episodes, p = 0.1 - p = 1, normal interval from 20 seeds in each cell",
        "> 0 on each", "any difference beyond the noise", lambda study: better(study, REPOSITIONS, NEVER_REPOSITIONS),
    ),
)  # fmt: skip

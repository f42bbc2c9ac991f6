"""From a claim and the studies at hand to a verdict, by a rule that is the same for every claim.

A claim is a sentence of the paper turned into checks. A check is a statistic with its 95% interval and a threshold that
was written down with the claim: it holds when the whole interval is on the claimed side, it fails when the whole
interval is on the other side, and it is open in between.

    reproduced       every check holds
    contradicted     some check fails
    not reproduced   neither
    not run          no study that was given has the runs, at the paper's scale
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hyper_rl.studies.statistics import Estimate
from hyper_rl.studies.store import StudyResult

Outcome = Literal["holds", "fails", "open"]
Word = Literal["reproduced", "not reproduced", "contradicted", "not run"]
NEEDED_SCALE = "paper"
REMARKS = {"mazes": "in half the paper's steps"}
"""What has to be said with a verdict from a study, unless the claim knows better."""
ROUNDING = 1e-9
"""Sums of floats miss a threshold by less than this."""


class NotRun(Exception):
    """The study lacks runs that the claim needs; the text says which."""


@dataclass(frozen=True)
class Check:
    """One statistic against one threshold."""

    label: str
    statistic: Estimate
    threshold: str
    outcome: Outcome


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that runs can support or refute."""

    id: str
    claim: str
    """In our words, short."""
    sentence: str
    """In the paper's words."""
    where: str
    """Section, figure or table."""
    studies: tuple[str, ...]
    """Studies that have the runs, the one to prefer first; at the scale `paper`."""
    runs: str
    """Which of their runs."""
    statistic: str
    threshold: str
    reason: str
    """Why this threshold."""
    judge: Callable[[StudyResult], Sequence[Check]]
    """Raises NotRun where runs are missing."""
    remarks: Mapping[str, str] = field(default_factory=lambda: REMARKS)
    """What has to be said with a verdict, by the study that it comes from."""


@dataclass(frozen=True)
class Verdict:
    claim: Claim
    word: Word
    note: str
    """Why it was not run, or what to know of the study that was."""
    checks: tuple[Check, ...] = ()
    study: str = ""
    folder: Path | None = None

    @property
    def deciding(self) -> Check | None:
        """The first check that fails, else the first that is open, else the first."""
        for outcome in ("fails", "open", "holds"):
            for check in self.checks:
                if check.outcome == outcome:
                    return check
        return None

    def to_json(self) -> dict[str, Any]:
        claim = self.claim
        return {
            "id": claim.id,
            "claim": claim.claim,
            "sentence": claim.sentence,
            "where": claim.where,
            "studies": list(claim.studies),
            "scale": NEEDED_SCALE,
            "runs": claim.runs,
            "statistic": claim.statistic,
            "threshold": claim.threshold,
            "reason": claim.reason,
            "verdict": self.word,
            "note": self.note,
            "study": self.study,
            "folder": None if self.folder is None else str(self.folder),
            "checks": [
                {
                    "label": check.label,
                    "value": check.statistic.value,
                    "low": check.statistic.low,
                    "high": check.statistic.high,
                    "threshold": check.threshold,
                    "outcome": check.outcome,
                }
                for check in self.checks
            ],
        }


def at_least(label: str, found: Estimate, threshold: float) -> Check:
    holds, fails = found.low >= threshold - ROUNDING, found.high < threshold - ROUNDING
    return Check(label, found, f">= {threshold:g}", _outcome(holds, fails))


def at_most(label: str, found: Estimate, threshold: float) -> Check:
    holds, fails = found.high <= threshold + ROUNDING, found.low > threshold + ROUNDING
    return Check(label, found, f"<= {threshold:g}", _outcome(holds, fails))


def more_than(label: str, found: Estimate, threshold: float) -> Check:
    """Strictly: two methods whose runs are all alike do not differ."""
    holds, fails = found.low > threshold + ROUNDING, found.high <= threshold + ROUNDING
    return Check(label, found, f"> {threshold:g}", _outcome(holds, fails))


def less_than(label: str, found: Estimate, threshold: float) -> Check:
    holds, fails = found.high < threshold - ROUNDING, found.low >= threshold - ROUNDING
    return Check(label, found, f"< {threshold:g}", _outcome(holds, fails))


def rare(label: str, found: Estimate, *, at_most_hits: int, hits: int, limit: float, refuted_above: float) -> Check:
    """Trials that hit are as few as claimed, of enough trials to say so; refuted by a share surely above."""
    holds = hits <= at_most_hits and found.high <= limit + ROUNDING
    text = f"<= {at_most_hits} trial{'' if at_most_hits == 1 else 's'}, share <= {limit:g}"
    return Check(label, found, text, _outcome(holds, found.low > refuted_above))


def _outcome(holds: bool, fails: bool) -> Outcome:
    return "holds" if holds else "fails" if fails else "open"


def conclude(checks: Iterable[Check]) -> Word:
    outcomes = {check.outcome for check in checks}
    if not outcomes:
        return "not run"
    if "fails" in outcomes:
        return "contradicted"
    return "reproduced" if outcomes == {"holds"} else "not reproduced"


def judge(claim: Claim, studies: Sequence[StudyResult]) -> Verdict:
    """By the first study that has what the claim needs."""
    notes = []
    for name in claim.studies:
        for study in studies:
            if study.name != name:
                continue
            if study.scale != NEEDED_SCALE:
                notes.append(study.scale)
                continue
            try:
                checks = tuple(claim.judge(study))
            except NotRun as missing:
                notes.append(f"{name}: {missing}")
                continue
            return Verdict(claim, conclude(checks), claim.remarks.get(study.name, ""), checks, study.name, study.folder)
    return Verdict(claim, "not run", "; ".join(dict.fromkeys(notes)))


def judge_all(claims: Sequence[Claim], studies: Sequence[StudyResult]) -> list[Verdict]:
    return [judge(claim, studies) for claim in claims]

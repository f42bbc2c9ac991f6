"""All claims of the paper that can be checked, in its order, and their verdicts from study folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hyper_rl.studies import (
    claims_beta,
    claims_lengths,
    claims_linear,
    claims_mazes,
    claims_room,
    claims_tasks,
)
from hyper_rl.studies.store import read_study
from hyper_rl.studies.verdicts import Claim, Verdict, judge_all

CLAIMS: tuple[Claim, ...] = (
    *claims_room.CLAIMS,
    *claims_linear.CLAIMS,
    *claims_lengths.CLAIMS,
    *claims_mazes.CLAIMS,
    *claims_tasks.CLAIMS,
    *claims_beta.CLAIMS,
)


def judge_folders(folders: Sequence[Path]) -> list[Verdict]:
    return judge_all(CLAIMS, [read_study(folder) for folder in folders])


def claims_markdown() -> str:
    """The list for the documentation: what is claimed, on what it is judged, and by which threshold."""
    lines = ["| id | claim | paper | study | statistic | threshold | why |", "|---" * 7 + "|"]
    for claim in CLAIMS:
        cells = (
            f"`{claim.id}`",
            f'{claim.claim}. "{claim.sentence}"',
            claim.where,
            ", ".join(f"`{name}`" for name in claim.studies) + f": {claim.runs}",
            claim.statistic,
            claim.threshold,
            claim.reason,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"

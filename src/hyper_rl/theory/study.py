"""The studies behind docs/linear.md, as commands: `python -m hyper_rl.theory.study table|confidence|complexity`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from hyper_rl.theory.study_complexity import complexity_study
from hyper_rl.theory.study_confidence import confidence_study
from hyper_rl.theory.study_table import table_study


@dataclass(frozen=True)
class StudyArgs:
    """Re-make one study of the linear part."""

    study: tyro.conf.Positional[Literal["table", "confidence", "complexity"]]
    """table: V/V* over β and p; confidence: do the bounds hold; complexity: slopes against H, d, p."""
    out: Path = Path("results/linear")
    """Folder for the CSV, JSON and PNG files."""
    seeds: int | None = None
    """Runs per setting; the study's own number (20, 200, 20) if left out."""
    episodes: int | None = None
    """Episodes per run (table, confidence); 3000 if left out."""


def main(args: StudyArgs) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    if args.study == "table":
        table_study(args.out, args.seeds or 20, args.episodes or 3000)
    elif args.study == "confidence":
        confidence_study(args.out, args.seeds or 200, args.episodes or 3000)
    else:
        complexity_study(args.out, args.seeds or 20)


if __name__ == "__main__":
    main(tyro.cli(StudyArgs))

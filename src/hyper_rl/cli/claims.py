"""`hyper-rl claims DIR...`: what the runs of studies say about each claim of the paper."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from hyper_rl.errors import UserError
from hyper_rl.studies.claims import claims_markdown, judge_folders
from hyper_rl.studies.verdicts import Verdict
from hyper_rl.training.run_folder import write_atomically

COLOURS = {"reproduced": "green", "contradicted": "red", "not reproduced": "yellow", "not run": "dim"}
WIDTH = 160
"""Of a table that goes to a file or another program."""


@dataclass(frozen=True)
class ClaimsOptions:
    """Judge the claims of the paper by the runs of studies. A claim whose study is not given was not run."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Study folders, as made by `hyper-rl study`."""
    json: Path | None = None
    """Write the verdicts to this file too, for other programs."""
    list: bool = False
    """Print the claims with their thresholds instead, as Markdown."""


def run_claims(options: ClaimsOptions) -> int:
    if options.list:
        print(claims_markdown(), end="")
        return 0
    verdicts = judge_folders(options.folders)
    if options.json is not None:
        document = {"version": 1, "claims": [verdict.to_json() for verdict in verdicts]}
        try:
            write_atomically(options.json, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise UserError(f"json: {options.json} cannot be written ({error.strerror})") from None
    _print_table(verdicts)
    return 0


def _print_table(verdicts: Sequence[Verdict]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    table = Table(title="Claims of the paper", show_lines=True)
    for name in ("id", "claim", "statistic [95%]", "threshold", "verdict", "study"):
        table.add_column(name, overflow="fold")
    for verdict in verdicts:
        colour = COLOURS[verdict.word]
        table.add_row(
            verdict.claim.id,
            verdict.claim.claim,
            statistic_text(verdict),
            verdict.claim.threshold,
            f"[{colour}]{verdict_text(verdict)}[/{colour}]",
            verdict.study or " or ".join(verdict.claim.studies),
        )
    console.print(table)
    counts: Counter[str] = Counter(verdict.word for verdict in verdicts)
    console.print(", ".join(f"{counts[word]} {word}" for word in COLOURS), highlight=False)


def statistic_text(verdict: Verdict) -> str:
    """The check that decides, and how many hold where there are several."""
    check = verdict.deciding
    if check is None:
        return "-"
    text = f"{check.label}: {check.statistic}"
    if len(verdict.checks) > 1:
        holding = sum(one.outcome == "holds" for one in verdict.checks)
        text += f" ({holding} of {len(verdict.checks)} hold)"
    return _plain(text)


def verdict_text(verdict: Verdict) -> str:
    return _plain(f"{verdict.word} ({verdict.note})" if verdict.note else verdict.word)


def _plain(text: str) -> str:
    """Brackets of an interval are not markup."""
    return text.replace("[", "\\[")

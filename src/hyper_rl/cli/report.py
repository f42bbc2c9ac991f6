"""`hyper-rl report DIR...`: the results of studies as one page that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from hyper_rl.errors import UserError
from hyper_rl.studies.store import read_study

DEFAULT_NAME = "report.html"


@dataclass(frozen=True)
class ReportOptions:
    """Write one HTML page about one or more studies: verdicts, curves, sensitivity to beta, heat maps, all runs."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Study folders, as made by `hyper-rl study`."""
    out: Path | None = None
    """File to write; with one folder report.html inside it by default."""
    force: bool = False
    """Overwrite a file that is not a report of this command."""


def run_report(options: ReportOptions) -> int:
    from hyper_rl.report.page import report_page, write_page

    _require_folders(options.folders)
    out = options.out
    if out is None:
        if len(options.folders) > 1:
            raise UserError("out: missing; with several folders say where the page goes: --out FILE")
        out = options.folders[0] / DEFAULT_NAME
    studies = [read_study(folder) for folder in options.folders]
    page = report_page(studies)
    write_page(out, page, force=options.force)
    runs, missing = sum(len(study.runs) for study in studies), sum(len(study.missing) for study in studies)
    unfinished = f", {missing} group{'' if missing == 1 else 's'} not finished" if missing else ""
    print(f"{out}: {runs:,} runs{unfinished}, {len(page.encode()) / 1e6:.2f} MB")
    return 0


def _require_folders(folders: Sequence[Path]) -> None:
    if not folders:
        raise UserError("folders: missing; name at least one study folder: hyper-rl report DIR")
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise UserError(f"folders: {folder} is given twice")
        seen.add(folder.resolve())

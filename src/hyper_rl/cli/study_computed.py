"""`hyper-rl study linear|figure-7|table-2`: the studies that are computed and not trained."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from hyper_rl.errors import UserError
from hyper_rl.report.computed_tables import Table, cell_text, computed_tables
from hyper_rl.studies.computed import ComputedStudy, run_computed
from hyper_rl.studies.store import StudyResult, read_study
from hyper_rl.studies.study_folder import StudyFolder, shared_files

WIDTH = 160
"""Of a table that goes to a file or another program."""


def run_computed_command(
    study: ComputedStudy, scale: str, out: Path | None, *, plan: bool, figures: bool, as_json: bool
) -> int:
    if plan:
        return _show_plan(study, scale, as_json)
    if out is None:
        raise UserError(f"out: missing; say where the results go: hyper-rl study {study.name} --out DIR")
    computed = run_computed(study, scale, out, stream=sys.stderr)
    result = read_study(out)
    drawn = draw_if_possible(result, out / "figures") if figures else []
    tables = computed_tables(result)
    if as_json:
        document = {
            "study": result.name,
            "scale": result.scale,
            "folder": str(out),
            "parts": list(result.parts),
            "parts_computed": list(computed),
            "figures": [path.name for path in drawn],
            "tables": [{"title": table.title, "rows": table.records()} for table in tables],
        }
        print(json.dumps(document))
        return 0
    _print(result, tables, out)
    if drawn:
        print(f"figures: {out / 'figures'} ({len(drawn)} files)")
    return 0


def draw_if_possible(result: StudyResult, folder: Path) -> list[Path]:
    """The figures of any study; one that is done is not lost because nothing can draw it here."""
    from hyper_rl.report.study_figures import draw_study

    try:
        with shared_files(StudyFolder(result.folder)):
            return draw_study(result, folder)
    except UserError as error:
        print(f"no figures: {error}; then the same command draws them", file=sys.stderr)
        return []


def _print(result: StudyResult, tables: list[Table], out: Path) -> None:
    from rich.console import Console
    from rich.table import Table as Shown

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    for table in tables:
        shown = Shown(title=f"{table.title} (scale {result.scale})", caption=table.note)
        for place, name in enumerate(table.columns):
            first = place == 0
            shown.add_column(name, justify="left" if first else "right", overflow="fold", no_wrap=first)
        for row in table.rows:
            shown.add_row(*(cell_text(value) for value in row))
        console.print(shown)
    console.print(f"study folder: {out}", highlight=False, soft_wrap=True)


def _show_plan(study: ComputedStudy, scale: str, as_json: bool) -> int:
    settings = study.settings(scale)
    if as_json:
        parts = [{"name": name, "settings": numbers} for name, numbers in settings.items()]
        print(json.dumps({"study": study.name, "parts": parts}))
        return 0
    for name, numbers in settings.items():
        print(f"{name}: {', '.join(f'{key} {value}' for key, value in numbers.items())}")
    print(f"{len(settings)} part{'' if len(settings) == 1 else 's'}, computed and not trained")
    return 0

"""The report page: one HTML file with everything in it, that opens from disk and asks the network for nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from hyper_rl.errors import UserError
from hyper_rl.report.page_data import page_data
from hyper_rl.studies.claims import CLAIMS
from hyper_rl.studies.store import StudyResult
from hyper_rl.studies.verdicts import judge_all
from hyper_rl.training.run_folder import write_atomically

MARK = '<meta name="generator" content="hyper-rl report">'
"""Tells a report of ours from any other file."""
MARK_WITHIN = 2_000
"""Characters of the file in which the mark stands."""
SCRIPTS = ("charts.js", "heatmaps.js", "paths.js", "tables.js", "page.js")
# What would end the script element, or be a line end to JavaScript and not to JSON.
UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def report_page(studies: Sequence[StudyResult]) -> str:
    """The page of these studies, with the verdicts that they support."""
    return render_page(page_data(studies, judge_all(CLAIMS, studies)), title_of(studies))


def render_page(data: Mapping[str, Any], title: str) -> str:
    """All that comes from files is either escaped here or put in place by the script as text, never as markup."""
    parts = {
        "{{mark}}": MARK,
        "{{title}}": html.escape(title),
        "{{style}}": _part("page.css"),
        "{{data}}": embedded_json(data),
        "{{script}}": "\n".join(_part(name) for name in SCRIPTS),
    }
    page = _part("page.html")
    # One pass from left to right: a placeholder inside the data is data.
    pieces, rest = [], page
    for name, text in parts.items():
        before, rest = rest.split(name, 1)
        pieces += [before, text]
    return "".join([*pieces, rest])


def embedded_json(data: Mapping[str, Any]) -> str:
    """Compact, and safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, escape in UNSAFE.items():
        text = text.replace(character, escape)
    return text


def title_of(studies: Sequence[StudyResult]) -> str:
    first = studies[0].title if studies else "nothing"
    more = f" and {len(studies) - 1} more" if len(studies) > 1 else ""
    quick = " (quick)" if any(study.scale == "quick" for study in studies) else ""
    return f"{first}{more}{quick} · hyper-rl"


def write_page(path: Path, page: str, *, force: bool = False) -> None:
    """A file that is not a report of ours is left alone, unless forced."""
    if path.is_dir():
        raise UserError(f"out: {path} is a folder, must be a file")
    if path.exists() and not force and not is_report(path):
        raise UserError(f"out: {path} exists and is not a report of this command; choose another file or say --force")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page)
    except OSError as error:
        raise UserError(f"out: {path} cannot be written ({error.strerror})") from None


def is_report(path: Path) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return MARK in file.read(MARK_WITHIN)
    except OSError:
        return False


def _part(name: str) -> str:
    return resources.files("hyper_rl.report").joinpath("page", name).read_text(encoding="utf-8").rstrip("\n")

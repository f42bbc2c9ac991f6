"""Studies and verdicts as the one JSON object that the report page draws from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hyper_rl.report import page_charts, page_extras
from hyper_rl.report.page_charts import number
from hyper_rl.report.page_extras import maze_paths, pictures_of, tables_of
from hyper_rl.report.panels import Panel, Series, lay_out, method_name
from hyper_rl.report.study_figures import MARKERS, mean_band
from hyper_rl.report.visit_maps import visit_map
from hyper_rl.studies.statistics import robustness_score
from hyper_rl.studies.store import RunResult, StudyResult
from hyper_rl.studies.verdicts import NEEDED_SCALE, Verdict

PAGE_VERSION = 1
CELLS_IN_ALL = 400_000
"""Counts of visits on one page; beyond that the later seeds are left out, and the page says so."""
CURVES_OF_A_BETA = 2
FINALS = {
    "success": "success",
    "return": "return",
    "behaviour_success": "success while training",
    "behaviour_return": "return while training",
    "steps_to_goal": "steps to goal",
    "goals": "goals met",
    "cells_visited": "cells visited",
    "finite": "finite",
}


def page_data(studies: Sequence[StudyResult], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Nothing in it but what the studies hold: no date, no path, so the same studies give the same bytes."""
    laid = [lay_out(study.runs) for study in studies]
    points = page_charts.points_per_line(sum(_lines(panels) for panels in laid))
    seeds = _seeds_with_maps(laid)
    return {
        "version": PAGE_VERSION,
        "points": points,
        "methods": _methods([run for study in studies for run in study.runs]),
        "claims": [_claim(verdict, studies) for verdict in verdicts],
        "studies": [_study(*pair, points, seeds, len(studies)) for pair in zip(studies, laid, strict=True)],
    }


def _study(study: StudyResult, panels: Sequence[Panel], points: int, seeds: int, studies: int) -> dict[str, Any]:
    names = list(dict.fromkeys(series.name for panel in panels for series in panel.series))
    column = "success" if any(run.final.get("success", 0.0) > 0 for run in study.runs) else "return"
    charts: list[dict[str, Any] | None] = []
    if study.runs:
        charts = [
            *(page_charts.against_beta(panels, names, name) for name in (column, f"behaviour_{column}")),
            *(page_charts.over_steps(panels, names, name, points) for name in (column, f"behaviour_{column}")),
            page_charts.estimates(panels, names, points),
            *page_charts.lengths_over_steps(panels, names, points),
            page_charts.length_distributions(panels, names),
        ]
    by_name = {series.name: series for panel in panels for series in panel.series}
    return {
        "name": study.name,
        "folder": study.folder.name,
        "title": study.title,
        "scale": study.scale,
        "judged": study.scale == NEEDED_SCALE,
        "command": study.command,
        "versions": dict(study.versions),
        "missing": list(study.missing),
        "count": len(study.runs),
        "steps": sum(run.config.steps for run in study.runs),
        "betas": [number(beta) for beta in sorted({run.beta for run in study.runs})],
        "seeds": sorted({run.seed for run in study.runs}),
        "series": [_series(by_name[name]) for name in names],
        "column": column,
        "summary": _summary(panels, names, column),
        "charts": [chart for chart in charts if chart is not None],
        "maps": [made for panel in panels if (made := _maps(panel, names, seeds)) is not None],
        "paths": maze_paths(study, panels, names, page_extras.POINTS_IN_ALL // studies),
        "tables": tables_of(study),
        "pictures": pictures_of(study, page_extras.PICTURES_IN_ALL // studies),
        "runs": _runs(panels, names),
    }


def _series(series: Series) -> dict[str, Any]:
    marker = MARKERS.get(series.method, "o")
    look = {"colour": series.colour, "stroke": series.stroke, "marker": marker}
    return {"name": series.name, "method": series.method, **look}


def _methods(runs: Sequence[RunResult]) -> list[dict[str, Any]]:
    """One entry per method for the buttons, called by every name it has in these studies."""
    names: dict[str, list[str]] = {}
    colours: dict[str, str] = {}
    for panel in lay_out(runs):
        for series in panel.series:
            colours.setdefault(series.method, series.colour)
            for learner in dict.fromkeys(str(run.labels.get("learner", "")) for run in series.runs):
                names.setdefault(series.method, []).append(method_name(series.method, learner))
    return [
        {"method": method, "name": " / ".join(dict.fromkeys(said)), "colour": colours[method]}
        for method, said in names.items()
    ]


def _summary(panels: Sequence[Panel], names: Sequence[str], column: str) -> dict[str, Any]:
    """Final performance of every series over all its runs, and how flat it is in beta where that was swept."""
    rows = []
    for panel in panels:
        for series in panel.series:
            finals = np.array([run.final.get(column, math.nan) for run in series.runs])
            finals = finals[np.isfinite(finals)]
            cells: list[Any] = [None, None, None]
            if finals.size:
                middle, band = mean_band(finals[:, None])
                cells = [number(middle[0]), *([None, None] if band is None else [number(end) for end in band[:, 0]])]
            row = {"panel": panel.title, "series": names.index(series.name), "runs": len(series.runs), "final": cells}
            rows.append({**row, "score": _score(series, column)})
    return {"swept": any(row["score"] is not None for row in rows), "rows": rows}


def _score(series: Series, column: str) -> list[Any] | None:
    """Robustness score with its interval; None where a beta has fewer than two runs that can be told."""
    betas = page_charts.positive(series)
    cells = [np.array([run.final.get(column, math.nan) for run in series.at(beta)]) for beta in betas]
    if len(betas) < 2 or any(len(cell) < 2 or not np.isfinite(cell).all() for cell in cells):
        return None
    found = robustness_score(betas, cells)
    return [number(found.value), number(found.low), number(found.high)]


def _runs(panels: Sequence[Panel], names: Sequence[str]) -> dict[str, Any]:
    all_runs = [(panel, series, run) for panel in panels for series in panel.series for run in series.runs]
    keys = [key for key in FINALS if any(math.isfinite(run.final.get(key, math.nan)) for _, _, run in all_runs)]
    rows = [
        [panel.title, names.index(series.name), number(run.beta), run.seed]
        + [number(run.final.get(key, math.nan)) for key in keys]
        for panel, series, run in all_runs
    ]
    return {"columns": [FINALS[key] for key in keys], "rows": rows}


def _maps(panel: Panel, names: Sequence[str], most_seeds: int) -> dict[str, Any] | None:
    """Visits of each cell as whole numbers, below zero for a wall; for tasks whose cells form a map."""
    grid = visit_map(panel.runs)
    if grid is None:
        return None
    seeds = sorted({run.seed for run in panel.runs})[:most_seeds]
    maps = [
        {
            "series": names.index(series.name),
            "beta": number(run.beta),
            "seed": run.seed,
            "visits": grid.fill(run.visits).ravel().tolist(),
        }
        for series in panel.series
        for run in series.runs
        if run.seed in seeds and run.visits is not None
    ]
    left_out = len({run.seed for run in panel.runs}) - len(seeds)
    return {"panel": panel.title, "rows": grid.rows, "columns": grid.columns, "maps": maps, "left_out": left_out}


def _seeds_with_maps(laid: Sequence[Sequence[Panel]]) -> int:
    """How many seeds of each study get heat maps, so that all of them fit."""
    cells: dict[int, int] = {}
    for panels in laid:
        for panel in panels:
            if visit_map(panel.runs) is None:
                continue
            order = {seed: place for place, seed in enumerate(sorted({run.seed for run in panel.runs}))}
            for run in panel.runs:
                size = 0 if run.visits is None else run.visits.size
                cells[order[run.seed]] = cells.get(order[run.seed], 0) + size
    total, kept = 0, 0
    for place in sorted(cells):
        total += cells[place]
        if total > CELLS_IN_ALL and kept:
            break
        kept += 1
    return kept


def _lines(panels: Sequence[Panel]) -> int:
    """How many curves a study has: those over all betas (four measures and two estimates), and those of each beta."""
    return sum(6 + CURVES_OF_A_BETA * len(series.betas) for panel in panels for series in panel.series)


def _claim(verdict: Verdict, studies: Sequence[StudyResult]) -> dict[str, Any]:
    told = verdict.to_json()
    told["folder"] = None if verdict.folder is None else verdict.folder.name
    told["checks"] = [
        {
            "label": check.label,
            "statistic": str(check.statistic),
            "threshold": check.threshold,
            "outcome": check.outcome,
        }
        for check in verdict.checks
    ]
    deciding = verdict.deciding
    told["deciding"] = None if deciding is None else verdict.checks.index(deciding)
    told["asked"] = any(study.name in verdict.claim.studies for study in studies)
    return told

"""The charts of the report page as plain data: lines with their bands, from the stored runs alone.

A chart has panels, a panel has views (one for each value of the chart's selector) and a view has lines. Means, bands,
panels, names and colours are those of the figures that `study_figures` draws, so page and figures say the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from hyper_rl.config import Config, make_task
from hyper_rl.report.panels import Panel, Series, split_crowded
from hyper_rl.report.study_figures import LABELS, mean_band
from hyper_rl.studies.store import RunResult

MOST_POINTS = 200
"""Of a line on the page; longer curves are thinned out evenly."""
FEWEST_POINTS = 25
POINTS_IN_ALL = 100_000
"""Of all lines of a page together, which keeps it small."""
ALL_BETAS = "all"
DIGITS = 5
COLUMNS_AT_ONCE = 20
"""Of a bootstrap, which bounds its memory."""

Line = dict[str, Any]
Lines = Callable[[Panel], list[Line]]


@dataclass
class Axis:
    """The x values of a chart's lines: many lines share theirs, so each is stored once."""

    values: list[list[Any]] = field(default_factory=list)

    def place(self, x: Iterable[float]) -> int:
        wanted = [number(value) for value in x]
        if wanted not in self.values:
            self.values.append(wanted)
        return self.values.index(wanted)


def number(value: float) -> float | int | None:
    """Five digits, whole numbers without a point; JSON has no NaN, so that is null."""
    value = float(value)
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else float(f"{value:.{DIGITS}g}")


def points_per_line(lines: int) -> int:
    return max(FEWEST_POINTS, min(MOST_POINTS, POINTS_IN_ALL // max(lines, 1)))


def thinned(count: int, points: int) -> np.ndarray:
    """Places of at most `points` of `count` values, first and last among them."""
    if count <= points:
        return np.arange(count)
    return np.unique(np.round(np.linspace(0, count - 1, points)).astype(int))


def curves_of(runs: Sequence[RunResult], column: str, points: int) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values [runs, steps]), thinned; runs of one series are judged at the same steps."""
    shortest = min(len(run.curve["step"]) for run in runs)
    kept = thinned(shortest, points)
    nothing = np.full(shortest, np.nan)
    return runs[0].curve["step"][kept], np.stack([run.curve.get(column, nothing)[kept] for run in runs])


def band_of(values: Float[np.ndarray, "runs n"]) -> tuple[list[Any], list[Any] | None, list[Any] | None]:
    """Mean, low and high at every place, of the runs that have a value there."""
    middle, low, high = (np.full(values.shape[1], np.nan) for _ in range(3))
    whole = np.isfinite(values).all(axis=0)
    blocks = np.array_split(np.flatnonzero(whole), -(-int(whole.sum()) // COLUMNS_AT_ONCE) or 1)
    for block in [*blocks, *(np.array([place]) for place in np.flatnonzero(~whole))]:
        rows = np.isfinite(values[:, block]).all(axis=1) if block.size else np.zeros(0, bool)
        if rows.any():
            middle[block], band = mean_band(values[np.ix_(rows, block)])
            if band is not None:
                low[block], high[block] = band
    told = [number(value) for value in middle]
    if not np.isfinite(low).any():
        return told, None, None
    return told, [number(value) for value in low], [number(value) for value in high]


def line(axis: Axis, place: int, x: Iterable[float], values: Float[np.ndarray, "runs n"], **more: Any) -> Line:
    middle, low, high = band_of(values)
    drawn = {"series": place, "x": axis.place(x), "y": middle, **more}
    return drawn if low is None else {**drawn, "low": low, "high": high}


def against_beta(panels: Sequence[Panel], names: Sequence[str], column: str) -> dict[str, Any] | None:
    """Final performance against beta, of the tasks that have several; None where none has."""

    def swept(panels: Sequence[Panel]) -> list[Panel]:
        return [panel for panel in panels if any(len(positive(series)) > 1 for series in panel.series)]

    if not swept(panels):
        return None
    axis, panels = Axis(), swept(uncrowded(swept(panels)))

    def lines(panel: Panel) -> list[Line]:
        found = []
        known = sorted({beta for series in panel.series for beta in positive(series)})
        for series in panel.series:
            betas = positive(series)
            cells = [np.array([[run.final.get(column, math.nan)] for run in series.at(beta)]) for beta in betas]
            parts = [band_of(cell) for cell in cells]
            if series.knows_no_beta and len(known) > 1:  # a level line
                betas, parts = [known[0], known[-1]], parts * 2
            drawn: Line = {"series": names.index(series.name), "x": axis.place(betas), "y": [y[0] for y, _, _ in parts]}
            if all(low is not None for _, low, _ in parts):
                drawn["low"] = [low[0] for _, low, _ in parts if low]
                drawn["high"] = [high[0] for _, _, high in parts if high]
            found.append(drawn)
        return found

    note = "Each point is the mean over seeds of the final value of runs at that β."
    if any(series.knows_no_beta for panel in panels for series in panel.series):
        note += " A learner alone has no β: it is a level line."
    if any(run.beta == 0 for panel in panels for run in panel.runs):
        note += " β = 0 has no place on a logarithmic axis and is left out."
    chart = _chart(f"beta-{column}", f"{_label(column).capitalize()} against β", note, "β", column, axis)
    return {**chart, "log": True, "markers": True, "panels": _panels(panels, lines)}


def over_steps(panels: Sequence[Panel], names: Sequence[str], column: str, points: int) -> dict[str, Any]:
    """Learning curves: over all betas together, which is how one fares who picks blindly, and at each beta."""
    axis, panels = Axis(), uncrowded(panels)
    betas = sorted({run.beta for panel in panels for run in panel.runs})

    def lines(panel: Panel, beta: float | None) -> list[Line]:
        found = []
        for series in panel.series:
            runs = series.runs if beta is None else series.at(beta)
            if runs:
                steps, values = curves_of(runs, column, points)
                found.append(line(axis, names.index(series.name), steps, values))
        return found

    note = "Mean over seeds" + (" and over all β, unless one is chosen." if len(betas) > 1 else ".")
    chart = _chart(f"curves-{column}", f"Learning curves: {_label(column)}", note, "environment steps", column, axis)
    choices: list[float | None] = [None, *(betas if len(betas) > 1 else [])]
    chart["views"] = [{"key": _key(beta), "name": "all β" if beta is None else f"β = {beta:g}"} for beta in choices]
    chart["panels"] = [
        {"title": panel.title, "views": {_key(beta): lines(panel, beta) for beta in choices}} for panel in panels
    ]
    return chart


def estimates(panels: Sequence[Panel], names: Sequence[str], points: int) -> dict[str, Any] | None:
    """What the judged critic promises and what the policy gets; a table that starts optimistic is left out."""
    kept = [panel for panel in panels if all(run.config.learner != "tabular_q" for run in panel.runs)]
    if not kept:
        return None
    axis = Axis()

    def lines(panel: Panel) -> list[Line]:
        found = []
        for series in panel.series:
            for column, suffix, stroke in (("discounted_return", "return", "-"), ("critic_estimate", "estimate", "--")):
                steps, values = curves_of(series.runs, column, points)
                drawn = {"stroke": stroke, "suffix": suffix}
                found.append(line(axis, names.index(series.name), steps, values, **drawn))
        return found

    note = "Full line: discounted return of the judged policy. Broken line: what its critic said of it beforehand."
    title = "Estimate against return"
    chart = _chart("estimates", title, note, "environment steps", "discounted return", axis)
    return {**chart, "panels": _panels(uncrowded(kept), lines)}


def lengths_over_steps(panels: Sequence[Panel], names: Sequence[str], points: int) -> list[dict[str, Any]]:
    """Mean L and p over training, of the methods that reposition by a schedule."""
    kept = [panel for panel in map(with_schedule, panels) if panel.series]
    charts = []
    for column, title in (("mean_length", "Mean length L of repositioning"), ("p", "Probability p of the lengths")):
        axis = Axis()

        def lines(panel: Panel, column: str = column, axis: Axis = axis) -> list[Line]:
            found = []
            for series in panel.series:
                steps, values = curves_of(series.runs, column, points)
                if np.isfinite(values).any():
                    found.append(line(axis, names.index(series.name), steps, values))
            return found

        drawn = [panel for panel in _panels(kept, lines) if panel["views"][ALL_BETAS]]
        if drawn:
            note = "Mean over seeds and β. The first L - 1 steps of an episode follow the exploitation policy."
            charts.append({**_chart(column, title, note, "environment steps", column, axis), "panels": drawn})
    return charts


def length_distributions(panels: Sequence[Panel], names: Sequence[str]) -> dict[str, Any] | None:
    """P(L = l) at the first and at the last step of training, by its closed form."""
    axis = Axis()
    drawn = []
    for panel in map(with_schedule, panels):
        for moment in ("start", "end"):
            found = []
            for series in panel.series:
                config = series.runs[0].config
                horizon = int(make_task(config.task, config.task_options, config.host).horizon)
                p = p_at(config, 0 if moment == "start" else config.steps)
                chances = length_chances(p, horizon, bounded=config.lengths == "bounded")
                kept = thinned(horizon, MOST_POINTS)
                suffix = f"p = {p:.3g}, H = {horizon}"
                values = chances[kept][None]
                found.append(line(axis, names.index(series.name), kept + 1.0, values, suffix=suffix))
            if found:
                drawn.append({"title": f"{panel.title}: {moment} of training", "views": {ALL_BETAS: found}})
    if not drawn:
        return None
    note = "Exact, not sampled: the distribution that L is drawn from at each episode's start."
    chart = _chart("lengths", "Distribution of the length L", note, "length l", "P(L = l)", axis)
    return {**chart, "panels": drawn}


def with_schedule(panel: Panel) -> Panel:
    """Without the series whose L is no choice: only Hyper draws one (Decouple's is always 1)."""
    return Panel(panel.title, tuple(series for series in panel.series if series.method == "hyper"))


def p_at(config: Config, step: int) -> float:
    share = min(step / config.schedule_steps, 1.0)
    return config.p_start + (config.p_end - config.p_start) * share


def length_chances(p: float, horizon: int, *, bounded: bool) -> Float[np.ndarray, " H"]:
    """P(L = l) for l = 1..H: p q^(l-1) / (1 - q^H), or the plain geometric one with its tail piled up at H."""
    if p >= 1:
        return np.eye(1, horizon)[0]
    log_q = math.log1p(-p)
    chances: np.ndarray = p * np.exp(log_q * np.arange(horizon))
    if bounded:
        return chances / -math.expm1(horizon * log_q)
    chances[-1] = math.exp(log_q * (horizon - 1))
    return chances


def uncrowded(panels: Sequence[Panel]) -> list[Panel]:
    """Several for one that has more lines than one can follow; lines keep their names, for all charts share them."""
    return [panel for row in split_crowded(panels, rename=False) for panel in row if panel.series]


def positive(series: Series) -> list[float]:
    return [beta for beta in series.betas if beta > 0]


def _panels(panels: Sequence[Panel], lines: Lines) -> list[dict[str, Any]]:
    return [{"title": panel.title, "views": {ALL_BETAS: lines(panel)}} for panel in panels]


def _chart(key: str, title: str, note: str, x: str, y: str, axis: Axis) -> dict[str, Any]:
    views = [{"key": ALL_BETAS, "name": "all"}]
    limits = [0, 1] if y.endswith("success") else None
    return {"id": key, "title": title, "note": note, "x": x, "y": _label(y), "limits": limits, "xs": axis.values,
            "views": views}  # fmt: skip


def _label(column: str) -> str:
    return LABELS.get(column, {"mean_length": "mean L"}.get(column, column.replace("_", " ")))


def _key(beta: float | None) -> str:
    return ALL_BETAS if beta is None else repr(beta)

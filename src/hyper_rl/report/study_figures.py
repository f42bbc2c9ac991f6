"""The figures of a study, as PNG and SVG, from its stored results alone.

Bands are 95% bootstrap intervals of the mean over seeds; with fewer than three seeds they are left out, because an
interval from two numbers says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from hyper_rl.report.computed_figures import draw_computed
from hyper_rl.report.panels import Panel, Series, lay_out, split_crowded
from hyper_rl.report.path_figures import path_figure
from hyper_rl.report.plots import require_matplotlib, said_beta, wrapped
from hyper_rl.report.trajectories import is_maze, paths_of
from hyper_rl.report.visit_maps import WALL, visit_map
from hyper_rl.studies.store import RunResult, StudyResult

RESAMPLES = 2_000
FEWEST_FOR_A_BAND = 3
MARKERS = {"hyper": "o", "curiosity": "s", "decouple": "D", "exploit": "v", "lesson": "^"}
DIVERGES = 20.0
"""A mean estimate this many times the best mean return changes the scale."""
MOST_COLUMNS = 4
LEGEND_ROW = 0.22
"""Inches of one line of a legend."""
LEGEND_LINE = 4.0
"""Letters' widths of a legend's lines: long enough that broken lines are seen to be broken."""
LABELS = {
    "success": "judged success",
    "behaviour_success": "success while training",
    "return": "judged return",
    "behaviour_return": "return while training",
}


def draw_study(result: StudyResult, folder: Path) -> list[Path]:
    """Every figure that the runs of this study can fill."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    if result.parts:
        return draw_computed(result, folder, _save)
    if not result.runs:
        return drawn
    panels = lay_out(result.runs)
    column = "success" if any(run.final.get("success", 0.0) > 0 for run in result.runs) else "return"
    swept = [panel for panel in panels if _is_swept(panel)]
    if swept:  # of a task at one beta alone there is nothing to see against beta
        for name in (column, f"behaviour_{column}"):
            drawn += _save(_against_beta(swept, name, result.title), folder / f"beta-{name}")
    drawn += _save(_over_steps(panels, column, result.title), folder / f"curves-{column}")
    if all(run.config.learner != "tabular_q" for run in result.runs):
        # A table that starts optimistic promises 1/(1 - gamma) wherever it has not been: nothing to compare.
        drawn += _save(_estimates(panels, result.title), folder / "estimates")
    if len(panels) <= 2 and all(visit_map(panel.runs) is not None for panel in panels):
        for number, panel in enumerate(panels):
            name = "visits" if len(panels) == 1 else f"visits-{number + 1}"
            drawn += _save(_visits(panel), folder / name)
    return drawn + _draw_paths(result, panels, folder)


def _draw_paths(result: StudyResult, panels: Sequence[Panel], folder: Path) -> list[Path]:
    """Paths through mazes, one figure for each of them; they are kept in the study folder."""
    mazes = [panel for panel in panels if any(is_maze(run) for run in panel.runs)]
    found = paths_of(result, keep=True) if mazes else {}
    drawn: list[Path] = []
    for number, panel in enumerate(mazes, start=1):
        figure = path_figure(panel, found)
        if figure is not None:
            drawn += _save(figure, folder / ("paths" if len(mazes) == 1 else f"paths-{number}"))
    return drawn


def mean_band(
    values: Float[np.ndarray, "seeds n"], seed: int = 0
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, "2 n"] | None]:
    """Mean over seeds, and the 95% bootstrap interval of it where there are seeds enough.

    All points of a curve from the same draws, in one array operation and without SciPy; verdicts come from
    `studies.statistics`, which resamples within strata.
    """
    mean = values.mean(axis=0)
    if len(values) < FEWEST_FOR_A_BAND:
        return mean, None
    draws = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    return mean, np.percentile(values[draws].mean(axis=1), [2.5, 97.5], axis=0)


def _against_beta(panels: Sequence[Panel], column: str, title: str) -> Any:
    """A learner alone has no beta: it is a level line."""
    figure, axes, panels = _axes(panels, _is_swept)
    for axis, panel in zip(axes, panels, strict=True):
        known = sorted({run.beta for run in panel.runs if run.beta > 0})  # the axis is logarithmic
        for place, series in enumerate(panel.series):
            values = [[run.final[column] for run in series.at(beta)] for beta in series.betas]
            means, bands = zip(*(mean_band(np.asarray(v)[:, None]) for v in values), strict=True)
            betas, middle, marker = series.betas, np.concatenate(means), MARKERS.get(series.method, "o")
            level = series.knows_no_beta and len(known) > 1
            if level:
                betas, middle, marker = [known[0], known[-1]], middle.repeat(2), ""
            _line(axis, series, np.asarray(betas), middle, len(panel.series) - 1 - place, marker=marker)
            if all(band is not None for band in bands):
                low, high = np.concatenate([*bands] * (2 if level else 1), axis=1)
                axis.fill_between(betas, low, high, color=series.colour, alpha=0.15, linewidth=0)
        axis.set_xscale("log")
        axis.set_xlabel(r"$\beta$")
    return _finish(figure, axes, panels, column, title)


def _over_steps(panels: Sequence[Panel], column: str, title: str) -> Any:
    """Over all betas together where there are several: how a user fares who picks one of them blindly."""
    figure, axes, panels = _axes(panels)
    for axis, panel in zip(axes, panels, strict=True):
        for place, series in enumerate(panel.series):
            steps, values = _curves(series.runs, column)
            middle, band = mean_band(values)
            _line(axis, series, steps / 1000, middle, len(panel.series) - 1 - place)
            if band is not None:
                axis.fill_between(steps / 1000, *band, color=series.colour, alpha=0.15, linewidth=0)
        axis.set_xlabel("thousand steps")
    several = any(len(series.betas) > 1 for panel in panels for series in panel.series)
    return _finish(figure, axes, panels, column, f"{title}; mean over all betas" if several else title)


def _estimates(panels: Sequence[Panel], title: str) -> Any:
    """What the judged critic promises from the start (broken line) and what the policy gets (full line).

    A critic that diverges promises thousands of times what there is: then the scale is linear about zero only and
    logarithmic beyond, lest it hide all the others.
    """
    figure, axes, panels = _axes(panels)
    largest = {"discounted_return": 0.0, "critic_estimate": 0.0}
    for axis, panel in zip(axes, panels, strict=True):
        for series in panel.series:
            for column, stroke, name in (
                ("discounted_return", "-", series.name),
                ("critic_estimate", "--", None),
            ):
                steps, values = _curves(series.runs, column)
                middle = np.nanmean(values, axis=0)
                largest[column] = max(largest[column], float(np.nanmax(np.abs(middle))))
                axis.plot(steps / 1000, middle, stroke, color=series.colour, label=name, linewidth=1.6)
        axis.set_xlabel("thousand steps")
    got, promised = largest.values()
    if promised > DIVERGES * got > 0:
        for axis in axes:  # linear to a power of ten, where there is a tick
            axis.set_yscale("symlog", linthresh=10.0 ** np.floor(np.log10(got)), linscale=2.0)
    text = f"{title}: return (full) and the critic's estimate of it (broken)"
    return _finish(figure, axes, panels, "discounted_return", text, limits=None)


def _visits(panel: Panel) -> Any:
    """Visits of each cell, first seed, on one logarithmic scale: a row for every series and a column for every beta,
    or, at one beta, the series beside each other."""
    plt = require_matplotlib()
    from matplotlib.colors import LogNorm

    cells = visit_map(panel.runs)
    assert cells is not None, "asked before"
    betas = sorted({run.beta for run in panel.runs})
    rows, columns = (len(panel.series), len(betas)) if len(betas) > 1 else (1, len(panel.series))
    size = (2.1 * columns + 1.2, 2.35 * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    counted = [run.visits.max() for run in panel.runs if run.visits is not None]
    scale, image = LogNorm(vmin=1, vmax=max(2.0, float(max(counted)))), None
    for row, series in zip(axes.reshape(len(panel.series), len(betas)), panel.series, strict=True):
        for axis, beta in zip(row, betas, strict=True):
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_facecolor("#e8e8e8")
            runs = series.at(beta)
            heading = series.name if series.knows_no_beta else f"{series.name}, {said_beta(beta)}"
            axis.set_title(wrapped(heading, 30), fontsize=8)
            if not runs or runs[0].visits is None:
                axis.set_visible(bool(runs))
                continue
            counts = cells.fill(runs[0].visits)
            if (counts == WALL).any():
                axis.imshow(np.where(counts == WALL, 0.3, np.nan), cmap="gray", vmin=0, vmax=1)
            image = axis.imshow(np.where(counts > 0, counts, np.nan), cmap="viridis", norm=scale)
    if image is not None:
        figure.colorbar(image, ax=axes, label="visits", shrink=0.7)
    figure.suptitle(panel.title, fontsize=10)
    return figure


def _curves(runs: Sequence[RunResult], column: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values [runs, steps]); runs of one series are judged at the same steps."""
    shortest = min(len(run.curve["step"]) for run in runs)
    return runs[0].curve["step"][:shortest], np.stack([run.curve[column][:shortest] for run in runs])


def _line(axis: Any, series: Series, x: np.ndarray, y: np.ndarray, under: int, **how: Any) -> None:
    """`under`: how many lines are drawn after this one. It is the wider for it, so that equal curves all show."""
    width = 1.3 + 0.45 * min(under, 4)
    size = 3.5 + 0.7 * min(under, 4)
    axis.plot(x, y, series.stroke, color=series.colour, label=series.name, linewidth=width, markersize=size, **how)


def _is_swept(panel: Panel) -> bool:
    return any(len(series.betas) > 1 for series in panel.series)


def _has_lines(panel: Panel) -> bool:
    return bool(panel.series)


def _axes(panels: Sequence[Panel], worth: Callable[[Panel], bool] = _has_lines) -> tuple[Any, list[Any], list[Panel]]:
    """The figure, and an axis for each panel that is worth one, also as a part of a crowded one."""
    plt = require_matplotlib()
    split = split_crowded(panels)
    rows = [part for row in split for part in _wrapped_row(row, MOST_COLUMNS if len(split) == 1 else MOST_COLUMNS + 1)]
    columns = max(len(row) for row in rows)
    size = (max(7.0, 3.3 * columns + 0.6), 2.8 * len(rows) + 0.7)
    figure, axes = plt.subplots(len(rows), columns, figsize=size, squeeze=False, sharey=True, layout="constrained")
    drawn = []
    for row, places in zip(rows, axes, strict=True):
        shown = [(place, panel) for place, panel in zip(places, row, strict=False) if worth(panel)]
        for place in set(places) - {place for place, _ in shown}:
            place.set_visible(False)
        drawn += shown
    return figure, [axis for axis, _ in drawn], [panel for _, panel in drawn]


def _wrapped_row(row: list[Panel], most: int) -> list[list[Panel]]:
    """As even as they get: five are three and two, not four and one."""
    width = -(-len(row) // -(-len(row) // most))
    return [row[start : start + width] for start in range(0, len(row), width)]


def _finish(
    figure: Any,
    axes: Sequence[Any],
    panels: Sequence[Panel],
    column: str,
    title: str,
    limits: tuple[float, float] | None = (-0.04, 1.04),
) -> Any:
    for axis, panel in zip(axes, panels, strict=True):
        axis.set_title(panel.title, fontsize=10)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if limits is not None and column.endswith("success"):
            axis.set_ylim(*limits)
        if axis.get_subplotspec().is_first_col():
            axis.set_ylabel(LABELS.get(column, column.replace("_", " ")))
    names: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            names.setdefault(name, handle)
    columns = legend_columns(list(names), figure.get_figwidth())
    rows = -(-len(names) // columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_ROW * (rows - 1))
    figure.legend(
        names.values(), names.keys(), loc="outside lower center", ncols=columns, frameon=False, handlelength=LEGEND_LINE
    )
    figure.suptitle(wrapped(title, figure.get_figwidth() * 11), fontsize=11)
    return figure


def legend_columns(names: Sequence[str], inches: float) -> int:
    """As many as fit beside each other, at most five."""
    widest = 0.9 + 0.085 * max(len(name) for name in names)
    return max(1, min(len(names), 5, int(inches / widest)))


def _save(figure: Any, path: Path) -> list[Path]:
    """Both formats: pixels for a page, lines for a paper. No date inside, so that equal results give equal files."""
    plt = require_matplotlib()
    kinds: dict[str, Callable[[Path], None]] = {
        "png": lambda where: figure.savefig(where, dpi=150),
        "svg": lambda where: figure.savefig(where, metadata={"Date": None}),
    }
    saved = []
    for kind, save in kinds.items():
        where = path.with_suffix(f".{kind}")
        with plt.rc_context({"svg.hashsalt": "hyper-rl"}):
            save(where)
        saved.append(where)
    plt.close(figure)
    return saved

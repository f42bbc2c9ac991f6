"""Figures of the linear part. matplotlib is imported here alone, where a figure is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from hyper_rl.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#1f78b4", "#a6761d", "#666666", "#66a61e", "#e6ab02")


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("the plot", "plots") from error
    # A Figure without pyplot draws to a file with no display and no global state.
    return Figure(figsize=(width, height), layout="constrained")


def beta_figure(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """V/V* against β, one panel per MDP, one line per policy; the theory β is the dotted line."""
    names = list(dict.fromkeys(row["mdp"] for row in rows))
    figure = _figure(4.2 * len(names), 3.6)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        here = [row for row in rows if row["mdp"] == name]
        policies = list(dict.fromkeys(row["policy"] for row in here))
        for i, (colour, policy) in enumerate(zip(COLOURS, policies, strict=False)):
            cells = sorted((row for row in here if row["policy"] == policy), key=lambda row: float(row["beta"]))
            style = "--" if policy == "LSVI-UCB" else "-"
            panel.plot(
                [row["beta"] for row in cells],
                [row["value_share"] for row in cells],
                style,
                marker="o",
                markersize=3.5,
                # Later lines are thinner, so that lines on top of each other all show.
                linewidth=1.2 + 0.7 * (len(policies) - 1 - i),
                color=colour,
                label=policy,
            )
        panel.axvline(max(row["beta"] for row in here), color="grey", linestyle=":", linewidth=1)
        panel.set(xscale="log", xlabel="β", title=name, ylim=(0, 1.05))
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("V / V*, last tenth of the episodes")
    panels[0].legend(fontsize=8, loc="upper left")
    figure.savefig(path, dpi=110)


def slope_figure(path: Path, rows: Sequence[Mapping[str, Any]], slopes: Sequence[Mapping[str, Any]]) -> None:
    """Episodes to ε-optimality: a row of panels per family, a column per axis; slopes with the proof's beside them."""
    families = list(dict.fromkeys(row["family"] for row in rows))
    axes = list(dict.fromkeys(row["axis"] for row in rows))
    figure = _figure(4.2 * len(axes), 3.5 * len(families))
    panels = figure.subplots(len(families), len(axes), squeeze=False)
    for family, panel_row in zip(families, panels, strict=True):
        for axis, panel in zip(axes, panel_row, strict=True):
            here = [r for r in rows if (r["family"], r["axis"], r["measure"]) == (family, axis, "settled")]
            mine = (s for s in slopes if (s["family"], s["axis"], s["measure"]) == (family, axis, "settled"))
            fitted = next(mine, None)
            _slope_panel(panel, here, fitted)
            panel.set(xscale="log", yscale="log", xlabel=axis, title=f"{family}, β = {here[0]['beta']:g}")
            panel.set_xticks([row["size"] for row in here], [f"{row['size']:g}" for row in here], minor=False)
            panel.set_xticks([], minor=True)
            panel.grid(alpha=0.25, which="both")
            panel.legend(fontsize=7, loc="lower right")
        panel_row[0].set_ylabel("episodes until within ε for good")
    figure.savefig(path, dpi=110)


def _slope_panel(panel: Any, here: Sequence[Mapping[str, Any]], fitted: Mapping[str, Any] | None) -> None:
    """The measurements, and the line through them where enough runs settled for one."""
    x = np.array([row["size"] for row in here])
    median, low, high = (np.array([row[k] for row in here]) for k in ("median", "low", "high"))
    panel.errorbar(x, median, yerr=[median - low, high - median], fmt="o", color=COLOURS[4], label="median, 10-90%")
    for row in here:
        if row["censored"]:
            panel.annotate(f"{row['censored']} never", (row["size"], row["high"]), fontsize=7, ha="center", va="bottom")
    if fitted is None:
        return
    line = np.exp(fitted["intercept"]) * x ** fitted["slope"]
    text = f"slope {fitted['slope']:.2f} [{fitted['low']:.2f}, {fitted['high']:.2f}]"
    panel.plot(x, line, "-", color=COLOURS[0], label=text)
    centre = np.exp(np.log(x).mean())
    height = np.exp(fitted["intercept"]) * centre ** fitted["slope"]
    stated = "proof as written" if fitted["axis"] == "1/p" else "theorem, β = theory"
    for which, words, style in (("fixed_beta", "proof, β fixed", ":"), ("theorem", stated, "--")):
        claimed = height * (x / centre) ** fitted[which]
        panel.plot(x, claimed, style, color="grey", label=f"{words}: {fitted[which]:g}")
    # The reference lines may leave the panel: the measurements set its scale.
    panel.set_ylim(0.08 * min(low.min(), line.min()), 2.5 * max(high.max(), line.max()))


def run_figure(
    path: Path,
    title: str,
    curves: Mapping[str, Float[np.ndarray, "seeds K"]],
    optimal_value: float,
) -> None:
    """V/V* and cumulative regret of the output policy, mean over seeds with the 10-90% band."""
    figure = _figure(9.5, 3.8)
    left, right = figure.subplots(1, 2)
    for i, (label, values) in enumerate(curves.items()):
        colour = COLOURS[i % len(COLOURS)]
        episodes = np.arange(1, values.shape[1] + 1)
        step = max(len(episodes) // 1000, 1)
        for panel, series in ((left, values / optimal_value), (right, np.cumsum(optimal_value - values, axis=1))):
            thin = series[:, ::step]
            panel.plot(episodes[::step], thin.mean(0), color=colour, label=label, linewidth=1.2)
            low, high = np.quantile(thin, [0.1, 0.9], axis=0)
            panel.fill_between(episodes[::step], low, high, color=colour, alpha=0.15, linewidth=0)
    left.set(xlabel="episode", ylabel="V / V*", ylim=(0, 1.05))
    right.set(xlabel="episode", ylabel="cumulative regret of the output policy")
    for panel in (left, right):
        panel.grid(alpha=0.25)
    right.legend(fontsize=8, loc="upper left")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)

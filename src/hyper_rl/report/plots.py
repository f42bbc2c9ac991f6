"""Pictures of finished run folders: success curves and where the agent has been. They read files only."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hyper_rl.errors import missing_extra
from hyper_rl.report.panels import COLOURS
from hyper_rl.training.run_folder import RunFolder


def require_matplotlib() -> Any:
    """matplotlib.pyplot without a screen, or a sentence that says what to install."""
    try:
        import matplotlib
    except ImportError:
        raise missing_extra("drawing pictures", "plots") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def seed_bands(curve: dict[str, np.ndarray], beta: float, column: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps, values [seeds, steps]) of one beta."""
    mine = curve["beta"] == beta
    runs = np.unique(curve["run"][mine])
    values = np.stack([curve[column][mine & (curve["run"] == run)] for run in runs])
    return np.unique(curve["step"][mine]), values


def plot_curves(folders: Mapping[str, Path], labels: Mapping[str, str], column: str, title: str, out: Path) -> Path:
    """One panel per beta, one line per method: the mean over seeds and the range between the worst and the best."""
    plt = require_matplotlib()
    curves = {method: RunFolder(path).read_curve() for method, path in folders.items()}
    betas = sorted({float(beta) for curve in curves.values() for beta in np.unique(curve["beta"])})
    figure, axes = plt.subplots(1, len(betas), figsize=(3.4 * len(betas), 3.0), sharey=True, squeeze=False)
    for axis, beta in zip(axes[0], betas, strict=True):
        for method, curve in curves.items():
            if beta not in curve["beta"]:
                continue
            steps, values = seed_bands(curve, beta, column)
            colour = COLOURS.get(method, "#333333")
            axis.plot(steps / 1000, values.mean(axis=0), color=colour, label=labels[method], linewidth=2)
            axis.fill_between(
                steps / 1000, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0
            )
        axis.set_title(rf"$\beta$ = {beta:g}", fontsize=11)
        axis.set_xlabel("thousand steps")
        axis.set_ylim(-0.04, 1.04)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("success")
    axes[0][-1].legend(frameon=False, loc="center right")
    figure.suptitle(title, fontsize=12)
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    plt.close(figure)
    return out


def plot_visits(
    folders: Mapping[str, Path],
    labels: Mapping[str, str],
    grid: tuple[int, int],
    marks: Mapping[str, tuple[int, int]],
    out: Path,
) -> Path:
    """How often each cell was visited, one row per method and one column per beta, first seed, logarithmic colour."""
    plt = require_matplotlib()
    from matplotlib.colors import LogNorm

    opened = {method: RunFolder.open(path) for method, path in folders.items()}
    betas = sorted({beta for _, config in opened.values() for beta in config.betas})
    size = (2.6 * len(betas) + 0.8, 2.7 * len(folders))
    figure, axes = plt.subplots(len(folders), len(betas), figsize=size, squeeze=False)
    counted = {method: folder.read_visits() for method, (folder, _) in opened.items()}
    top = max(visits.max() for visits in counted.values())  # one scale, so that panels can be compared
    image = None
    for row, (method, (_, config)) in zip(axes, opened.items(), strict=True):
        visits = counted[method]
        for axis, beta in zip(row, betas, strict=True):
            run = [b for b, _ in config.runs].index(beta)
            counts = visits[run].reshape(grid).astype(float)
            counts[counts == 0] = np.nan
            image = axis.imshow(counts, cmap="viridis", norm=LogNorm(vmin=1, vmax=top))
            axis.set_facecolor("#e8e8e8")
            for name, (r, c) in marks.items():
                # Text inside the cell would hide the count; a letter beside it does not.
                axis.annotate(
                    name, (c, r), color="white", fontsize=9, weight="bold", ha="center", va="center",
                    bbox={"boxstyle": "circle,pad=0.15", "facecolor": "black", "alpha": 0.65, "edgecolor": "none"},
                )  # fmt: skip
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(rf"{labels[method]}, $\beta$ = {beta:g}", fontsize=10)
    figure.colorbar(image, ax=axes, label="visits", shrink=0.8)
    figure.savefig(out, dpi=150, bbox_inches="tight")
    plt.close(figure)
    return out


def said_beta(beta: float) -> str:
    """With spaces at which no line breaks."""
    return r"$\beta$" + f"\u00a0=\u00a0{beta:g}"


def wrapped(text: str, characters: float) -> str:
    return "\n".join(textwrap.wrap(text, int(characters)))

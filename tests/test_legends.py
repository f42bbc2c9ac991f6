"""Legends have as many columns as fit below a figure: letters are counted, so what is drawn is measured here."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from hyper_rl.report.panels import Panel, Series
from hyper_rl.report.study_figures import _over_steps, legend_columns
from made_studies import make_run, result

WIDTHS = {panels: max(7.0, 3.3 * panels + 0.6) for panels in (1, 3, 4)}
"""Inches of a figure, by the panels beside each other."""
LIMITS = [
    (1, 5, 5), (1, 4, 10), (1, 3, 16), (1, 2, 30), (3, 5, 14), (3, 4, 20), (3, 3, 30), (3, 2, 51),
    (4, 5, 21), (4, 4, 29), (4, 3, 43), (4, 2, 70),
]  # fmt: skip
"""Panels, columns of the legend, and the letters of the longest name that still leaves room for so many."""
NAMES = (
    "Hyper, preset robust, p start 0.001, p end 0.1, lengths bounded, bonus scale running-mean",
    "UCB-Q, lengths bounded, gamma 0.99, preset minigrid, p start 0.001, bonus scale centred",
    "LESSON, preset minigrid, warmup 100000, dqn reward factor 10, lengths plain, p end 0.1",
)
"""As studies have them; capital letters are wider than what is counted for a letter, but stand in front only."""


@pytest.mark.parametrize(("panels", "columns", "letters"), LIMITS)
def test_one_letter_more_than_fits_is_one_column_less(panels: int, columns: int, letters: int) -> None:
    assert legend_columns(["x" * letters] * 6, WIDTHS[panels]) == columns
    assert legend_columns(["x" * (letters + 1)] * 6, WIDTHS[panels]) == columns - 1


def test_the_longest_name_decides_and_one_that_never_fits_has_a_line_to_itself() -> None:
    assert legend_columns(["x" * 5] * 5 + ["x" * 17], 7.0) == 2
    assert [legend_columns(["x" * letters] * 2, 7.0) for letters in (30, 31, 71, 72, 500)] == [2, 1, 1, 1, 1]


def test_there_are_no_more_columns_than_names_and_no_more_than_five() -> None:
    assert [legend_columns(["x"] * count, 100.0) for count in (1, 2, 5, 6, 9)] == [1, 2, 5, 5, 5]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.split(",")[0])
@pytest.mark.parametrize(("panels", "columns", "letters"), LIMITS)
def test_what_just_fits_is_drawn_inside_the_figure(panels: int, columns: int, letters: int, name: str) -> None:
    runs = (make_run("Room", "hyper", 1.0, 0, result(1.0)),)
    names = [name[: letters - 1] + str(number) for number in range(columns)]
    series = tuple(Series(each, "hyper", "#000000", "--", runs) for each in names)
    figure = _over_steps([Panel("Room", series)] * panels, "success", "Room")
    try:
        figure.canvas.draw()
        (legend,) = figure.legends
        drawn, whole = legend.get_window_extent(), figure.bbox
        assert figure.get_figwidth() == pytest.approx(WIDTHS[panels]) and legend._ncols == columns
        assert whole.x0 <= drawn.x0 and drawn.x1 <= whole.x1
    finally:
        plt.close(figure)

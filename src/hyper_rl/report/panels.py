"""How the runs of a study are laid out in a figure: panels side by side, one line in each for every series.

What changes the question (the task and its options) makes panels; what changes the answer (method, preset, lengths and
whatever else a study varies) makes series. Colour tells methods apart, the stroke the rest; in a study of one method's
variants colour tells those apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hyper_rl.studies.store import RunResult

COLOURS = {
    "hyper": "#0b7a75",
    "curiosity": "#d1603d",
    "decouple": "#5b5ea6",
    "exploit": "#7a7a7a",
    "lesson": "#b8860b",
}
"""One colour per method, in every figure; told apart by lightness too, for printing in grey."""
STROKES = ("-", "--", ":", "-.")
MANY_COLOURS = ("#0b7a75", "#d1603d", "#5b5ea6", "#b8860b", "#8c2d5b", "#4c9a2a", "#3a86c8", "#7a7a7a")
"""For many variants of one method; the stroke helps once they run out."""
NAMES = {"hyper": "Hyper", "curiosity": "Curiosity", "decouple": "Decouple", "exploit": "Exploit", "lesson": "LESSON"}
TABULAR_NAMES = {**NAMES, "curiosity": "UCB-Q", "exploit": "Q-learning"}
DEEP_NAMES = {"td3": "TD3", "dqn": "DQN", "sac": "SAC"}
MOST_LINES = 6
MOST_ROWS = 3
METHOD_ORDER = ("exploit", "curiosity", "decouple", "lesson", "hyper")
"""Hyper last: what is drawn last lies on top."""


@dataclass(frozen=True)
class Series:
    """The runs behind one line, at every beta they have."""

    name: str
    method: str
    colour: str
    stroke: str
    runs: tuple[RunResult, ...]
    variant: str = ""
    """What its name says besides the method."""

    @property
    def betas(self) -> list[float]:
        return sorted({run.beta for run in self.runs})

    def at(self, beta: float) -> list[RunResult]:
        return [run for run in self.runs if run.beta == beta]

    @property
    def knows_no_beta(self) -> bool:
        """A learner alone: what is written as its beta means nothing."""
        return self.method == "exploit" and len(self.betas) == 1


@dataclass(frozen=True)
class Panel:
    title: str
    series: tuple[Series, ...]

    @property
    def runs(self) -> list[RunResult]:
        return [run for series in self.series for run in series.runs]


def lay_out(runs: Sequence[RunResult]) -> list[Panel]:
    """In the order of the study."""
    varied = _varied(runs)
    asks = [key for key in varied if _is_question(key)]
    answers = [key for key in varied if not _is_question(key)]
    questions = _distinct(_values(run, asks) for run in runs)
    groups = [[run for run in runs if _values(run, asks) == question] for question in questions]
    # What differs in no panel (a preset that follows from the task, say) is not named; what differs in one is named in
    # all of them and looks the same in all, for they share a legend.
    differ = {key for mine in groups for key in _varied(mine)}
    besides = [key for key in answers if key in differ and key != "method"]
    if _tells_all(runs, "variant", besides):
        besides = ["variant"]  # the study's own words for all that makes the difference
    strokes = _distinct(_values(run, besides) for run in runs)
    # Where no two methods share a variant, colour may tell variants apart: strokes alone are hard to follow.
    by_colour = len(strokes) > 2 and len(strokes) == len(_distinct(_values(run, ("method", *besides)) for run in runs))
    panels = []
    for question, mine in zip(questions, groups, strict=True):
        task = str(mine[0].labels.get("task", ""))
        extra = [f"{_short(key)} = {_said(value)}" for key, value in zip(asks, question, strict=True) if key != "task"]
        panels.append(Panel(", ".join([task, *extra]), _series(mine, besides, strokes, by_colour=by_colour)))
    return panels


def split_crowded(panels: Sequence[Panel], *, rename: bool = True) -> list[list[Panel]]:
    """Rows of panels: one row of all, or, where a panel has more lines than one can follow, one row for each variant.

    Columns stay what they were; a panel without runs of a variant is empty there. `rename`: lines are full and called
    by their method alone, as the title says the rest.
    """
    variants = sorted({series.variant for panel in panels for series in panel.series})
    methods = {series.method for panel in panels for series in panel.series}
    crowded = max(len(panel.series) for panel in panels) > MOST_LINES
    if not crowded or not 1 < len(variants) <= MOST_ROWS or len(methods) == 1:
        return [list(panels)]
    return [[_part(panel, variant, rename) for panel in panels] for variant in variants]


def _part(panel: Panel, variant: str, rename: bool) -> Panel:
    mine = [series for series in panel.series if series.variant == variant]
    if rename:
        mine = [
            replace(series, name=series.name.removesuffix(variant).removesuffix(", "), stroke=STROKES[0])
            for series in mine
        ]
    return Panel(f"{panel.title}, {variant}" if variant else panel.title, tuple(mine))


def _series(
    runs: Sequence[RunResult], besides: Sequence[str], strokes: Sequence[Any], *, by_colour: bool
) -> tuple[Series, ...]:
    keys = ("method", *besides)
    found = []
    for answer in _distinct(_values(run, keys) for run in runs):
        mine = tuple(run for run in runs if _values(run, keys) == answer)
        method, rest = str(answer[0]), answer[1:]
        said = [_difference(key, value) for key, value in zip(besides, rest, strict=True)]
        name = ", ".join([method_name(method, str(mine[0].labels.get("learner", ""))), *said])
        colour, stroke = _look(method, strokes.index(rest), by_colour=by_colour)
        found.append(Series(name, method, colour, stroke, mine, ", ".join(said)))
    known = {method: place for place, method in enumerate(METHOD_ORDER)}
    return tuple(sorted(found, key=lambda series: known.get(series.method, -1)))


def _tells_all(runs: Sequence[RunResult], key: str, besides: Sequence[str]) -> bool:
    """Whether runs of one method with the same `key` are alike in all the rest."""
    if key not in besides:
        return False
    by_key, by_all = (_distinct(_values(run, ("method", *keys)) for run in runs) for keys in ((key,), besides))
    return len(by_key) == len(by_all)


def _difference(key: str, value: Any) -> str:
    return str(value) if key == "variant" else f"{_short(key)} {_said(value)}"


def _look(method: str, place: int, *, by_colour: bool) -> tuple[str, str]:
    """Colour and stroke of the `place`-th variant."""
    if by_colour:
        return MANY_COLOURS[place % len(MANY_COLOURS)], STROKES[place // len(MANY_COLOURS) % len(STROKES)]
    return COLOURS.get(method, "#333333"), STROKES[place % len(STROKES)]


def method_name(method: str, learner: str) -> str:
    """What a reader calls it: a learner alone has a name of its own."""
    if method == "exploit" and learner in DEEP_NAMES:
        return DEEP_NAMES[learner]
    return (TABULAR_NAMES if learner == "tabular_q" else NAMES).get(method, method)


def _varied(runs: Sequence[RunResult]) -> list[str]:
    keys = _distinct(key for run in runs for key in run.labels)
    # Learner and bonus follow from the task where nobody sets them: they are no choice of the study by themselves.
    follows = {"learner", "bonus"}
    several = [key for key in keys if len({repr(run.labels.get(key)) for run in runs}) > 1]
    return [key for key in several if key not in follows or not _follows_task(runs, key)]


def _follows_task(runs: Sequence[RunResult], key: str) -> bool:
    by_task: Mapping[Any, set[str]] = {run.labels.get("task"): set() for run in runs}
    for run in runs:
        by_task[run.labels.get("task")].add(repr(run.labels.get(key)))
    return all(len(values) == 1 for values in by_task.values())


def _is_question(key: str) -> bool:
    return key == "task" or key.startswith("env.") or key.endswith(".gamma")


def _values(run: RunResult, keys: Sequence[str]) -> tuple[Any, ...]:
    return tuple(run.labels.get(key) for key in keys)


def _distinct(values: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _short(key: str) -> str:
    return key.split(".")[-1].replace("_", " ")


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)

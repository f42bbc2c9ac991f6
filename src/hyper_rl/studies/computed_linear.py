"""The provable version on linear MDPs (docs/linear.md) as a study: V/V* over beta, the bounds, the scaling."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hyper_rl.report.plots import require_matplotlib
from hyper_rl.studies.computed import ComputedStudy, Part, Settings
from hyper_rl.theory.study_complexity import complexity_study
from hyper_rl.theory.study_confidence import confidence_study
from hyper_rl.theory.study_table import table_study

TABLE, CONFIDENCE, COMPLEXITY = "table", "confidence", "complexity"


def run_part(compute: Callable[..., None], folder: Path, settings: Settings) -> None:
    compute(folder, **settings)
    for path in folder.glob("*.json"):
        # The command stands in study.json, without the folders of this machine.
        document = json.loads(path.read_text())
        del document["made_by"]["command"]
        path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")


def _part(name: str, compute: Callable[..., None], paper: Settings, quick: Settings) -> Part:
    return Part(name, partial(run_part, compute), {"paper": paper, "quick": quick})


LINEAR = ComputedStudy(
    name="linear",
    title="Linear-UCB-Hyper and LSVI-UCB on linear MDPs",
    description="V/V* over beta and p, whether the confidence bounds hold, episodes needed against H, d and 1/p.",
    parts=(
        _part(TABLE, table_study, {"seeds": 20, "episodes": 3000}, {"seeds": 2, "episodes": 100}),
        _part(
            CONFIDENCE,
            confidence_study,
            {"seeds": 200, "episodes": 3000, "sweep_episodes": 1000},
            {"seeds": 5, "episodes": 100, "sweep_episodes": 50},
        ),
        _part(COMPLEXITY, complexity_study, {"seeds": 20, "scale": 1.0}, {"seeds": 2, "scale": 0.4}),
    ),
    check=lambda: require_matplotlib() and None,
)

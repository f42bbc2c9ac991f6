"""Our statistics against rliable's, on the same numbers.

    pip install -r benchmarks/peers/statistics_requirements.txt
    python benchmarks/peers/statistics_check.py

In the benchmarks' environment (`make bench` makes it), with rliable and what it imports added. Point values must
agree to rounding. Intervals come from other random resamples, so their ends must agree within three times their Monte
Carlo error, which is measured by repeating rliable's bootstrap. rliable wants as many runs for every task; ours need
not be.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import arch.bootstrap
import numpy as np
from rliable import library, metrics

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from hyper_rl.studies import statistics

RUNS, TASKS, RESAMPLES, REPEATS = 10, 6, 5_000, 8


def drop_random_state() -> None:
    """rliable 1.2 hands arch a `random_state`, which arch has not known since version 6; nothing is drawn from it."""
    for kind in (arch.bootstrap.IIDBootstrap, arch.bootstrap.IndependentSamplesBootstrap):

        def initialise(self: Any, *args: Any, _made: Any = kind.__init__, **kwargs: Any) -> None:
            kwargs.pop("random_state", None)
            _made(self, *args, **kwargs)

        kind.__init__ = initialise


def interval_difference(scores: np.ndarray, aggregate: object, ours: statistics.Estimate) -> dict[str, float]:
    """How far our interval's ends are from the mean of rliable's, in units of the spread of those."""
    ends = []
    for seed in range(REPEATS):
        np.random.seed(seed)  # rliable draws from the global generator
        _, found = library.get_interval_estimates({"x": scores}, aggregate, reps=RESAMPLES)
        ends.append(found["x"][:, 0])
    ends_array = np.array(ends)
    gap = np.abs(np.array([ours.low, ours.high]) - ends_array.mean(axis=0))
    return {"gap": float(gap.max()), "in_deviations": float((gap / np.maximum(ends_array.std(axis=0), 1e-12)).max())}


def main() -> None:
    drop_random_state()
    rng = np.random.default_rng(0)
    first = rng.beta(2, 1, (RUNS, TASKS))
    second = np.round(rng.beta(1, 1, (RUNS, TASKS)), 1)
    first[:, 0] = np.round(first[:, 0], 1)  # so that there are ties
    strata, others = list(first.T), list(second.T)
    found: dict[str, object] = {}

    pairs = {
        "mean": (statistics.mean_of(strata), metrics.aggregate_mean),
        "iqm": (statistics.iqm_of(strata), metrics.aggregate_iqm),
    }
    for name, (ours, theirs) in pairs.items():
        found[name] = abs(ours.value - float(theirs(first)))
        compared = interval_difference(first, lambda x, theirs=theirs: np.array([theirs(x)]), ours)
        found[f"{name} interval"] = compared
    improvement = statistics.probability_of_improvement(strata, others)
    found["probability of improvement"] = abs(
        improvement.value - float(metrics.probability_of_improvement(first, second))
    )

    thresholds = np.linspace(0, 1, 21)
    profile = statistics.performance_profile(strata, thresholds)
    theirs_profile, _ = library.create_performance_profile({"x": first}, thresholds, reps=200)
    found["performance profile"] = float(np.abs(profile.share - theirs_profile["x"]).max())

    print(json.dumps(found, indent=1))
    exact = [value for value in found.values() if isinstance(value, float)]
    near = [value["in_deviations"] for value in found.values() if isinstance(value, dict)]
    # Both sides have Monte Carlo error, so three deviations of the difference are 3·sqrt(1 + 1/REPEATS).
    ok = max(exact) < 1e-12 and max(near) < 3 * np.sqrt(1 + 1 / REPEATS)
    print("agree" if ok else "DIFFER")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()

"""`hyper-rl linear`: table, JSON, files, and one clear line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tyro

from hyper_rl.cli.linear import LinearArgs, make_mdp, run_linear

SMALL = ("--episodes", "30", "--seeds", "2")
SIZES = ("--states", "4", "--horizon", "5")


def call(*words: str) -> int:
    return run_linear(tyro.cli(LinearArgs, args=list(words)))


def test_json_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = call(
        "riverswim", *SMALL, *SIZES, "--beta", "1", "theory", "--p", "1", "0.5", "--json", "--out", str(tmp_path)
    )
    assert code == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["p"], round(row["beta"], 3)) for row in document["rows"]][0::2] == [(1.0, 1.0), (0.5, 1.0)]
    assert document["rows"][1]["upper_bound_holds"] == 1.0
    assert {path.name for path in tmp_path.iterdir()} == {"linear.csv", "linear.json", "linear.png"}
    assert json.loads((tmp_path / "linear.json").read_text())["optimal_value"] == document["optimal_value"]


def test_table_of_lsvi_ucb(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("riverswim", *SMALL, *SIZES, "--algorithm", "lsvi-ucb", "--beta", "0", "1", "2", "theory")
    assert call(*words) == 0
    assert "riverswim-S4-H5: d = 8" in capsys.readouterr().out


def test_every_family_takes_its_sizes() -> None:
    assert make_mdp(LinearArgs("deepsea", horizon=5)).name == "deepsea-N5"
    assert make_mdp(LinearArgs("lock", horizon=5, actions=2)).name == "lock-S6-A2-H5"
    assert make_mdp(LinearArgs("lowrank", states=7, dimension=3)).name == "lowrank-S7-A4-d3-H8"
    assert make_mdp(LinearArgs("riverswim")).name == "riverswim-S6-H12"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lock", "--horizon", "0"), "horizon = 0: must be at least 1"),
        (("lock", "--beta", "1", "-2"), "beta[1] = -2: must be >= 0"),
        (("lock", "--beta", "big"), "beta[0] = 'big': must be a number >= 0 or the word theory"),
        (("lock", "--p", "0.5", "0"), "p[1] = 0: must be in (0, 1]"),
        (("lock", "--ridge", "0"), "lambda[0] = 0: must be > 0"),
        (("lock", "--delta", "0"), "delta = 0.0: must lie in (0, 1)"),
        (("lock", "--seeds", "0"), "seeds = 0: must be at least 1"),
        (("lock", "--episodes", "0", "--beta", "1"), "episodes = 0: must be at least 1"),
        (("lock", "--states", "5"), "states = 5: lock takes only horizon, actions"),
        (("lock", "--algorithm", "lsvi-ucb", "--p", "0.5"), "p = [0.5]: lsvi-ucb has no repositioning"),
    ],
)
def test_bad_input_is_one_line_and_code_two(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1

"""Study files: what they mean, and what is refused with line, key, value and reason before anything runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hyper_rl.cli.main import main
from hyper_rl.cli.train_options import TrainOptions, default_options, resolve
from hyper_rl.config import build_program
from hyper_rl.envs.room import Room
from hyper_rl.errors import UserError
from hyper_rl.studies.layout import divide, restore_division
from hyper_rl.studies.plan import Group, plan_study
from hyper_rl.studies.study_file import StudyFile, builtin_studies, find_study, parse_study
from hyper_rl.studies.toml_lines import find_lines
from hyper_rl.training.memory import HEADROOM, estimate

HEAD = 'task = "Room"\npreset = "paper"\nsteps = 100\n'
GROUP = '[[group]]\nmethod = "hyper"\n'


def parse(text: str) -> StudyFile:
    return parse_study(text, "mine", "mine.toml")


def plan(text: str, scale: str = "paper") -> tuple[Group, ...]:
    return plan_study(parse(text), scale)


BAD = {
    "not TOML": ("task = \n", "mine.toml: not TOML: Invalid value (at line 1, column 8)"),
    "no group": (HEAD, "no [[group]]"),
    "group is no table": (HEAD + "group = 3\n", "line 4: group: got 3, must be tables"),
    "empty list of groups": (HEAD + "group = []\n", "line 4: group: got [], must be at least one table"),
    "no task": ("steps = 5\n" + GROUP, "task: missing"),
    "unknown key": (HEAD + GROUP + "stepz = 3\n", "line 6: key: unknown 'stepz'; did you mean steps"),
    "unknown key at the top": ("titel = 'x'\n" + HEAD + GROUP, "line 1: key: unknown 'titel'; did you mean title"),
    "unknown task": ('task = "Rooom"\n' + GROUP, "line 1: task: unknown 'Rooom'; did you mean Room"),
    "unknown method": (HEAD + "[[group]]\nmethods = ['hyper', 'hyperr']\n", "line 5: methods: unknown 'hyperr'"),
    "task of another type": ("task = 3\n" + GROUP, "line 1: task: got 3, must be a text"),
    "steps as text": (
        'steps = "many"\ntask="Room"\n' + GROUP,
        "line 1: steps: got 'many', must be a whole number >= 1",
    ),
    "steps as a fraction": ('steps = 1.5\ntask="Room"\n' + GROUP, "line 1: steps: got 1.5, must be a whole number"),
    "steps as a flag": ('steps = true\ntask="Room"\n' + GROUP, "line 1: steps: got True, must be a whole number"),
    "no steps": (HEAD + GROUP + "eval_every = 0\n", "line 6: eval_every: got 0, must be a whole number >= 1"),
    "nothing but warm-up": (HEAD + GROUP + "warmup = 100\n", "line 6: warmup: got 100, must be below the 100 steps"),
    "a method that is a number": (HEAD + "[[group]]\nmethod = 1\n", "line 5: method: got 1, must be one of exploit"),
    "a flag as text": (HEAD + GROUP + "normalise_observations = 'yes'\n", "line 6: normalise_observations: got 'yes'"),
    "empty grid": (HEAD + GROUP + "betas = []\n", "line 6: betas: got [], must be at least one value"),
    "empty list of methods": (HEAD + "[[group]]\nmethods = []\n", "line 5: methods: got [], must be at least one"),
    "beta NaN": (HEAD + GROUP + "betas = [0.1, nan]\n", "line 6: betas: got nan, must be a finite number >= 0"),
    "beta infinite": (HEAD + GROUP + "beta = inf\n", "line 6: beta: got inf, must be a finite number >= 0"),
    "beta negative": (HEAD + GROUP + "betas = [1, -0.5]\n", "line 6: betas: got -0.5, must be a finite number >= 0"),
    "beta as text": (HEAD + GROUP + "beta = '1'\n", "line 6: beta: got '1', must be a finite number"),
    "beta twice": (HEAD + GROUP + "betas = [1, 1.0]\n", "line 6: betas: got [1, 1.0], must be a list without rep"),
    "beta under two names": (
        HEAD + GROUP + "beta = 1\nbetas = [2]\n",
        "line 7: betas: given twice, also as beta in line 6",
    ),
    "seed twice": (HEAD + GROUP + "seeds = [3, 3]\n", "line 6: seeds: got [3, 3], must be a list without repetitions"),
    "no seeds": (HEAD + GROUP + "seeds = 0\n", "line 6: seeds: got 0, must be a whole number >= 1"),
    "seed negative": (HEAD + GROUP + "seeds = [-1]\n", "line 6: seeds: got -1, must be a whole number >= 0"),
    "seed too large": (HEAD + GROUP + "seeds = [4294967296]\n", "line 6: seeds: got 4294967296, must be between 0"),
    "ten million runs": (HEAD + GROUP + "seeds = 10_000_000\n", "line 6: seeds: 10000000 values make 10,000,000 runs"),
    "too many by a grid": (
        HEAD + f"[[group]]\nseeds = 1000\nbetas = {[i / 10 for i in range(101)]}\n",
        "line 5: seeds: 1000 values make 101,000 runs, must be at most 100,000",
    ),
    "p too large": (HEAD + GROUP + "p_start = 1.5\n", "line 6: p_start: got 1.5, must be a probability in (0, 1]"),
    "p_end in words": (HEAD + GROUP + "p_end = '2/H'\n", "line 6: p_end: got '2/H', must be a probability"),
    "lengths": (HEAD + GROUP + "lengths = 'short'\n", "line 6: lengths: unknown 'short'"),
    "task option that does not fit": (HEAD + GROUP + "env = { colour = 1 }\n", "line 6: env: options"),
    "task option out of range": (
        HEAD + GROUP + "[group.env]\nsubgoal = [40, 2]\n",
        "line 7: room.subgoal: got (40, 2), must be a cell of the room",
    ),
    "task option by the paper's symbol": (HEAD + GROUP + "[group.env]\nR = nan\n", "line 7: env.R: got nan, must be"),
    "task options that are no table": (HEAD + GROUP + "env = 3\n", "line 6: env: got 3, must be a table of options"),
    "unknown option of a part": (
        HEAD + GROUP + "tabular_q = { gama = 0.9 }\n",
        "line 6: tabular_q.gama: unknown 'gama'; did you mean gamma",
    ),
    "option of a part of another type": (
        HEAD + GROUP + "[group.tabular_q]\ngamma = 'high'\n",
        "line 7: tabular_q.gamma: got 'high', must be a number",
    ),
    "option of a part out of range": (
        HEAD + GROUP + "[group.tabular_q]\ngamma = 1.5\n",
        "line 7: tabular_q.gamma: got 1.5",
    ),
    "widths that are no list": (HEAD + GROUP + "td3 = { widths = 3 }\n", "line 6: td3.widths: got 3, must be a list"),
    "option of a part that takes no share": (
        HEAD + GROUP + "td3 = { lr = 1e-3 }\n",
        "line 6: td3.lr: set, but td3 takes no part in any of these runs",
    ),
    "the same at the top": (HEAD + "td3 = { lr = 1e-3 }\n" + GROUP, "line 4: td3.lr: set, but td3 takes no part"),
    "learner that does not fit": (HEAD + GROUP + "learner = 'td3'\n", "line 6: learner: "),
    "duplicate run": (
        HEAD + GROUP + "beta = 1\n" + GROUP + "beta = 1\n",
        "group: beta 1, seed 0 of Room-hyper~2 is the same",
    ),
    "duplicate in part": (
        HEAD + GROUP + "betas = [1, 2]\n" + GROUP + "betas = [2, 3]\n",
        "line 9: group: beta 2, seed 0",
    ),
    "p where it means nothing": (
        HEAD + "[[group]]\nmethod = 'decouple'\np_start = [0.1, 0.2]\n",
        "is the same run as in",
    ),
    "scale of another name": (HEAD + GROUP + "[scale.fast]\nseeds = 1\n", "line 6: scale: unknown 'fast'"),
    "scale that is no table": (HEAD + "scale = 2\n" + GROUP, "line 4: scale: got 2, must be a table"),
    "unknown key in a scale": (
        HEAD + GROUP + "[scale.quick]\nstep = 1\n",
        "line 7: key: unknown 'step'; did you mean steps",
    ),
    "title": ("title = 3\n" + HEAD + GROUP, "line 1: title: got 3, must be a text"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_line_and_reason(name: str) -> None:
    text, reason = BAD[name]
    with pytest.raises(UserError) as refused:
        plan(text)
    assert str(refused.value).startswith("mine.toml")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_command_refuses_before_anything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "out"
    file.write_text(HEAD + GROUP + "betas = [0.1, nan]\n")
    assert main(["study", str(file), "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"{file}, line 6: betas: got nan" in said and said.count("\n") == 1
    assert not out.exists()
    assert main(["study", "figure-11", "--out", str(out)]) == 2
    assert "did you mean figure-1" in capsys.readouterr().err
    assert main(["study", "figure-1"]) == 2
    assert "out: missing" in capsys.readouterr().err
    file.write_text(HEAD + GROUP)
    assert main(["study", str(file), "--scale", "quick", "--out", str(out)]) == 2
    assert "has no [scale.quick]" in capsys.readouterr().err


def test_lines_are_found_through_strings_arrays_and_tables() -> None:
    text = '''# a comment
title = """
steps = 3
[[group]]
"""
betas = [
  1,  # [not a table]
  2,
]
a.b = 1

[[group]]
x = "]"
[group.env]
y = { z = 1 }
[[group]]
x = 2
'''
    lines = find_lines(text)
    assert lines[("title",)] == 2 and lines[("betas",)] == 6 and lines[("a", "b")] == 10
    assert lines[("group", 0)] == 12 and lines[("group", 0, "env", "y", "z")] == 15
    assert lines[("group", 1, "x")] == 17 and ("steps",) not in lines


def test_a_group_is_what_the_command_would_train() -> None:
    text = (
        'task = "Room"\npreset = "paper"\nsteps = 500\nbetas = [0.01, 1]\nseeds = 3\n'
        "[[group]]\nmethod = 'hyper'\nlengths = 'plain'\np_end = '1/H'\n"
        "[group.env]\nR = 10\nr = 1\nhorizon = 50\n[group.tabular_q]\ngamma = 0.97\n"
    )
    (group,) = plan(text)
    options = dataclasses.replace(
        default_options("paper"), task="Room", steps=500, beta=(0.01, 1.0), seeds=3, lengths="plain", p_end="1/H",
        room=Room(goal_reward=10, subgoal_reward=1, horizon=50),
        tabular_q=dataclasses.replace(TrainOptions().tabular_q, gamma=0.97),
    )  # fmt: skip
    assert group.config.to_json() == resolve(options).to_json()
    maze = plan('task = "MediumMaze-Easy"\n[[group]]\n[group.td3]\nwidths = [8, 8]\n')[0].config
    chosen = default_options("robust")
    wanted = dataclasses.replace(chosen, task="MediumMaze-Easy", td3=dataclasses.replace(chosen.td3, widths=(8, 8)))
    assert maze.to_json() == resolve(wanted).to_json()


def test_lists_make_groups_and_labels() -> None:
    groups = plan(
        HEAD + "bonus = 'counts'\nseeds = [4, 7]\n[[group]]\nmethods = ['hyper', 'exploit']\n"
        "[[group]]\nmethod = 'hyper'\np_start = [0.1, 0.2]\nenv = { subgoal = [[3, 3], [4, 4]] }\neval_every = 50\n"
    )
    assert [group.labels["method"] for group in groups] == ["hyper", "exploit", *["hyper"] * 4]
    assert groups[1].config.bonus == "none"
    assert all(group.config.seeds == (4, 7) for group in groups)
    assert {(group.labels["p_start"], group.labels["env.subgoal"]) for group in groups[2:]} == {
        (p, cell) for p in (0.1, 0.2) for cell in ((3, 3), (4, 4))
    }
    # What a group leaves out stands in its label all the same.
    assert groups[0].labels["p_start"] == pytest.approx(0.01) and groups[0].labels["env.subgoal"] == (17, 17)
    assert groups[0].labels["eval_every"] == 5000 and groups[2].labels["eval_every"] == 50
    assert len({group.name for group in groups}) == 6
    assert set(groups[0].labels) >= {"task", "method", "preset", "learner"}


def test_what_goes_with_the_task_is_no_label() -> None:
    first, second = plan("[[group]]\ntask = 'Room'\nsteps = 10\n[[group]]\ntask = 'MediumMaze-Easy'\nsteps = 20\n")
    assert set(first.labels) == set(second.labels) == {"task", "method", "preset", "learner"}
    assert first.name == "Room-hyper-tabular_q"


def test_a_scale_changes_values_or_groups() -> None:
    text = HEAD + "seeds = 5\n[[group]]\nmethods = ['hyper', 'decouple']\nbetas = [1, 2]\n[scale.quick]\nseeds = 1\n"
    assert [len(group.config.runs) for group in plan(text)] == [10, 10]
    assert [len(group.config.runs) for group in plan(text, "quick")] == [2, 2]
    replaced = text + "[[scale.quick.group]]\nmethod = 'curiosity'\nseeds = 2\n"
    (group,) = plan(replaced, "quick")
    assert group.config.method == "curiosity" and group.config.seeds == (0, 1) and group.config.betas == (1.0,)
    with pytest.raises(UserError, match=r"no \[scale.quick\]"):
        plan(HEAD + GROUP, "quick")


def test_a_group_that_does_not_fit_is_divided_and_found_again() -> None:
    (group,) = plan(HEAD + GROUP + "betas = [1, 2, 3]\nseeds = 4\n")
    assert divide([group], 1 << 40) == (group,)
    one = estimate(build_program(dataclasses.replace(group.config, betas=(1.0,), seeds=(0,))))[0]
    shapes = {
        runs: [(part.config.betas, part.config.seeds) for part in divide([group], int((runs + 0.5) * one / HEADROOM))]
        for runs in (9, 4, 3)
    }
    every = (0, 1, 2, 3)
    assert shapes[9] == [((1.0, 2.0), every), ((3.0,), every)]
    assert shapes[4] == [((1.0,), every), ((2.0,), every), ((3.0,), every)]
    assert shapes[3] == [((beta,), seeds) for beta in (1.0, 2.0, 3.0) for seeds in ((0, 1), (2, 3))]
    parts = divide([group], int(3.5 * one / HEADROOM))
    stored = [{"name": p.name, "betas": list(p.config.betas), "seeds": list(p.config.seeds)} for p in parts]
    assert restore_division([group], stored, "study.json") == parts
    with pytest.raises(UserError, match="not those of the study file"):
        restore_division([group], stored[1:], "study.json")
    with pytest.raises(UserError, match=r"does not fit|need"):
        divide([group], one // 2)


@pytest.mark.parametrize(
    ("preset", "steps", "warmup"),
    [
        ("paper", 20_000, 10_000), ("paper", 25_000, 12_500), ("paper", 50_000, 25_000), ("paper", 300_000, 25_000),
        ("robust", 20_000, 2_000), ("robust", 300_000, 25_000), ("minigrid", 1_000, 500), ("minigrid", 2_000, 1_000),
    ],
)  # fmt: skip
def test_a_default_warm_up_leaves_steps_to_learn_in(preset: str, steps: int, warmup: int) -> None:
    (group,) = plan_study(parse(f"task = 'Pendulum'\npreset = '{preset}'\nsteps = {steps}\n[[group]]\n"), "paper")
    assert group.config.warmup == warmup


@pytest.mark.parametrize(
    ("keys", "start", "end"),
    [
        ("env = { horizon = 200 }", 0.01, 0.005),
        ("env = { horizon = 50 }", 0.01, 0.01),
        ("env = { horizon = 50 }\np_end = '1/H'", 0.01, 0.02),
        ("p_start = 0.002\np_end = 0.3", 0.002, 0.3),
    ],
)
def test_p_does_not_rise_unless_asked_to(keys: str, start: float, end: float) -> None:
    (group,) = plan_study(parse(HEAD + GROUP + keys + "\n"), "paper")
    assert [group.config.p_start, group.config.p_end] == pytest.approx([start, end])


def test_every_study_of_the_package_can_be_planned() -> None:
    names = set(builtin_studies())
    assert names >= {"figure-1", "table-1", "figure-2", "figure-4", "bounded", "p-sensitivity", "wide-beta"}
    for name in names:
        study = find_study(name)
        assert study.title and study.description and study.builtin
        quick, paper = plan_study(study, "quick"), plan_study(study, "paper")
        assert sum(group.run_steps for group in quick) < 0.1 * sum(group.run_steps for group in paper)


def test_a_copy_of_a_study_of_the_package_is_that_study(tmp_path: Path) -> None:
    copy = tmp_path / "figure-1.toml"
    copy.write_text(builtin_studies()["figure-1"])
    assert find_study(str(copy)).builtin
    copy.write_text(builtin_studies()["figure-1"] + "# mine\n")
    assert not find_study(str(copy)).builtin

"""What the pages show runs: the Python of README and "Your own environment" as it stands, commands up to the work."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from hyper_rl.bonuses.registry import BONUSES
from hyper_rl.cli.check_env import CheckEnvOptions
from hyper_rl.cli.claims import ClaimsOptions
from hyper_rl.cli.demo import DemoOptions
from hyper_rl.cli.env_arguments import split_env_arguments
from hyper_rl.cli.evaluate import EvaluateOptions
from hyper_rl.cli.linear import LinearArgs
from hyper_rl.cli.main import COMMANDS, main
from hyper_rl.cli.parsing import read_options
from hyper_rl.cli.render import RenderOptions
from hyper_rl.cli.report import ReportOptions
from hyper_rl.cli.study import StudyOptions
from hyper_rl.cli.tasks import TasksOptions
from hyper_rl.cli.train import check_resume, parse
from hyper_rl.cli.train_options import default_options, resolve
from hyper_rl.errors import UserError
from hyper_rl.learners.registry import LEARNERS
from hyper_rl.studies.plan import plan_study
from hyper_rl.studies.study_file import parse_study
from hyper_rl.training.run_folder import RunFolder

ROOT = Path(__file__).parent.parent
OWN, EXTEND = ROOT / "docs" / "your-own-environment.md", ROOT / "docs" / "extend.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "results").glob("*/README.md")),
]
OPTIONS: dict[str, Any] = {
    "check-env": CheckEnvOptions,
    "claims": ClaimsOptions,
    "demo": DemoOptions,
    "evaluate": EvaluateOptions,
    "linear": LinearArgs,
    "render": RenderOptions,
    "report": ReportOptions,
    "study": StudyOptions,
    "tasks": TasksOptions,
}


def python_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


def shown_commands() -> list[str]:
    lines = [line.split("#")[0].strip() for page in PAGES for line in page.read_text().splitlines()]
    return sorted({line for line in lines if line.startswith("hyper-rl ")})


@pytest.fixture
def two_rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the pages' `two_rooms.py` and `my_parts.py`, to work in."""
    (tmp_path / "two_rooms.py").write_text(python_of(OWN)[0])
    wanted = [block for block in python_of(EXTEND) if re.search(r"^class |\.add\(", block, re.M)]
    (tmp_path / "my_parts.py").write_text("\n".join(wanted))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for registry, own in ((LEARNERS, "linear_q"), (BONUSES, "simhash")):
        monkeypatch.setattr(registry, "_classes", {name: made for name, made in registry.items() if name != own})
    yield tmp_path
    sys.modules.pop("two_rooms", None)
    sys.modules.pop("my_parts", None)
    gymnasium.registry.pop("TwoRooms-v0", None)


def test_the_readmes_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = python_of(ROOT / "README.md")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})
    assert "'success': 1.0" in capsys.readouterr().out
    assert (tmp_path / "agents" / "room" / "policy.safetensors").is_file()


def test_your_own_environment_runs(two_rooms: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment, train, spaces, callbacks = python_of(OWN)
    assert len(environment.splitlines()) < 40
    assert main(["check-env", "TwoRooms-v0", "--env-module", "two_rooms", "--steps", "500"]) == 0
    names: dict[str, Any] = {}
    for block in (train, spaces, callbacks):
        exec(compile(block, OWN.name, "exec"), names)
    said = capsys.readouterr().out
    assert "'success': 1.0" in said and "\ngoal\n" in said and "\ndqn rnd\n" in said
    assert names["agent"].num_timesteps < 12_000, "the callback did not stop it"
    assert (two_rooms / "agents" / "best" / "policy.safetensors").is_file()
    assert len(list((two_rooms / "agents" / "checkpoints").iterdir())) == 1


@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)], ids=lambda page: page.name)
def test_all_python_shown_is_python(page: Path) -> None:
    for block in python_of(page):
        compile(block, page.name, "exec")


@pytest.mark.parametrize("line", shown_commands())
def test_every_command_shown_is_a_valid_one(line: str, two_rooms: Path) -> None:
    name, *words = shlex.split(line.replace("METHOD", "hyper").replace("PRESET", "paper"))[1:]
    assert name in COMMANDS
    if name == "train":
        options = parse(words)
        if options.resume is None:
            resolve(options)
        return
    read_options(OPTIONS[name], split_env_arguments(words)[0], f"hyper-rl {name}")


OWN_STUDY = """
task = "TASK"
env_module = "both"
learner = "linear_q"
bonus = "simhash"
steps = 100
linear_q = { lr = [0.1, 0.2] }
[[group]]
betas = [0.1, 1]
"""


@pytest.mark.parametrize("task", ["Room", "TwoRooms-v0"])
def test_parts_of_ones_own_are_known_to_the_command_and_to_studies(task: str, two_rooms: Path) -> None:
    (two_rooms / "both.py").write_text("import two_rooms, my_parts\n")
    with pytest.raises(UserError, match=r"learner: unknown 'linear_q'.*--env-module"):
        resolve(parse([task, "--learner", "linear_q"]))
    groups = plan_study(
        parse_study(OWN_STUDY.replace("TASK", task).replace("MODULE", "both"), "own", "o.toml"), "paper"
    )
    assert [group.config.learner_options["lr"] for group in groups] == [0.1, 0.2]
    config = resolve(parse([task, "--env-module", "both", "--learner", "linear_q", "--bonus", "simhash"]))
    assert config.learner_options["features"] == 256 and config.bonus_options == {"bits": 14}
    # A new process knows nothing of them until the module is imported again.
    folder = RunFolder.create(two_rooms / "run", config)
    sys.modules.pop("my_parts"), sys.modules.pop("both")
    del LEARNERS._classes["linear_q"], BONUSES._classes["simhash"]
    check_resume(parse(["--resume", str(folder.path), *(["--env-module", "both"] if task == "Room" else [])]), [])
    assert "linear_q" in LEARNERS and "simhash" in BONUSES
    sys.modules.pop("both")


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_options_default_to_the_robust_preset() -> None:
    made = default_options("robust")
    assert made == type(made)()

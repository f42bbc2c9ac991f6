"""What the README shows runs: its Python as it stands, its commands up to the work itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hyper_rl.cli.train import parse
from hyper_rl.cli.train_options import default_options, resolve

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "results").glob("*/README.md"))]


def test_the_readmes_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(found.group(1), "README.md", "exec"), {})
    assert "0.005" in capsys.readouterr().out


def shown_trainings() -> list[str]:
    lines = [line.split("#")[0].strip() for page in PAGES for line in page.read_text().splitlines()]
    return sorted({line for line in lines if line.startswith("hyper-rl train ") and "--resume" not in line})


@pytest.mark.parametrize("line", shown_trainings())
def test_every_training_shown_is_a_valid_one(line: str) -> None:
    words = line.replace("METHOD", "hyper").replace("PRESET", "paper").split()[2:]
    resolve(parse(words))


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_options_default_to_the_robust_preset() -> None:
    made = default_options("robust")
    assert made == type(made)()

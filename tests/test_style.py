"""House rules that a machine can check: short files, no paths of one machine, no pickle, light imports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src"
FILES = sorted(SOURCES.rglob("*.py"))
LONGEST = 350
UNSAFE = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
HOME = re.compile(r"(?<![\w.])/(?:home|root|work|Users|mnt|tmp)/\w")
OPTIONAL = (
    "gymnasium", "gymnasium_robotics", "mujoco", "minigrid", "matplotlib", "PIL", "tensorboardX", "wandb",
    "rich", "tyro", "scipy",
)  # fmt: skip


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCES)))
def test_a_source_file_keeps_the_house_rules(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LONGEST
    assert HOME.search(text) is None, "an absolute path of one machine"
    for node in ast.walk(ast.parse(text)):
        names: set[str] = set()
        if isinstance(node, ast.Import):
            names = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {node.module.split(".")[0]}
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names = {"pickle"}
        assert not names & UNSAFE, f"line {getattr(node, 'lineno', '?')}: a file that can run code when read"


IMPORTS = f"""
import sys
for name in {OPTIONAL}:
    sys.modules[name] = None  # importing it now raises ImportError
import hyper_rl
import hyper_rl.config, hyper_rl.presets, hyper_rl.training.trainer
from hyper_rl.envs.registry import TASKS
import hyper_rl.agent
for entry in TASKS.values():
    if entry.make is not None:
        entry.make()
print(len(TASKS))
"""


def test_the_package_and_its_jax_tasks_need_no_optional_package() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 7


def test_importing_the_package_is_cheap() -> None:
    """`hyper-rl --version` and `import hyper_rl` must not pay for starting JAX."""
    program = "import sys, hyper_rl, hyper_rl.cli.main; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

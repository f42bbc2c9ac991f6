"""How a study leaves its figures behind: a CSV of rows, and a JSON that says which command and versions made it."""

from __future__ import annotations

import csv
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np


def save_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _short(value) for key, value in row.items()} for row in rows)


def save_summary(path: Path, summary: Mapping[str, Any], seconds: float) -> None:
    """`summary` with the command line, versions and wall time in front."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made_by = {"command": command(), "seconds": round(seconds, 1), **versions()}
    path.write_text(json.dumps({"made_by": made_by, **summary}, indent=1, allow_nan=False) + "\n")


def command() -> str:
    """What was typed, without the folders of this machine."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    script = Path(sys.argv[0])
    if spec is not None:
        program = f"python -m {spec.name.removesuffix('.__main__')}"
    else:
        program = f"python {script.name if script.is_absolute() else script.as_posix()}"
    return f"{program} {shlex.join(sys.argv[1:])}".strip()


def versions() -> dict[str, str | int]:
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "numpy": np.__version__,
        "device": jax.devices()[0].platform,
        "cores": os.cpu_count() or 1,
    }


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value

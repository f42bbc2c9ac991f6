"""Where in a TOML file a key stands. `tomllib` says so only for files it cannot read.

The file is taken apart into statements, each of them read by `tomllib` itself, so strings and arrays over several lines
need no grammar of our own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
"""A key of the parsed file: names of tables, numbers in arrays of tables."""

HEADER = re.compile(r"^\s*\[")


def find_lines(text: str) -> dict[Path, int]:
    """The line (from 1) of every table and key of a file that `tomllib` can read."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for line, statement in _statements(text):
        parsed = tomllib.loads(statement)
        if HEADER.match(statement):
            names, is_array = _header_names(parsed)
            table = ()
            for i, name in enumerate(names):
                table = (*table, name)
                if is_array and i == len(names) - 1:
                    counts[table] = counts.get(table, -1) + 1
                if table in counts:
                    table = (*table, counts[table])
            found.setdefault(table, line)
        else:
            for keys in _keys(parsed):
                found.setdefault((*table, *keys), line)
    return found


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """(first line, text) of each header and assignment."""
    begun, collected = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        if not collected and (not line.strip() or line.lstrip().startswith("#")):
            continue
        begun = begun if collected else number
        collected += line + "\n"
        try:
            tomllib.loads(collected)
        except tomllib.TOMLDecodeError:
            continue  # an array or a string that goes on in the next line
        yield begun, collected
        collected = ""


def _header_names(parsed: Mapping[str, Any]) -> tuple[list[str], bool]:
    """The names of `[a.b]` or `[[a.b]]`, and whether it was the latter."""
    names: list[str] = []
    inner: Any = parsed
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(inner.items()))
        names.append(name)
    return names, isinstance(inner, list)


def _keys(parsed: Mapping[str, Any], before: Path = ()) -> Iterator[Path]:
    """Dotted keys and the keys of inline tables, each with the tables that hold them."""
    for name, value in parsed.items():
        yield (*before, name)
        if isinstance(value, dict):
            yield from _keys(value, (*before, name))

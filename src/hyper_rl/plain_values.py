"""Values as JSON files can hold them: numbers, words, lists of them, and dictionaries with words for keys.

People set options with NumPy's numbers and arrays as well. A file holds these as Python's; what it cannot hold at all,
such as a function, must be known before there is any work to lose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class Unwritable(Exception):
    """No file can hold this value."""


def plain(value: Any) -> Any:
    """The value as a file holds it; tuples stay tuples, which JSON writes as lists."""
    if isinstance(value, np.generic) or (hasattr(value, "__array__") and hasattr(value, "tolist")):
        value = np.asarray(value).tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        inside = [plain(one) for one in value]
        return tuple(inside) if isinstance(value, tuple) else inside
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): plain(one) for name, one in value.items()}
    raise Unwritable(type(value).__name__)


def split_plain(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a file can hold of them, and the names of the others."""
    written: dict[str, Any] = {}
    others = []
    for name, value in values.items():
        try:
            written[name] = plain(value)
        except Unwritable:
            others.append(name)
    return written, tuple(others)

"""Errors a person can act on: one line that names the field, the value and what is allowed."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable


class UserError(Exception):
    """Something the caller asked for cannot be done. The command prints it alone, without a traceback.

    Not a `ValueError`: parsers catch those and wrap them in words of their own.
    """


def unknown_name(field: str, value: str, allowed: Iterable[str]) -> UserError:
    """An unknown name, with the nearest known ones first."""
    names = sorted(allowed)
    by_lower = {name.lower(): name for name in names}
    near = [by_lower[n] for n in difflib.get_close_matches(value.lower(), list(by_lower), n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UserError(f"{field}: unknown {value!r}; {hint}known: {', '.join(names)}")


def require(ok: bool, field: str, value: object, allowed: str) -> None:
    """Raise unless `ok`. `allowed` completes the sentence "must be ..."."""
    if not ok:
        raise UserError(f"{field}: got {value!r}, must be {allowed}")


def is_number(value: object) -> bool:
    """A real number in any form. Words and switches are none, though `float` would take some of them."""
    if isinstance(value, (str, bytes, bool)):
        return False
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def require_finite(field: str, value: float, *, low: float = -math.inf, high: float = math.inf) -> None:
    ok = is_number(value) and math.isfinite(value) and low <= value <= high
    bounds = f" in [{low:g}, {high:g}]" if math.isfinite(high) else f" >= {low:g}" if math.isfinite(low) else ""
    require(ok, field, value, f"a finite number{bounds}")


def require_positive(field: str, value: float) -> None:
    require(is_number(value) and math.isfinite(value) and value > 0, field, value, "a finite number > 0")


def require_count(field: str, value: int, *, low: int = 1) -> None:
    require(
        isinstance(value, int) and not isinstance(value, bool) and value >= low,
        field,
        value,
        f"a whole number >= {low}",
    )


def require_probability(field: str, value: float) -> None:
    require(is_number(value) and math.isfinite(value) and 0 < value <= 1, field, value, "a probability in (0, 1]")


def require_widths(field: str, value: object) -> None:
    listed = list(value) if isinstance(value, (tuple, list)) else []
    whole = all(isinstance(width, numbers.Integral) and not isinstance(width, bool) for width in listed)
    require(bool(listed) and whole and min(listed) >= 1, field, value, "positive layer sizes, such as (256, 256)")


def require_choice(field: str, value: str, allowed: Iterable[str]) -> None:
    if value not in set(allowed):
        raise unknown_name(field, value, allowed)


def missing_extra(what: str, extra: str) -> UserError:
    """A feature needs a package that is not installed."""
    return UserError(f"{what} needs an optional package: pip install 'hyper-rl[{extra}]'")

"""`--env.key value`: keyword arguments of an environment on the command line.

They are taken out before the other options are read, because nobody knows their names beforehand.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from hyper_rl.errors import UserError

PREFIX = "--env."
WORDS = {"true": True, "false": False}
"""Not Python's, but what people write; as strings, both would count as true."""


def split_env_arguments(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """The other words, and the keyword arguments: `--env.key value` or `--env.key=value`."""
    rest: list[str] = []
    found: dict[str, Any] = {}
    waiting = iter(words)
    for word in waiting:
        if not word.startswith(PREFIX):
            rest.append(word)
            continue
        name, equals, text = word.removeprefix(PREFIX).partition("=")
        key = name.replace("-", "_")
        if not key.isidentifier():
            raise UserError(f"env: got {word!r}, must be --env.KEY VALUE with the name of a keyword argument")
        if not equals:
            following = next(waiting, None)
            if following is None or following.startswith("--"):
                raise UserError(f"env.{key}: a value is missing; write --env.{name} VALUE or --env.{name}=VALUE")
            text = following
        if key in found:
            raise UserError(f"env.{key}: given twice, {found[key]!r} and {read_value(text)!r}")
        found[key] = read_value(text)
    return rest, found


def write_env_arguments(arguments: Mapping[str, Any]) -> list[str]:
    """The words that `split_env_arguments` reads the same arguments from."""
    words: list[str] = []
    for key, value in arguments.items():
        plain = isinstance(value, str) and read_value(value) == value
        text = value if plain else repr(value)
        words += [f"{PREFIX}{key}={text}"] if text.startswith("--") else [f"{PREFIX}{key}", text]
    return words


def read_value(text: str) -> Any:
    """Python's literals are what they say (2, 1e-3, True, None, (1, 2), 'quoted'); anything else is a string."""
    if text in WORDS:
        return WORDS[text]
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text

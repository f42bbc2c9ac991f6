"""The words of a command as its options; what they cannot be is one line that names option, value and what is allowed.

tyro builds the options and the help. Its own complaints are boxes of a dozen lines about types, so the words are looked
at before it sees them, by the same annotations; and whole numbers may be written 1e6 or 1_000_000.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

from hyper_rl.errors import UserError, require_choice

Options = TypeVar("Options")
HELP = ("-h", "--help")
NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}
KINDS: dict[Any, str] = {**NUMBERS, Path: "a path"}
NOTHING = "None"
"""How the help writes the default of an option that is left to others, and how tyro reads it."""


@dataclass(frozen=True)
class Option:
    """One field of the options, or of a group of them."""

    name: str
    """As errors call it: `eval_every`, `td3.lr`."""
    owner: type
    kind: Any
    """int, float, str, a path, or a `Literal`; of each value where there are several."""
    values: int | None
    """How many it takes: 0 for a switch, None for any number."""
    positional: bool
    required: bool
    optional: bool
    """`None` is a value of it."""

    @property
    def flags(self) -> tuple[str, ...]:
        if self.positional:
            return ()
        plain = self.name.replace("_", "-")
        group, dot, last = plain.rpartition(".")
        return (f"--{plain}", f"--{group}{dot}no-{last}") if self.values == 0 else (f"--{plain}",)

    @property
    def about(self) -> str:
        """What stands under the field, as the help shows it."""
        body = ast.parse(textwrap.dedent(inspect.getsource(self.owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            named = isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == self.name.rpartition(".")[2]
            if named and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                return str(text.value.value).rstrip(".")
        return self.name

    @property
    def allowed(self) -> str:
        if typing.get_origin(self.kind) is Literal:
            return f"one of {', '.join(typing.get_args(self.kind))}"
        return KINDS.get(self.kind, "a word")

    @property
    def explained(self) -> str:
        """What it takes, for somebody who gave too little or too much."""
        count = "one value: " if self.values in (1, None) else f"{self.values} values, each "
        return f"{count}{self.allowed} ({self.about[:1].lower()}{self.about[1:]})"

    def read(self, word: str) -> str:
        """The word as tyro understands it."""
        if self.optional and word == NOTHING:
            return word
        if typing.get_origin(self.kind) is Literal:
            require_choice(self.name, word, typing.get_args(self.kind))
        elif self.kind in NUMBERS:
            try:
                float(word)
                return _whole(word) if self.kind is int else word
            except (ValueError, OverflowError):
                raise UserError(f"{self.name}: got {word!r}, must be {self.allowed}") from None
        return word


def read_options(made: Callable[..., Options], words: Sequence[str], prog: str, default: Any = None) -> Options:
    """The options that the words set, over `default` where it is given; ends the program after `--help`."""
    assert isinstance(made, type)
    checked = list(words) if set(HELP) & set(words) else _check(list(options_of(made)), words, prog)
    if default is None:
        return tyro.cli(made, prog=prog, args=checked)
    return tyro.cli(made, prog=prog, args=checked, default=default)


def options_of(made: type, group: str = "") -> Iterator[Option]:
    hints = typing.get_type_hints(made, include_extras=True)
    for field in dataclasses.fields(made):
        hint = hints[field.name]
        marks: Sequence[Any] = ()
        if typing.get_origin(hint) is typing.Annotated:
            hint, *marks = typing.get_args(hint)
        if tyro.conf.Suppress in marks:
            continue
        if dataclasses.is_dataclass(hint):
            yield from options_of(hint, f"{group}{field.name}.")  # type: ignore[arg-type]
            continue
        kind, values, optional = _kind(hint)
        shown = next((mark.name for mark in marks if getattr(mark, "name", None)), field.name)
        absent = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        required, positional = absent and not group, tyro.conf.Positional in marks
        yield Option(f"{group}{shown}", made, kind, values, positional, required, optional)


def _kind(hint: Any) -> tuple[Any, int | None, bool]:
    """What a value is, how many there are, and whether it may be `None` instead."""
    optional = type(None) in typing.get_args(hint)
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        (hint,) = (one for one in typing.get_args(hint) if one is not type(None))
    if hint is bool:
        return bool, 0, optional
    if typing.get_origin(hint) is tuple:
        inner = typing.get_args(hint)
        return inner[0], None if inner[-1] is Ellipsis else len(inner), optional
    return hint, 1, optional


def _check(options: Sequence[Option], words: Sequence[str], prog: str) -> list[str]:
    """The words, each a value that its option takes."""
    by_flag = {flag: option for option in options for flag in option.flags}
    places = [option for option in options if option.positional]
    checked: list[str] = []
    last: tuple[Option, list[str]] | None = None
    """The option before, and its values, to blame for a word that has no place."""
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            option = _place(places, word, last, prog)
            checked.append(_plain(option, option.read(word)))
            last = None
            continue
        flag, equals, text = word.partition("=")
        found = by_flag.get(flag.replace("_", "-"))
        if flag == "--":  # by custom the end of the options, of which there is no need here
            raise _misplaced(word, prog)
        if found is None:
            near = difflib.get_close_matches(flag, by_flag, n=2)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UserError(f"{flag.removeprefix('--')}: unknown option; {hint}All of them: {prog} --help")
        values = [text] if equals else []
        while left and not left[0].startswith("--") and (found.values is None or len(values) < found.values):
            values.append(left.pop(0))
        if found.values == 0 and equals:
            raise UserError(f"{found.name}: got {text!r}, must stand alone, or as --no-...: it is a switch")
        if found.values is not None and len(values) < found.values:
            raise UserError(f"{found.name}: a value is missing, must be {found.explained}")
        read = [found.read(value) for value in values]
        # Joined to its flag, a first value that begins with a dash is not taken for another flag.
        checked += [f"{flag}={read[0]}", *(_plain(found, value) for value in read[1:])] if read else [flag]
        last = found, values
    for option in places:
        if option.required:
            raise UserError(f"{option.name}: missing; {option.about}. See: {prog} --help")
    return checked


def _place(places: list[Option], word: str, last: tuple[Option, list[str]] | None, prog: str) -> Option:
    """The next option without a flag; there may be none for a word too many."""
    if places:
        return places[0] if places[0].values is None else places.pop(0)
    if last is None:
        raise _misplaced(word, prog)
    option, values = last
    got = " ".join([*values, word])
    if option.values == 0:
        raise UserError(f"{option.name}: got {got!r}, must stand alone, or as --no-...: it is a switch")
    raise UserError(f"{option.name}: got {got!r}, must be {option.explained}")


def _misplaced(word: str, prog: str) -> UserError:
    return UserError(f"{prog.rpartition(' ')[2]}: got {word!r}, must not stand there; see: {prog} --help")


def _plain(option: Option, word: str) -> str:
    """A word that tyro does not take for a flag; a number may be negative."""
    if word.startswith("-") and option.kind not in NUMBERS and not _is_number(word):
        path = f"; a path of that name is ./{word}" if option.kind is Path else ""
        raise UserError(f"{option.name}: got {word!r}, must not begin with a dash{path}")
    return word


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _whole(word: str) -> str:
    """1000, 1_000 and 1e3 are the same number."""
    try:
        return str(int(word))
    except ValueError:
        number = float(word)
        if not number.is_integer():
            raise
        return str(int(number))

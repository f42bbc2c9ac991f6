"""Names for classes, open to classes of others: what a file calls 'td3' must mean the same when it is read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hyper_rl.errors import UserError


class Registry(Mapping[str, type[Any]]):
    """Classes by name, and the name of a class."""

    def __init__(self, kind: str, classes: Mapping[str, type[Any]]) -> None:
        self._kind, self._classes = kind, dict(classes)
        self._unnamed: set[str] = set()
        """Names that nobody gave: those of classes which came without one."""

    def __getitem__(self, name: str) -> type[Any]:
        return self._classes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)

    def add(self, name: str, made: type[Any]) -> None:
        """Give a class of your own a name; the same class may be added again."""
        if self._classes.get(name, made) is not made:
            taken = self._classes[name].__qualname__
            raise UserError(f"{self._kind}: {name!r} is already {taken}; choose another name")
        self._classes[name] = made
        self._unnamed.discard(name)

    def given_name(self, thing: object) -> str | None:
        """The name that a configured object's class was given; None for one that `name_of` had to call something."""
        named = (name for name in self._classes if name not in self._unnamed)
        return next((name for name in named if type(thing) is self._classes[name]), None)

    def name_of(self, thing: object) -> str:
        """The name of a configured object's class; one that has none yet goes by that of its class."""
        for name, made in self._classes.items():
            if type(thing) is made:
                return name
        name = type(thing).__name__
        self.add(name, type(thing))
        self._unnamed.add(name)
        return name

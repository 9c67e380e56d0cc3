"""Settings are checked where they are made, and a wrong one is named in one sentence.

The same check serves Python and files: a dataclass says `SgdFamily: momentum[2] is 1.5; it must be ...`, and whoever
built it from a file says the same of the place in the file, `study.toml: [sgd] momentum[2] is 1.5; it must be ...`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, ClassVar, Protocol, TypeVar

from hotswap.errors import SettingError

__all__ = ["Check", "FieldError", "Rule", "build", "instance_of", "number", "one_of", "text", "unknown", "whole"]


class FieldError(SettingError):
    """One setting is wrong; the message is `owner place problem`, so that a reader of files can change the owner."""

    def __init__(self, owner: str, place: str, problem: str) -> None:
        super().__init__(owner, place, problem)
        self.owner, self.place, self.problem = owner, place, problem

    def __str__(self) -> str:
        return f"{self.owner} {self.place} {self.problem}"


@dataclass(frozen=True)
class Rule:
    """What one value must be: in words, and as a function that raises ValueError on any other value."""

    words: str
    read: Callable[[object], object]


def whole(least: int, most: int | None = None) -> Rule:
    """A whole number; True and 2.0 are none."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        if most is not None and value > most:
            raise ValueError
        return int(value)

    return Rule(f"a whole number of at least {least}" + (f" and at most {most}" if most is not None else ""), read)


def number(words: str, holds: Callable[[float], bool]) -> Rule:
    """A number for which `holds` is true; it becomes a float, so that 1 and 1.0 give the same id."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError  # noqa: TRY004 - a rule has one way to say no
        try:
            as_float = float(value) + 0.0  # -0.0 becomes 0.0
        except OverflowError:
            as_float = math.inf
        if not holds(as_float):
            raise ValueError
        return as_float

    return Rule(words, read)


def one_of(choices: Sequence[str]) -> Rule:
    """One of the given strings."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError
        return value

    return Rule("one of " + ", ".join(choices), read)


def text() -> Rule:
    """A name that can stand in a heading."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise ValueError
        return value

    return Rule("one line of text, not empty", read)


def instance_of(*kinds: type) -> Rule:
    """An object of one of the given classes."""

    def read(value: object) -> object:
        if not isinstance(value, kinds):
            raise ValueError  # noqa: TRY004 - a rule has one way to say no
        return value

    return Rule(f"a {' or '.join(kind.__name__ for kind in kinds)}", read)


class Check:
    """Checks the fields of a frozen dataclass that is being made, and stores each in its one proper form."""

    def __init__(self, target: object) -> None:
        self._target = target
        self.owner = f"{type(target).__name__}:"

    def one(self, field: str, rule: Rule) -> None:
        """The field is one value."""
        self._store(field, self._read(field, getattr(self._target, field), rule))

    def several(self, field: str, rule: Rule, *, distinct: bool = True, empty: bool = False) -> None:
        """The field is a sequence of values; it becomes a tuple."""
        values = getattr(self._target, field)
        if not isinstance(values, (tuple, list)):
            raise self.error(field, f"is {shortened(values)}; it must be a list, each item {rule.words}.")
        if not values and not empty:
            raise self.error(field, f"is empty; it must have at least one item, {rule.words}.")
        items = tuple(self._read(f"{field}[{i}]", value, rule) for i, value in enumerate(values))
        for i, item in enumerate(items):
            if distinct and item in items[:i]:
                raise self.error(f"{field}[{i}]", f"is {shortened(item)} again; give each value once.")
        self._store(field, items)

    def error(self, place: str, problem: str) -> FieldError:
        """What to raise about the object being made."""
        return FieldError(self.owner, place, problem)

    def _read(self, place: str, value: object, rule: Rule) -> object:
        try:
            return rule.read(value)
        except ValueError:
            raise self.error(place, f"is {shortened(value)}; it must be {rule.words}.") from None

    def _store(self, field: str, value: object) -> None:
        object.__setattr__(self._target, field, value)


class Settings(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


S = TypeVar("S", bound=Settings)


def build(kind: type[S], table: object, owner: str) -> S:
    """Make a dataclass from a table that came from outside; what is wrong with it is said of `owner`."""
    if not isinstance(table, Mapping):
        raise SettingError(f"{owner} {shortened(table)} is not a table of settings.")
    known = [field.name for field in fields(kind)]
    for key in table:
        if key not in known:
            raise SettingError(f"{owner} {unknown('key', key, known)}")
    missing = [field.name for field in fields(kind) if _required(field) and field.name not in table]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise FieldError(owner, ", ".join(missing), f"{verb} missing, and there is no default.")
    try:
        return kind(**table)
    except FieldError as wrong:
        raise FieldError(owner, wrong.place, wrong.problem) from None


def unknown(what: str, name: object, known: Sequence[str]) -> str:
    """The sentence about a name that is not among the known ones."""
    nearest = get_close_matches(str(name), known, n=1)
    hint = f" (nearest: {nearest[0]})" if nearest else ""
    return f"has no {what} {name!r}; the valid {what}s are {', '.join(known)}{hint}."


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING

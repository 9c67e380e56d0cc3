"""Settings as frozen dataclasses: each field says what it must be, what it means, and what it is if nobody says.

    @dataclass(frozen=True, kw_only=True)
    class Network(Settings):
        hidden: tuple[int, ...] = several(whole(1), (500, 300), help="sizes of the hidden layers", distinct=False)
        unit: str = one(one_of(("sigmoid", "tanh")), "sigmoid", help="what a hidden unit does with its input")

They are checked when they are made, and a wrong one is named in one sentence. The same check serves Python and files: a
dataclass says `SgdFamily: momentum[2] is 1.5; it must be ...`, and whoever built it from a file says the same of the
place in the file, `study.toml: [sgd] momentum[2] is 1.5; it must be ...`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from reprlib import repr as shortened
from typing import Any, ClassVar, Protocol, TypeVar

from hotswap.errors import SettingError
from hotswap.names import RULE, is_name
from hotswap.registry import Registry

__all__ = [
    "COUNT",
    "FACTOR",
    "NOT_NEGATIVE",
    "POSITIVE",
    "SHARE",
    "Check",
    "FieldError",
    "Rule",
    "Setting",
    "Settings",
    "build",
    "instance_of",
    "number",
    "one",
    "one_of",
    "plain",
    "plain_name",
    "several",
    "unknown",
    "whole",
    "word",
    "yes_or_no",
]


class FieldError(SettingError):
    """One setting is wrong; the message is `owner place problem`, so that a reader of files can change the owner."""

    def __init__(self, owner: str, place: str, problem: str) -> None:
        super().__init__(owner, place, problem)
        self.owner, self.place, self.problem = owner, place, problem

    def __str__(self) -> str:
        return f"{self.owner} {self.place} {self.problem}"


class Rule:
    """What one value must be.

    Attributes:
        words: In words, to follow "it must be"; as a function where they change, such as the names of a registry.
        read: Gives the value in its one proper form, and raises ValueError on anything else.
        write: Gives what JSON stores of it.
    """

    def __init__(
        self,
        words: str | Callable[[], str],
        read: Callable[[object], object],
        write: Callable[[Any], object] = lambda value: value,
    ) -> None:
        self._words, self.read, self.write = words, read, write

    @property
    def words(self) -> str:
        """What it must be."""
        return self._words if isinstance(self._words, str) else self._words()


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


def one_of(choices: Collection[str]) -> Rule:
    """One of the given strings, such as the names of a registry."""

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError
        return value

    yours = ", or one that a file of yours registers (hotswap --load FILE.py)" if isinstance(choices, Registry) else ""
    return Rule(lambda: "one of " + ", ".join(choices) + yours, read)


def plain_name() -> Rule:
    """A name as `hotswap.names` has it."""

    def read(value: object) -> object:
        if not is_name(value):
            raise ValueError
        return value

    return Rule(RULE, read)


def yes_or_no() -> Rule:
    """True or False."""

    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError  # noqa: TRY004 - a rule has one way to say no
        return value

    return Rule("true or false", read)


def word() -> Rule:
    """A name that can be part of the name of a unit, of a run and of a file."""

    def read(value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(r"[a-z][a-z0-9_]{0,63}", value) is None:
            raise ValueError
        return value

    words = "a word of lower-case letters, digits and underscores that begins with a letter, of at most 64 characters"
    return Rule(words, read)


def instance_of(*kinds: type) -> Rule:
    """An object of one of the given classes."""

    def read(value: object) -> object:
        if not isinstance(value, kinds):
            raise ValueError  # noqa: TRY004 - a rule has one way to say no
        return value

    return Rule(f"a {' or '.join(kind.__name__ for kind in kinds)}", read)


POSITIVE = number("a positive, finite number", lambda x: 0 < x < float("inf"))
NOT_NEGATIVE = number("a finite number, 0 or more", lambda x: 0 <= x < float("inf"))
FACTOR = number("a number in (0, 1]", lambda x: 0 < x <= 1)
SHARE = number("a number in [0, 1)", lambda x: 0 <= x < 1)
COUNT = whole(1)


@dataclass(frozen=True)
class Setting:
    """What is known of one field of `Settings` beside its default.

    Attributes:
        rule: What it must be; of a list, what each item must be.
        help: What it means, for the commented example of a study and for documentation.
        several: Whether it is a list.
        distinct: Whether a list may not repeat an item.
        short: How its value is written in the ids of runs, if it varies between them: `lr` as in `sgd-b64-lr0.1-s0`.
        example: What the example of a study shows where there is no default.
        added: Whether it came after the first release. It is then left out of fingerprints while it has its default,
            so that studies from before keep theirs.
    """

    rule: Rule
    help: str
    several: bool = False
    distinct: bool = True
    short: str | None = None
    example: object = None
    added: bool = False


def one(rule: Rule, default: Any = MISSING, *, help: str, added: bool = False, example: object = None) -> Any:  # noqa: A002
    """A field of `Settings` that is one value; without a default it must be given."""
    return field(default=default, metadata={_SETTING: Setting(rule, help, added=added, example=example)})


def several(
    rule: Rule,
    default: Any = MISSING,
    *,
    help: str,  # noqa: A002
    short: str | None = None,
    distinct: bool = True,
    example: object = None,
    added: bool = False,
) -> Any:
    """A field of `Settings` that is a list of values. With `short`, a study has a run for each of them."""
    known = Setting(rule, help, several=True, distinct=distinct, short=short, example=example, added=added)
    return field(default=default, metadata={_SETTING: known})


_SETTING = "hotswap"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of dataclasses whose fields were made by `one` and `several`."""

    def __post_init__(self) -> None:
        check = Check(self)
        for name, setting in self.schema().items():
            if setting.several:
                check.several(name, setting.rule, distinct=setting.distinct)
            else:
                check.one(name, setting.rule)
        self.check(check)

    def check(self, check: Check) -> None:
        """Raise `check.error(...)` where settings are right one by one and wrong together."""

    @classmethod
    def schema(cls) -> dict[str, Setting]:
        """What is known of each field, in order."""
        return {item.name: item.metadata[_SETTING] for item in fields(cls) if _SETTING in item.metadata}

    def stored(self) -> dict[str, Any]:
        """Every setting as JSON has it; `build` is the way back."""
        return {name: plain(setting.rule.write(getattr(self, name))) for name, setting in self.schema().items()}

    def decisive(self) -> dict[str, Any]:
        """What a fingerprint is made of: every setting, but of those that were added later only what is no default."""
        defaults = {item.name: item.default for item in fields(self)}
        stored, schema = self.stored(), self.schema()
        return {
            name: value
            for name, value in stored.items()
            if not schema[name].added or getattr(self, name) != defaults[name]
        }


class Check:
    """Checks the fields of a frozen dataclass that is being made, and stores each in its one proper form."""

    def __init__(self, target: object) -> None:
        self._target = target
        self.owner = f"{type(target).__name__}:"

    def one(self, field: str, rule: Rule) -> None:
        """The field is one value."""
        self._store(field, self.read(field, getattr(self._target, field), rule))

    def several(self, field: str, rule: Rule, *, distinct: bool = True, empty: bool = False) -> None:
        """The field is a sequence of values; it becomes a tuple."""
        values = getattr(self._target, field)
        if not isinstance(values, (tuple, list)):
            raise self.error(field, f"is {shortened(values)}; it must be a list, each item {rule.words}.")
        if not values and not empty:
            raise self.error(field, f"is empty; it must have at least one item, {rule.words}.")
        items = tuple(self.read(f"{field}[{i}]", value, rule) for i, value in enumerate(values))
        for i, item in enumerate(items):
            if distinct and item in items[:i]:
                raise self.error(f"{field}[{i}]", f"is {shortened(item)} again; give each value once.")
        self._store(field, items)

    def error(self, place: str, problem: str) -> FieldError:
        """What to raise about the object being made."""
        return FieldError(self.owner, place, problem)

    def read(self, place: str, value: object, rule: Rule) -> Any:
        """A value in its proper form, or the error that says what it must be."""
        try:
            return rule.read(value)
        except SettingError as wrong:  # of something with settings of its own, which has said what is wrong
            raise self.error(place, f"cannot be used: {wrong}") from None
        except ValueError:
            raise self.error(place, f"is {shortened(value)}; it must be {rule.words}.") from None

    def _store(self, field: str, value: object) -> None:
        object.__setattr__(self._target, field, value)


class Dataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


S = TypeVar("S", bound=Dataclass)


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


def plain(value: Any) -> Any:
    """Tuples as lists, which is how JSON returns them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def unknown(what: str, name: object, known: Sequence[str]) -> str:
    """The sentence about a name that is not among the known ones."""
    nearest = get_close_matches(str(name), known, n=1)
    hint = f" (nearest: {nearest[0]})" if nearest else ""
    return f"has no {what} {name!r}; the valid {what}s are {', '.join(known)}{hint}."


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING

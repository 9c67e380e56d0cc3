"""Settings as frozen dataclasses: each field says what it must be, what it means, and what it is if nobody says.

    @dataclass(frozen=True, kw_only=True)
    class Network(Settings):
        hidden: tuple[int, ...] = several(whole(1), (500, 300), help="sizes of the hidden layers", distinct=False)
        unit: str = one(one_of(("sigmoid", "tanh")), "sigmoid", help="what a hidden unit does with its input")

Pydantic checks the values when the object is made; this file puts its findings into one sentence. The same check serves
Python and files: a dataclass says `SgdFamily: momentum[2] is 1.5; it must be ...`, and a reader of files says the same
of the place in the file, `study.toml: [sgd] momentum[2] is 1.5; it must be ...`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, cached_property
from math import inf
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from hotswap.errors import SettingError
from hotswap.names import RULE, is_name
from hotswap.registry import Registry

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

try:
    import pydantic
    from pydantic import AfterValidator, BeforeValidator, TypeAdapter
    from pydantic_core import ErrorDetails, PydanticCustomError
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"Studies need {missing.name}, which is not installed; install hotswap with its extra, as in "
        "pip install 'hotswap[study]', or from a checkout pip install '.[study]'.",
        name=missing.name,
    ) from None

__all__ = [
    "COUNT",
    "FACTOR",
    "NOT_NEGATIVE",
    "POSITIVE",
    "SHARE",
    "FieldError",
    "Rule",
    "Setting",
    "Settings",
    "build",
    "checked",
    "instance_of",
    "number",
    "one",
    "one_of",
    "optional",
    "part_of",
    "plain_name",
    "several",
    "unknown",
    "whole",
    "word",
    "yes_or_no",
]


T = TypeVar("T")


class FieldError(SettingError):
    """One setting is wrong; the message is `owner place problem`, so that a reader of files can change the owner."""

    def __init__(self, owner: str, place: str, problem: str) -> None:
        super().__init__(owner, place, problem)
        self.owner, self.place, self.problem = owner, place, problem

    def __str__(self) -> str:
        return f"{self.owner} {self.place} {self.problem}"


# Rules for values.


class Rule:
    """A rule that a value must meet.

    Attributes:
        type: The type that pydantic checks, strictly: of numbers, only whole ones become floats where floats are due.
        write: Gives what JSON stores of the value; None if JSON stores the value itself.
        item: The rule of each item of a list; of anything else the rule itself.
    """

    def __init__(
        self,
        type: Any,  # noqa: A002
        words: str | Callable[[], str],
        write: Callable[[Any], object] | None = None,
        item: Rule | None = None,
    ) -> None:
        self.type, self._words, self.write, self.item = type, words, write, item or self

    @property
    def words(self) -> str:
        """The rule in words, to follow "it must be"; computed where it changes, such as the names of a registry."""
        return self._words if isinstance(self._words, str) else self._words()

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Pydantic's check."""
        return TypeAdapter(self.type)


def _that(holds: Callable[[Any], bool]) -> AfterValidator:
    """A validator that lets pass the values for which `holds` is true."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError
        return value

    return AfterValidator(check)


def whole(least: int, most: int | None = None) -> Rule:
    """A whole number; True and 2.0 are none."""
    words = f"a whole number of at least {least}" + (f" and at most {most}" if most is not None else "")
    return Rule(Annotated[int, pydantic.Field(ge=least, le=most)], words)


def number(words: str, holds: Callable[[float], bool]) -> Rule:
    """A number for which `holds` is true; it becomes a float: 1 and 1.0 give the same id, as do -0.0 and 0.0."""
    return Rule(Annotated[float, AfterValidator(lambda value: value + 0.0), _that(holds)], words)


def one_of(choices: Collection[str]) -> Rule:
    """A string from the given choices, such as the names of a registry."""
    yours = ", or one that a file of yours registers (hotswap --load FILE.py)" if isinstance(choices, Registry) else ""
    known = Annotated[str, _that(lambda value: value in choices)]
    return Rule(known, lambda: "one of " + ", ".join(choices) + yours)


def plain_name() -> Rule:
    """A name as `hotswap.names` has it."""
    return Rule(Annotated[str, _that(is_name)], RULE)


def yes_or_no() -> Rule:
    """True or False."""
    return Rule(bool, "true or false")


def word() -> Rule:
    """A name that can be part of the name of a unit, of a run and of a file."""
    words = "a word of lower-case letters, digits and underscores that begins with a letter, of at most 64 characters"
    return Rule(Annotated[str, pydantic.Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")], words)


def instance_of(kind: type, write: Callable[[Any], object]) -> Rule:
    """An object of the given class, which `write` makes a table of."""
    return Rule(Annotated[kind, pydantic.InstanceOf()], f"a {kind.__name__}", write)  # type: ignore[type-arg]  # of its argument


def optional(rule: Rule) -> Rule:
    """A value that meets the rule, or None."""
    return Rule(rule.type | None, rule.words, rule.write)


_NO_SIGN = AfterValidator(abs)  # -0.0 becomes 0.0

POSITIVE = Rule(Annotated[float, pydantic.Field(gt=0, lt=inf)], "a positive, finite number")
NOT_NEGATIVE = Rule(Annotated[float, pydantic.Field(ge=0, lt=inf), _NO_SIGN], "a finite number, 0 or more")
FACTOR = Rule(Annotated[float, pydantic.Field(gt=0, le=1)], "a number in (0, 1]")
SHARE = Rule(Annotated[float, pydantic.Field(ge=0, lt=1), _NO_SIGN], "a number in [0, 1)")
COUNT = whole(1)


def part_of(registry: Registry[type[T]], kind: type[Any]) -> Rule:
    """An object of the kind: given as it is, by its name in the registry, or as a table with its name and settings.

    Files store it as the table, with every setting that is not its default: a setting added later changes nothing.
    """

    def words() -> str:
        names = f"{', '.join(registry)}, or what a file of yours registers: hotswap --load FILE.py"
        return f"the name of a {registry.kind} ({names}), or a table with its name and settings"

    def read(value: object) -> object:
        if isinstance(value, kind):
            if registry.name_of(type(value)) is None or not is_dataclass(value):
                raise SettingError(
                    f"{type(value).__name__} cannot be part of a study: it must be a frozen dataclass that is "
                    f"registered as a {registry.kind} under a name, by which a study's folder can remember it."
                )
            return value
        table = {"name": value} if isinstance(value, str) else value
        if not isinstance(table, Mapping) or table.get("name") not in tuple(registry):
            raise ValueError
        part = f"{registry.kind} {table['name']!r}"
        try:
            return build(registry[table["name"]], {key: table[key] for key in table if key != "name"}, part)  # type: ignore[type-var]  # a dataclass
        except TypeError as error:
            raise SettingError(f"{part} does not take these settings ({error}).") from error

    def write(part: Any) -> dict[str, Any]:
        values = {item.name: getattr(part, item.name) for item in fields(part)}
        differing = {item.name: plain(values[item.name]) for item in fields(part) if values[item.name] != item.default}
        return {"name": registry.name_of(type(part)), **differing}

    return Rule(Annotated[Any, BeforeValidator(read)], words, write)


# Fields of settings.


@dataclass(frozen=True)
class Setting:
    """The description of one field of `Settings`.

    Attributes:
        rule: The rule that its value must meet.
        default: Its value if nobody says another; `MISSING` if it must be given.
        help: Its meaning, for the commented example of a study and for documentation.
        short: How its value is written in the ids of runs, if it varies between them: `lr` as in `sgd-b64-lr0.1-s0`.
        example: Its value in the example of a study, where that is not the default.
        added: True if it came after the first release. It is then left out of fingerprints while it has its default,
            so that studies from before keep theirs.
    """

    rule: Rule
    default: Any
    help: str
    short: str | None = None
    example: object = None
    added: bool = False


def one(rule: Rule, default: Any = MISSING, *, help: str, added: bool = False, example: object = None) -> Any:  # noqa: A002
    """A field of `Settings` that is one value; without a default it must be given."""
    return field(default=default, metadata={_SETTING: Setting(rule, default, help, None, example, added)})


def several(
    rule: Rule,
    default: Any = MISSING,
    *,
    help: str,  # noqa: A002
    short: str | None = None,
    distinct: bool = True,
    empty: bool = False,
    example: object = None,
    added: bool = False,
) -> Any:
    """A field of `Settings` that is a list, which becomes a tuple. With `short`, a study has a run for each item.

    It may repeat an item where it need not be `distinct`, and may have none where it may be `empty`.
    """
    items: Any = Annotated[tuple[rule.type, ...], BeforeValidator(_as_tuple)]  # type: ignore[name-defined]
    items = items if empty else Annotated[items, AfterValidator(_some)]
    items = Annotated[items, AfterValidator(_once_each)] if distinct else items
    write = rule.write
    listed = Rule(items, rule.words, list if write is None else lambda values: [*map(write, values)], item=rule)
    return field(default=default, metadata={_SETTING: Setting(listed, default, help, short, example, added)})


_SETTING = "hotswap"


MOST = 100_000
"""The most items of a list. It is checked before any item is."""

MOST_NAMED = 5
"""The most places that a sentence names beside the first mistake."""


def _as_tuple(value: object) -> object:
    if isinstance(value, (list, tuple)) and len(value) > MOST:
        raise PydanticCustomError(
            "too_many", "has {count} items; it may have at most {most}.", {"count": len(value), "most": MOST}
        )
    return tuple(value) if isinstance(value, list) else value


def _some(items: tuple[Any, ...]) -> tuple[Any, ...]:
    if not items:
        raise PydanticCustomError("empty", "is empty")
    return items


def _once_each(items: tuple[Any, ...]) -> tuple[Any, ...]:
    seen = set()
    for i, item in enumerate(items):
        if item in seen:
            raise PydanticCustomError(
                "repeated", "is {again} again; give each value once.", {"again": shortened(item), "item": i}
            )
        seen.add(item)
    return items


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of dataclasses whose fields were made by `one` and `several`."""

    def __post_init__(self) -> None:
        self.take({name: setting.rule for name, setting in self.schema().items()})
        self.check()

    def check(self) -> None:
        """Raise `self.error(...)` where settings are right one by one and wrong together."""

    def error(self, place: str, problem: str) -> FieldError:
        """An error about the object being made, for the caller to raise."""
        return FieldError(f"{type(self).__name__}:", place, problem)

    def take(self, rules: Mapping[str, Rule]) -> None:
        """Check the fields of these names, and store each in its one proper form."""
        values = {name: getattr(self, name) for name in rules}
        for name, value in checked(values, rules, f"{type(self).__name__}:").items():
            object.__setattr__(self, name, value)

    @classmethod
    @cache
    def schema(cls) -> dict[str, Setting]:
        """The description of each field, in order."""
        return {item.name: item.metadata[_SETTING] for item in fields(cls) if _SETTING in item.metadata}

    def to_dict(self) -> dict[str, Any]:
        """Every setting as JSON has it; `build` is the way back."""
        return {
            name: getattr(self, name) if (write := setting.rule.write) is None else write(getattr(self, name))
            for name, setting in self.schema().items()
        }

    def constants(self) -> dict[str, Any]:
        """The settings that a fingerprint is made of.

        A setting that was added later is among them only if its value is not the default.
        """
        schema, stored = self.schema(), Settings.to_dict(self)  # without a name, which a subclass may add
        for name, setting in schema.items():
            if setting.added and getattr(self, name) == setting.default:
                del stored[name]
        return stored


def checked(values: Mapping[str, object], rules: Mapping[str, Rule], owner: str) -> dict[str, Any]:
    """Values in their proper forms.

    Raises:
        FieldError: Some are wrong. The sentence says what is wrong with the first, and names the others.
    """
    proper: dict[str, Any] = {}
    wrong: list[tuple[str, str]] = []
    for name, value in values.items():
        try:
            proper[name] = rules[name].adapter.validate_python(value, strict=True)
        except pydantic.ValidationError as error:
            wrong += [_told(name, found, rules[name].words) for found in error.errors(include_url=False)]
    if wrong:
        (place, problem), *others = wrong
        names = ", ".join(other for other, _ in others[:MOST_NAMED])
        more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
        raise FieldError(owner, place, f"{problem} Also wrong: {names}{more}." if others else problem)
    return proper


def _told(field: str, found: ErrorDetails, words: str) -> tuple[str, str]:
    """The place of what pydantic has found, and what is wrong there."""
    value, context = found["input"], found.get("ctx", {})
    items = [*found["loc"], *([context["item"]] if "item" in context else [])]
    place = field + "".join(f"[{i}]" for i in items if isinstance(i, int))
    if found["type"] in ("repeated", "too_many"):
        return place, found["msg"]
    if found["type"] == "tuple_type":
        return place, f"is {shortened(value)}; it must be a list, each item {words}."
    if found["type"] == "empty":
        return place, f"is empty; it must have at least one item, {words}."
    if isinstance(context.get("error"), SettingError):  # of something with settings of its own, which has said it
        return place, f"cannot be used: {context['error']}"
    return place, f"is {shortened(value)}; it must be {words}."


# Settings from tables.


S = TypeVar("S", bound="DataclassInstance")


def build(kind: type[S], table: object, owner: str) -> S:
    """Make a dataclass from a table that came from outside; what is wrong with it is said of `owner`."""
    if not isinstance(table, Mapping):
        raise SettingError(f"{owner} {shortened(table)} is not a table of settings.")
    known = {field.name: field for field in fields(kind)}
    for key in table:
        if key not in known:
            raise SettingError(f"{owner} {unknown('key', key, tuple(known))}")
    missing = [
        name
        for name, field in known.items()
        if name not in table and field.default is MISSING and field.default_factory is MISSING
    ]
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
    nearest = get_close_matches(str(name)[:100], known, n=1)
    hint = f" (nearest: {nearest[0]})" if nearest else ""
    shown = repr(name) if len(str(name)) <= 100 else shortened(name)
    return f"has no {what} {shown}; the valid {what}s are {', '.join(known)}{hint}."

"""Settings that are objects with settings of their own: a bandit, a search, a reward.

In Python they are the objects. In a file they are a name, `bandit = "discounted_ucb"`, or a table of the name and what
differs from its defaults, `bandit = { name = "discounted_ucb", discount = 0.9 }`; and that is how they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from hotswap.errors import SettingError
from hotswap.registry import Registry
from hotswap.studies.specification.settings import Rule, build

__all__ = ["part_of"]

Part = TypeVar("Part")


def part_of(registry: Registry[type[Part]], kind: type[Any]) -> Rule:
    """An object of the kind: given as it is, by its name in the registry, or as a table with its name and settings."""

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
        settings = {name: setting for name, setting in table.items() if name != "name"}
        part = f"{registry.kind} {table['name']!r}"
        try:
            return build(registry[table["name"]], settings, part)  # type: ignore[type-var]  # a dataclass
        except TypeError as error:
            raise SettingError(f"{part} does not take these settings ({error}).") from error

    return Rule(words, read, lambda part: _as_table(part, registry))


def _as_table(part: Any, registry: Registry[type[Part]]) -> dict[str, Any]:
    """The name and every setting that is not its default, so that a setting that is added later changes nothing."""
    differing = {item.name: value for item in fields(part) if (value := getattr(part, item.name)) != item.default}
    return {"name": registry.name_of(type(part)), **differing}

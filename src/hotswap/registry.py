"""Names for what a study's file, or a command, may choose from: data sets, networks, algorithms and their parts.

A new one is one file: define it, register it under a name, and every place that chooses by name knows it.

    @BANDITS.register("greedy")
    class Greedy(Bandit): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Generic, TypeVar

from hotswap.errors import SettingError
from hotswap.names import is_name

__all__ = ["LOAD_HINT", "Registry", "check_class"]

LOAD_HINT = "If it is one of your own, load the file that registers it: hotswap --load FILE.py, then the command."
"""The end of a sentence about an unknown name: the likeliest reason is that `--load` was left out."""

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to things of one kind, which grows by `register`.

    kind: what these things are, in the singular, for sentences: "data set".
    attribute: the attribute by which each thing knows its own name, if it does.
    check: raises a SettingError where something cannot be one of them.
    """

    def __init__(
        self, kind: str, attribute: str | None = None, check: Callable[[object], None] = lambda _: None
    ) -> None:
        self.kind, self.attribute, self._check = kind, attribute, check
        self._known: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Register what follows under a name, as a decorator or as `register(name)(thing)`.

        Raises:
            SettingError: The name is taken, or no plain word: it becomes part of file names and of a run's id. Or the
                thing is not of this kind, or lacks something.
        """
        plain = is_name(name) and name.replace("_", "").isalnum() and name == name.lower()
        if not plain:
            raise SettingError(
                f"{self._a_kind.capitalize()} cannot be called {name!r}; use lower-case letters, digits and "
                "underscores, at most 100 of them."
            )

        def keep(thing: T) -> T:
            self._check(thing)
            if (other := self.name_of(thing)) not in (None, name) and self.attribute is not None:
                raise SettingError(
                    f"{getattr(thing, '__name__', thing)} is registered as {other!r} already; make a subclass of it "
                    "for another name."
                )
            known = self._known.setdefault(name, thing)
            if known is not thing and not _defined_again(known, thing):
                raise SettingError(f"There is {self._a_kind} called {name!r} already; choose another name.")
            self._known[name] = thing
            if self.attribute is not None:
                setattr(thing, self.attribute, name)
            return thing

        return keep

    def find(self, name: object, where: str) -> T:
        """The thing of that name, or a SettingError that begins with `where`, lists the names and mentions `--load`."""
        if isinstance(name, str) and name in self._known:
            return self._known[name]
        nearest = get_close_matches(str(name), self._known, n=1) or [one for one in self._known if str(name) in one]
        hint = f" (nearest: {nearest[0]})" if nearest else ""
        raise SettingError(f"{where}: there is no {self.kind} {name!r}; there are {', '.join(self)}{hint}. {LOAD_HINT}")

    def name_of(self, thing: T) -> str | None:
        """Under which name something is registered, if it is."""
        return next((name for name, known in self._known.items() if known is thing), None)

    @property
    def _a_kind(self) -> str:
        return f"{'an' if self.kind[0] in 'aeiou' else 'a'} {self.kind}"

    def __getitem__(self, name: str) -> T:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def check_class(thing: object, base: type, needed: Sequence[str]) -> None:
    """Raise a SettingError unless something is a class that derives from `base`, with all that it needs."""
    name = getattr(thing, "__name__", repr(thing))
    if not (isinstance(thing, type) and issubclass(thing, base)):
        raise SettingError(f"{name} must be a class that derives from {base.__name__}.")
    if missing := [f"{method}()" for method in sorted(getattr(thing, "__abstractmethods__", ()))]:
        raise SettingError(f"{name} must define {', '.join(missing)}; see {base.__name__}.")
    if missing := [attribute for attribute in needed if not hasattr(thing, attribute)]:
        raise SettingError(f"{name} must have the attribute {', '.join(missing)}; see {base.__name__}.")


def _defined_again(one: object, other: object) -> bool:
    """Whether two things have the same module and name: a module was loaded again, or a notebook's cell run twice."""
    return all(getattr(one, name, None) == getattr(other, name, other) for name in ("__module__", "__qualname__"))

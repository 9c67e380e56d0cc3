"""How the algorithms of a study are called and drawn, in one place for tables, figures and page.

What an algorithm's own class says of it (`Family.label`, `Family.look`) holds. A study may have further families of one
algorithm under names of their own, and a table may hold runs of an algorithm that is not registered here: these get
their name as a label, and a look that no other algorithm of the study has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hotswap.studies.algorithms import ALGORITHMS, Family, Look

if TYPE_CHECKING:
    from hotswap.studies.study import StudySpec

__all__ = ["Appearance", "Looks", "families_of"]

PALETTE = (
    ("#009E73", "#4cc9a0"),
    ("#CC79A7", "#e08bbd"),
    ("#E69F00", "#f2c14e"),
    ("#332288", "#9d8cf0"),
    ("#882255", "#d4618f"),
    ("#56B4E9", "#b5e2ff"),
    ("#999933", "#c9c95a"),
    ("#222222", "#f2f2f2"),
    ("#7A4A1E", "#b98a5c"),
)
"""Colours on white and on dark for what has none of its own: of Okabe and Ito, and of Paul Tol, told apart also by
colour-blind readers."""

MARKERS: tuple[Literal["square", "diamond", "triangle", "circle"], ...] = ("square", "diamond", "triangle", "circle")
DASHES: tuple[Literal["solid", "dashed", "dotted"], ...] = ("solid", "dashed", "dotted")

MANY = 40
"""So many settings, or more, are drawn as small marks."""


@dataclass(frozen=True)
class Appearance:
    """The names and the look that a reader sees of one algorithm.

    Attributes:
        name: The name of its runs in the tables of the study.
        label: The name that a reader sees.
        look: How it is drawn.
        kind: The class of its family; None if the algorithm is not registered.
        chooses: Whether it chooses its learning rate among arms, at each step.
    """

    name: str
    label: str
    look: Look
    kind: type[Family] | None = None
    chooses: bool = False

    @property
    def many(self) -> bool:
        """Whether the algorithm has many marks, which are small and get no names and no thick bars."""
        return self.look.size <= 5

    def describe(self, settings: Mapping[str, float]) -> str:
        """A run's settings in words; NaN stands for a setting that its algorithm does not have."""
        known = {name: value for name, value in settings.items() if not math.isnan(value)}
        if self.kind is None or not known:
            return Family.describe(known)
        varied = self.kind.varied()
        own = {name: known[name] for name in varied if name in known}
        return self.kind.describe(own) if len(own) == len(varied) else Family.describe(known)


class Looks(Mapping[str, Appearance]):
    """The appearance of each algorithm of a study, in the order of drawing: what comes later lies on top.

    A name that is not among them can be asked for as well: `of`, `label_of`.

    Args:
        names: The algorithms to show, as the tables of the study name them; every registered one if not given.
        families: The families of the study, as far as they are known.
        choosing: Algorithms that choose among arms, beside those whose class says so.
        settings: The number of settings by algorithm. It decides how large the marks are of an algorithm that is not
            registered.
    """

    def __init__(
        self,
        names: Iterable[str] | None = None,
        families: Sequence[Family] = (),
        *,
        choosing: Iterable[str] = (),
        settings: Mapping[str, int] | None = None,
    ) -> None:
        kinds: dict[str, type[Family]] = {family.name: type(family) for family in families}
        kinds |= {name: kind for name, kind in ALGORITHMS.items() if name not in kinds}
        asked, choosing, counts = dict.fromkeys(kinds if names is None else names), set(choosing), settings or {}
        ordered = [name for name in kinds if name in asked] + sorted(name for name in asked if name not in kinds)
        looks: dict[str, Look] = {}
        for name in sorted(ordered, key=lambda name: _claim(name, kinds.get(name))):
            kind = kinds.get(name)
            own = Look("", size=3.5 if counts.get(name, 0) >= MANY else 7.5) if kind is None else kind.look
            free = kind is not None and own.colour.lower() not in {look.colour.lower() for look in looks.values()}
            looks[name] = own if free else _further(list(looks.values()), own)
        self._shown: dict[str, Appearance] = {}
        for name in sorted(ordered, key=lambda name: looks[name].layer):
            kind = kinds.get(name)
            chooses = name in choosing or (kind is not None and kind.arms is not Family.arms)
            called = kind.label if kind is not None and kind.algorithm == name else name
            self._shown[name] = Appearance(name, called, looks[name], kind, chooses)

    def of(self, name: str) -> Appearance:
        """The appearance of an algorithm, whether the study has it or not."""
        return self._shown[name] if name in self._shown else Looks([name])[name]

    def label_of(self, name: str) -> str:
        """The name of an algorithm that a reader sees."""
        return self.of(name).label

    def from_top(self) -> list[Appearance]:
        """All of them, what lies on top first: the order in which they are named."""
        return list(self.values())[::-1]

    def top(self) -> tuple[str, ...]:
        """The algorithms with large marks in the topmost layer: there is room for batch sizes beside these marks."""
        large = [name for name in self if not self[name].many]
        highest = max((self[name].look.layer for name in large), default=0)
        return tuple(name for name in large if self[name].look.layer == highest)

    def __getitem__(self, name: str) -> Appearance:
        return self._shown[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __len__(self) -> int:
        return len(self._shown)


def families_of(specs: Iterable[StudySpec]) -> list[Family]:
    """Every family of a study, those that were set aside too; each name once."""
    found = [family for spec in specs for family in (*spec.families, *spec.set_aside)]
    return list({family.name: family for family in found}.values())


def _claim(name: str, kind: type[Family] | None) -> int:
    """The rank in choosing a colour: families with their algorithm's name, then other families, then unknown names."""
    return 2 if kind is None else int(kind.algorithm != name)


def _further(given: Sequence[Look], look: Look) -> Look:
    """The same look in the colour, with the mark and the line that are rarest so far, first of all in that colour."""
    colours = [other.colour.lower() for other in given]
    colour, dark = min(PALETTE, key=lambda pair: colours.count(pair[0].lower()))
    alike = [other for other in given if other.colour.lower() == colour.lower()]
    marker = min(MARKERS, key=lambda name: tuple(sum(o.marker == name for o in some) for some in (alike, given)))
    dashes = min(DASHES, key=lambda name: tuple(sum(o.dashes == name for o in some) for some in (alike, given)))
    filled = 2 * sum(other.filled for other in given) <= len(given)
    return replace(look, colour=colour, dark=dark, marker=marker, dashes=dashes, filled=filled)

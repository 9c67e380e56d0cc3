"""The interface of algorithms that a study trains: one class, in one file, has all that the study needs.

    its name            in files, on the command line and in the ids of runs
    its settings        with defaults, checks and a word on each; lists among them are its grid
    its update          how it trains R runs at a time, as one tensor program
    its columns         what it measures beside the loss and the error of all algorithms
    its label and look  in tables, figures and on the page

A new algorithm is a subclass of `Family` in a file of its own, registered under its name in `ALGORITHMS`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from hotswap.errors import SettingError
from hotswap.registry import LOAD_HINT, Registry
from hotswap.studies.settings import Settings, build, word

if TYPE_CHECKING:
    from torch import Tensor

    from hotswap.ensemble import Model, Update
    from hotswap.studies.study import RunSpec


__all__ = ["ALGORITHMS", "Family", "Look", "family_from_dict", "refuse_races"]

Marker = Literal["circle", "triangle", "square", "diamond"]
Dashes = Literal["solid", "dashed", "dotted"]
MARKERS, DASHES = get_args(Marker), get_args(Dashes)
NAME = word()


@dataclass(frozen=True)
class Look:
    """The look of an algorithm in figures: colours that colour-blind readers tell apart, marks that survive grey print.

    Attributes:
        colour: On white, as `#rrggbb`.
        dark: On the page's dark background; the same if not given.
        marker: The shape of its marks.
        size: The size of its marks, in points: large for few settings, small for hundreds.
        filled: True if its marks are filled.
        dashes: How its lines are drawn.
        layer: The layer of its lines and marks; a larger one is drawn over the others.
    """

    colour: str
    dark: str = ""
    marker: Marker = "circle"
    size: float = 7.5
    filled: bool = True
    dashes: Dashes = "solid"
    layer: int = 1

    def __post_init__(self) -> None:
        for name, value, choices in (("marker", self.marker, MARKERS), ("dashes", self.dashes, DASHES)):
            if value not in choices:
                raise SettingError(f"Look({name}={value!r}): {name} must be one of {', '.join(choices)}.")


@dataclass(frozen=True, kw_only=True)
class Family(Settings, ABC):
    """An algorithm with everything about it that a study fixes or varies. One class for each algorithm.

    Attributes:
        name: What its runs are called; the algorithm's name if not given. A study may have several families of one
            algorithm under different names.
    """

    name: str = ""

    algorithm: ClassVar[str]
    """The name under which the class is registered; `ALGORITHMS.register` sets it."""
    label: ClassVar[str]
    """The name that people use, in figures and tables."""
    look: ClassVar[Look]
    """Colours and marks in figures."""
    measures: ClassVar[tuple[str, ...]] = ()
    """The columns that it fills beside those of all algorithms, each the mean over an epoch of what `Update.tally` has
    under that name; `mean_lr` and `trials` are such columns."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.algorithm)
        self.take({"name": NAME})
        if self.name != self.algorithm and self.name in ALGORITHMS:
            raise self.error("name", f"is {self.name!r}, which is another algorithm; choose another name.")
        super().__post_init__()
        self._check_what_varies()

    def _check_what_varies(self) -> None:
        """Tables and ids of runs hold numbers."""
        for name in self.varied():
            for i, value in enumerate(getattr(self, name)):
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise self.error(
                        f"{name}[{i}]",
                        f"is {value!r}, but only numbers can vary between the runs of a family; make it a setting with "
                        "one value, and give the study a family under a name of its own for each.",
                    )

    @classmethod
    @cache
    def varied(cls) -> dict[str, str]:
        """The settings that vary between runs, and how the ids of runs abbreviate them."""
        return {name: setting.short for name, setting in cls.schema().items() if setting.short is not None}

    def grid(self) -> list[dict[str, Any]]:
        """The settings of each run of one batch size and seed: every combination of the settings that are lists."""
        names = self.varied()
        lists = [getattr(self, name) for name in names]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*lists)]

    def constants(self) -> dict[str, Any]:
        """See `Settings.constants`: the settings that all runs of the family share."""
        shared = super().constants()
        for name in self.varied():
            shared.pop(name, None)
        return shared if self.name == self.algorithm else {"algorithm": self.algorithm, **shared}

    def order(self, runs: Sequence[RunSpec]) -> list[int]:
        """The order of the runs in the rows of θ; an update may need equal runs to stand together."""
        return list(range(len(runs)))

    def check_trained(self) -> None:
        """Raise a SettingError where the family is of results from before, and is not trained any more."""

    @abstractmethod
    def update(self, model: Model, theta: Tensor, runs: Sequence[RunSpec]) -> Update:
        """The update that trains the runs, whose parameters are the rows of `theta` `(R, P)`."""

    def together(self) -> tuple[object, ...] | None:
        """Families for which this is equal are trained as one, by `update_together`; None: the family is alone."""
        return None

    @classmethod
    def update_together(
        cls, model: Model, theta: Tensor, families: Sequence[tuple[Family, Sequence[RunSpec]]]
    ) -> Update:
        """The update that trains the runs of several families; the rows of `theta` hold them family by family."""
        raise SettingError(f"{cls.__name__}.together() says that families are trained as one, but not how.")

    def arms(self) -> tuple[float, ...]:
        """The learning rates it chooses among, large to small; none if it does not."""
        return ()

    @classmethod
    def describe(cls, settings: Mapping[str, float]) -> str:
        """A run's settings in words, to follow its name and batch size: "rate 0.1, momentum 0.9"."""
        return ", ".join(f"{name} {value:g}" for name, value in settings.items())

    def to_dict(self) -> dict[str, Any]:
        """See `Settings.to_dict`; `family_from_dict` is the way back."""
        named = {} if self.name == self.algorithm else {"name": self.name}
        return {"algorithm": self.algorithm, **named, **super().to_dict()}


class Algorithms(Registry[type[Family]]):
    """The algorithms that a study can train, by name."""

    def register(self, name: str) -> Callable[[type[Family]], type[Family]]:
        """See `Registry.register`; the class must say what it is called and how it is drawn."""
        keep = super().register(name)

        def checked(kind: type[Family]) -> type[Family]:
            missing = [attribute for attribute in ("label", "look") if not hasattr(kind, attribute)]
            if missing:
                raise SettingError(
                    f"The algorithm {name!r} has no {' and no '.join(missing)}; {kind.__name__} must say what it is "
                    'called and how it is drawn, such as label = "Lion" and look = Look("#E69F00").'
                )
            return keep(kind)

        return checked


ALGORITHMS = Algorithms("algorithm", attribute="algorithm")
"""Every algorithm that a study can train."""


def refuse_races(algorithm: object, where: str) -> None:
    """Raise where the algorithm is `race`, which studies do not train any more, unless a user has registered one."""
    if algorithm == "race" and algorithm not in ALGORITHMS:
        raise SettingError(
            f"{where}: studies no longer train races; `python -m benchmarks.paper_races` trains races on the paper's "
            "problem."
        )


def family_from_dict(stored: object, owner: str) -> Family:
    """The family that `Family.to_dict` wrote; `owner` is whose table it is, for a sentence about what is wrong."""
    table = dict(stored) if isinstance(stored, Mapping) else {}
    algorithm = table.pop("algorithm", None)
    refuse_races(algorithm, f"{owner} algorithm")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        hint = f" {LOAD_HINT}" if isinstance(algorithm, str) else ""
        raise SettingError(f"{owner} algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}.{hint}")
    return build(ALGORITHMS[algorithm], table, owner)

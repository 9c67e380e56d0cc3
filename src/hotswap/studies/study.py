"""A study, its runs, and the units that train them: frozen, hashable, checked when made, with ids that never change.

Runs of a study that see the same minibatches and take the same kind of step share an ensemble: a `Unit`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic

from hotswap.data import DATASETS
from hotswap.errors import HotSwapError, SettingError, StudyError
from hotswap.names import check_name
from hotswap.studies.algorithms import ALGORITHMS, Family, family_from_dict
from hotswap.studies.networks import Network, NetworkSpec, network_from_dict
from hotswap.studies.settings import (
    COUNT,
    FieldError,
    Rule,
    Settings,
    build,
    checked,
    instance_of,
    one,
    one_of,
    optional,
    plain_name,
    several,
    whole,
    word,
)

__all__ = ["FINGERPRINT_VERSION", "RunSpec", "StudySpec", "Unit", "check_stored_names", "plan", "stored_study"]

FINGERPRINT_VERSION = 1
"""The rule by which fingerprints are computed; files that do not name one were written by number 1. A setting that is
added with a default does not change the rule."""

T = TypeVar("T")

LARGEST = 2**63 - 1
"""The largest number that generators and columns of tables can hold."""

SEED = whole(0, LARGEST)
FINITE = Rule(int | Annotated[float, pydantic.Field(allow_inf_nan=False)], "a finite number")  # a whole one stays one
NETWORK = instance_of(Network, write=lambda network: network.to_dict())
FAMILY = instance_of(Family, write=lambda family: family.to_dict())
RUN = {"algorithm": word(), "batch_size": COUNT, "seed": SEED}


@dataclass(frozen=True, init=False)
class RunSpec:
    """One training run: `RunSpec(algorithm="sgd", batch_size=64, seed=0, lr=0.1, lr_decay=0.99, momentum=0.9)`.

    Attributes:
        algorithm: The name of its family in the study, which is that of the algorithm unless the study says otherwise.
        batch_size: Samples per minibatch.
        seed: The seed of its weight initialisation, and of whatever else is random in it.
        varied: The settings in which it differs from other runs of its family, as pairs of name and value. They are
            attributes, too: `run.lr`.
    """

    algorithm: str
    batch_size: int
    seed: int
    varied: tuple[tuple[str, float], ...] = ()

    def __init__(
        self,
        *,
        algorithm: str,
        batch_size: int,
        seed: int,
        varied: Iterable[tuple[str, float]] = (),
        **settings: float | None,
    ) -> None:
        values = checked({"algorithm": algorithm, "batch_size": batch_size, "seed": seed}, RUN, "RunSpec:")
        given = {**dict(varied), **settings}
        for name, value in {**values, "varied": tuple(_settings(algorithm, given).items())}.items():
            object.__setattr__(self, name, value)

    @property
    def settings(self) -> dict[str, float]:
        """The settings in which it differs from other runs of its family, by name."""
        return dict(self.varied)

    def __getattr__(self, name: str) -> float | None:
        """The value of a setting; None for a setting that only other algorithms have."""
        settings = dict(self.__dict__.get("varied", ()))
        if name in settings or any(name in kind.varied() for kind in ALGORITHMS.values()):
            return settings.get(name)
        raise AttributeError(f"A run has no attribute and no setting {name!r}.")

    @property
    def id(self) -> str:
        """Its name within the study, such as `sgd-b64-lr0.1-decay0.99-mom0.9-s0` or `ducb-b64-s0`."""
        kind = ALGORITHMS.get(self.algorithm)
        short = {} if kind is None else kind.varied()
        # repr gives every digit: no two runs share an id
        parts = [short.get(name, name) + repr(value).removesuffix(".0") for name, value in self.varied]
        return "-".join((self.algorithm, f"b{self.batch_size}", *parts, f"s{self.seed}"))


def _settings(algorithm: str, given: Mapping[str, float | None]) -> dict[str, float]:
    """The settings of a run in the order of its algorithm's, each in its proper form."""
    kind = ALGORITHMS.get(algorithm)
    if kind is None:  # a family with a name of its own, which has given each setting its proper form
        return checked(given, dict.fromkeys(given, FINITE), "RunSpec:")
    schema, expected = kind.schema(), kind.varied()
    for name, value in given.items():
        if name not in expected and value is not None:
            raise FieldError("RunSpec:", name, f"is {value!r}; it must be None for {algorithm}.")
    rules = {name: schema[name].rule.item for name in expected}
    return checked({name: given.get(name) for name in expected}, rules, "RunSpec:")


@dataclass(frozen=True, kw_only=True)
class StudySpec(Settings):
    """The runs of a study, and everything that decides the result of each.

    Attributes:
        name: The name of the study.
        dataset: The name of the data set, from `hotswap.data.DATASETS`.
        train_images: The first so many training images are used; None for all of them.
        network: The network that is trained; its class is one of `hotswap.studies.NETWORKS`.
        families: The algorithms, each with its settings; several of one algorithm have different names.
        batch_sizes: Every algorithm runs with each of them.
        seeds: Weight initialisations; every setting runs from each of them.
        epochs: How long each run trains.
        data_seed: Decides the order of the data, which is the same for all runs.
        set_aside: Families of the whole study of which this is a part: not run here, but part of the fingerprint.
    """

    name: str = one(plain_name(), help="what it is called", example="digits")
    dataset: str = one(one_of(DATASETS), "mnist", help="{datasets}", example="digits")
    train_images: int | None = one(
        optional(COUNT), 50_000, help="the first so many training images; leave it out for all of them", example=1400
    )
    network: Network = one(NETWORK, NetworkSpec(), help="what is trained")
    families: tuple[Family, ...] = several(FAMILY, help="the algorithms", distinct=False)
    batch_sizes: tuple[int, ...] = several(
        COUNT,
        help="minibatches are always full: what is left over at an epoch's end waits for the next shuffle",
        example=(32, 64),
    )
    seeds: tuple[int, ...] = several(SEED, help="one weight initialisation each", example=(0, 1, 2))
    epochs: int = one(COUNT, help="how long each run trains", example=30)
    data_seed: int = one(SEED, 0, help="the order of the data, the same for every run")
    set_aside: tuple[Family, ...] = several(FAMILY, (), help="families of the whole study", distinct=False, empty=True)

    def check(self) -> None:
        """See `Settings.check`."""
        self._check_one_family_each()
        self._check_minibatches_are_full()

    def _check_one_family_each(self) -> None:
        places = [f"families[{i}]" for i in range(len(self.families))]
        places += [f"set_aside[{i}]" for i in range(len(self.set_aside))]
        seen: dict[str, str] = {}
        for place, family in zip(places, self.families + self.set_aside, strict=True):
            if family.name in seen:
                raise self.error(place, f"is {family.name}, as is {seen[family.name]}; give each once.")
            seen[family.name] = place

    def _check_minibatches_are_full(self) -> None:
        for i, size in enumerate(self.batch_sizes):
            if self.train_images is not None and size > self.train_images:
                raise self.error(
                    f"batch_sizes[{i}]", f"is {size}; it must be at most train_images, which is {self.train_images}."
                )

    def runs(self) -> tuple[RunSpec, ...]:
        """Every run: by family, batch size, seed, and then the settings of the family."""
        return tuple(
            RunSpec(algorithm=family.name, batch_size=batch_size, seed=seed, **setting)
            for family in self.families
            for batch_size in self.batch_sizes
            for seed in self.seeds
            for setting in family.grid()
        )

    def family(self, algorithm: str) -> Family:
        """The family of that name."""
        for family in self.families:
            if family.name == algorithm:
                return family
        raise SettingError(
            f"StudySpec.family({algorithm!r}): it is not in the study; choose from {_listed(self.algorithms)}."
        )

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the families that run: those of their algorithms, unless the study says otherwise."""
        return tuple(family.name for family in self.families)

    def recorded_epochs(self) -> tuple[int, ...]:
        """The epochs after which runs are measured: 1, 2, 5, every tenth, and the last."""
        wanted = {1, 2, 5, *range(10, self.epochs + 1, 10), self.epochs}
        return tuple(sorted(epoch for epoch in wanted if epoch <= self.epochs))

    def select(
        self,
        *,
        algorithms: Iterable[str] | None = None,
        batch_sizes: Iterable[int] | None = None,
        seeds: int | None = None,
        epochs: int | None = None,
    ) -> StudySpec:
        """A part of this study, with the same fingerprint; what is None stays whole.

        Args:
            algorithms: These only.
            batch_sizes: These only.
            seeds: The first so many only.
            epochs: So many only, from the first.

        Raises:
            SettingError: Something was asked for that is not in the study; the message lists what is.
        """
        kept = _part("algorithms", algorithms, self.algorithms)
        return replace(
            self,
            families=tuple(family for family in self.families if family.name in kept),
            set_aside=self.set_aside + tuple(family for family in self.families if family.name not in kept),
            batch_sizes=_part("batch_sizes", batch_sizes, self.batch_sizes),
            seeds=self.seeds[: _at_most("seeds", seeds, len(self.seeds))],
            epochs=_at_most("epochs", epochs, self.epochs),
        )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> StudySpec:
        """The study that `to_dict` wrote."""
        owner = "StudySpec.from_dict:"
        table = dict(stored)
        if "network" in table:
            table["network"] = network_from_dict(table["network"], f"{owner} network")
        for key in ("families", "set_aside"):
            if isinstance(table.get(key), list):
                table[key] = [family_from_dict(item, f"{owner} {key}[{i}]") for i, item in enumerate(table[key])]
        return build(cls, table, owner)

    def fingerprint(self) -> str:
        """16 hexadecimal digits over everything that decides what a given run has measured at a given epoch.

        Results with the same fingerprint belong together: which batch sizes, seeds, grid values and epochs were
        chosen says which results there are, not what they are, and a name says nothing at all.
        """
        canonical = json.dumps(self.constants(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def constants(self) -> dict[str, Any]:
        """See `Settings.constants`."""
        constants = {family.name: family.constants() for family in self.families + self.set_aside}
        return {
            "dataset": self.dataset,
            "train_images": self.train_images,
            "network": self.network.constants(),
            "families": {name: values for name, values in constants.items() if values},
            "data_seed": self.data_seed,
        }

    def differences(self, other: StudySpec) -> list[str]:
        """The settings that make the fingerprints of two studies different: `network hidden is [500], not [100]`."""
        own, others = (_flat(json.loads(json.dumps(study.constants()))) for study in (self, other))
        return [
            f"{name} is {own.get(name, 'not there')}, not {others.get(name, 'there')}"
            for name in dict.fromkeys((*own, *others))
            if name not in own or name not in others or own[name] != others[name]
        ]


def _flat(table: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """The values of nested tables, by the names on the way to them; that a table is one of families goes without."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        path = before if name == "families" else f"{before} {name}".strip()
        found |= _flat(value, path) if isinstance(value, dict) and value else {path: value}
    return found


def _part(name: str, asked: Iterable[T] | None, present: tuple[T, ...]) -> tuple[T, ...]:
    """The items that were asked for, in the order of the study; all items if `asked` is None."""
    if asked is None:
        return present
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise SettingError(f"Selecting runs: {name} is {asked!r}; it must be a list, with items of {_listed(present)}.")
    wanted = tuple(asked)
    if not wanted:
        raise SettingError(f"Selecting runs: {name} is empty; choose from {_listed(present)}.")
    for item in wanted:
        if item not in present:
            raise SettingError(
                f"Selecting runs: {name} has {item!r}, which is not in the study; choose from {_listed(present)}."
            )
    return tuple(item for item in present if item in wanted)


def _at_most(name: str, asked: int | None, present: int) -> int:
    if asked is None:
        return present
    if isinstance(asked, bool) or not isinstance(asked, int) or not 1 <= asked <= present:
        raise SettingError(f"Selecting runs: {name} is {asked!r}; it must be a whole number from 1 to {present}.")
    return asked


def _listed(values: Iterable[object]) -> str:
    """The values as they are listed in a sentence, separated by commas."""
    return ", ".join(str(value) for value in values)


# Units.


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Runs that are trained together, as one piece of work that is done or not.

    Attributes:
        algorithm: The family of every run in it, by name; where several are trained as one, a name for all of them.
        batch_size: The batch size of every run in it.
        runs: The runs, family by family and seed by seed.
        part: Its number, from 1, where the runs of one algorithm and batch size were split; otherwise None.
    """

    algorithm: str
    batch_size: int
    runs: tuple[RunSpec, ...]
    part: int | None = None

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its runs, by name."""
        return tuple(dict.fromkeys(run.algorithm for run in self.runs))

    @property
    def id(self) -> str:
        """Its name within the plan, such as `sgd-b64` or `sgd-b64-part2`."""
        whole = f"{self.algorithm}-b{self.batch_size}"
        return whole if self.part is None else f"{whole}-part{self.part}"


def plan(study: StudySpec, max_runs: int | None = None) -> tuple[Unit, ...]:
    """One unit per algorithm and batch size, in parts of at most `max_runs` runs; some algorithms are trained as one.

    Algorithms with few runs go first: a study that is stopped early then has something to compare the others with.
    Parts of one unit differ by at most one run in size, so that as few programs as possible have to be built.
    """
    if max_runs is not None and (isinstance(max_runs, bool) or not isinstance(max_runs, int) or max_runs < 1):
        raise SettingError(f"plan(max_runs={max_runs!r}): max_runs must be a whole number of at least 1, or None.")
    names = _units(study)
    groups: dict[tuple[str, int], list[RunSpec]] = {}
    for run in study.runs():
        groups.setdefault((names[run.algorithm], run.batch_size), []).append(run)
    units: list[Unit] = []
    for algorithm, batch_size in sorted(groups, key=lambda group: (len(groups[group]), group)):
        parts = _split(tuple(groups[algorithm, batch_size]), max_runs)
        for number, runs in enumerate(parts, start=1):
            part = number if len(parts) > 1 else None
            units.append(Unit(algorithm=algorithm, batch_size=batch_size, runs=runs, part=part))
    return tuple(units)


def _units(study: StudySpec) -> dict[str, str]:
    """For each family what the units are called that train it: by its name, or by the first of several as one."""
    alike: dict[object, list[str]] = {}
    for family in study.families:
        key = family.together()
        alike.setdefault(family.name if key is None else key, []).append(family.name)
    return {
        name: names[0] if len(names) == 1 else f"{names[0]}-and-{len(names) - 1}-more"
        for names in alike.values()
        for name in names
    }


def _split(runs: tuple[RunSpec, ...], most: int | None) -> list[tuple[RunSpec, ...]]:
    """As few parts as `most` allows, the longer ones first."""
    count = 1 if most is None else -(-len(runs) // most)  # rounded up
    size, longer = divmod(len(runs), count)
    ends = [size * (i + 1) + min(i + 1, longer) for i in range(count)]
    return [runs[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# Studies as folders and files hold them, read where what they name may not be registered.


def stored_study(table: Any, place: Path) -> StudySpec:
    """The study that `StudySpec.to_dict` wrote into a folder or a file, which is the `place`.

    Raises:
        StudyError: It is damaged, has a name that cannot be one, or it names an algorithm, a network or the like that
            is not registered here.
    """
    check_stored_names(table, place)
    try:
        return StudySpec.from_dict(table)
    except (HotSwapError, TypeError, ValueError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise StudyError(
            f"{place} cannot be read ({why}); if its study uses something of your own, load the file that registers "
            "it: `hotswap --load FILE`, followed by the command."
        ) from error


MOST_RUNS = 1_000_000
"""The most runs of a study that is read: more would take minutes before anything could be said of them."""


def _check_size(table: Any, place: Path) -> None:
    """Raise a StudyError for a study of too many runs, before they are made."""
    if not isinstance(table, Mapping):
        return
    lists = [table.get(name) for name in ("seeds", "batch_sizes")]
    families = [family for family in table.get("families") or () if isinstance(family, Mapping)]
    grids = [prod(len(value) for value in family.values() if isinstance(value, list)) for family in families]
    runs = prod(len(value) for value in lists if isinstance(value, list)) * sum(grids)
    if runs > MOST_RUNS:
        raise StudyError(
            f"{place} cannot be read (its study has {runs:,} runs, and may have {MOST_RUNS:,}); divide it by seeds or "
            "batch sizes."
        )


def check_stored_names(table: object, place: Path) -> None:
    """Check every name in a stored study, whatever else is wrong with it, and that it has not too many runs.

    Raises:
        StudyError: It has too many runs.
        UnsafeNameError: One of them cannot be a name.
    """
    _check_size(table, place)
    for key, what, name in _names(table):
        if isinstance(name, str):
            check_name(name, what, f"{place}, {key} of the study")


def _names(table: object) -> Iterator[tuple[str, str, object]]:
    """The place of each name in a stored study, the kind of thing that it names, and the name."""
    if not isinstance(table, Mapping):
        return
    for key, what in (("name", "study"), ("dataset", "data set")):
        yield key, what, table.get(key)
    if isinstance(table.get("network"), Mapping):
        yield "network", "network", table["network"].get("name")
    for key in ("families", "set_aside"):
        families = table.get(key)
        for row, family in enumerate(families if isinstance(families, list) else (), start=1):
            if isinstance(family, Mapping):
                yield f"row {row} in {key}", "family", family.get("name")
                yield f"row {row} in {key}", "algorithm", family.get("algorithm")

"""The measures of a run: their form in units' files, their columns in tables, and the way from files to tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import pydantic

from hotswap.errors import DamagedError, SettingError
from hotswap.names import check_name
from hotswap.studies.study import LARGEST, StudySpec

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ARM_COLUMNS",
    "METRIC_COLUMNS",
    "Stored",
    "arm_frame",
    "best_runs",
    "best_sgd",
    "check_unit",
    "metric_columns",
    "metric_frame",
    "same_measures",
]

METRIC_COLUMNS = {
    **{"run": "str", "algorithm": "str", "batch_size": "int64", "seed": "int64"},
    **{"lr": "float64", "lr_decay": "float64", "momentum": "float64", "epoch": "int64"},
    **{"train_nll": "float64", "test_error": "float64", "test_nll": "float64", "mean_lr": "float64"},
    **{"trials": "float64", "grad_norm": "float64", "steps": "int64", "seconds": "float64"},
}
"""The columns of metrics that every study has, in order, and their types. See `metric_columns` for all of a study's."""

ARM_COLUMNS = {"run": "str", "epoch": "int64", "arm": "int64", "count": "int64"}
"""The columns of a study's table of arms, in order, and their types."""

MEASURED = tuple(METRIC_COLUMNS)[7:]
"""The first values of a run's row, in order, from the epoch to the seconds. The further measures follow, by name."""

_SETTINGS = ("lr", "lr_decay", "momentum")  # columns of every study, whether or not one of its algorithms has them
_MEASURES = ("mean_lr", "trials")

# The form of a unit's file.


def _name(what: str) -> pydantic.AfterValidator:
    """The check of a name. The context of a check is the place, for the sentence about a name that cannot be one."""

    def check(name: Any, info: pydantic.ValidationInfo) -> Any:
        check_name(name, what, str(info.context))
        return name

    return pydantic.AfterValidator(check)


def _in_order(rows: list[Any]) -> list[Any]:
    if any(row[0] <= before[0] for before, row in pairwise(rows)):
        raise ValueError("an epoch is there twice, or not in order")
    return rows


Whole = Annotated[int, pydantic.Field(strict=True, ge=0, le=LARGEST)]
Epoch = Annotated[int, pydantic.Field(strict=True, ge=1, le=LARGEST)]
Number = Annotated[float, pydantic.Field(strict=True)]
Seconds = Annotated[float, pydantic.Field(strict=True, ge=0, allow_inf_nan=False)]
Measures = dict[Annotated[Any, _name("measure")], Number]
Row = tuple[Epoch, Number, Number, Number, Number, Number, Number, Whole, Seconds, Measures]


class StoredRun(pydantic.BaseModel):
    """A run as its unit stores it.

    A row has the values of `MEASURED`, and a table of the run's further measures; `seconds` count the training of the
    run's unit. An entry of the arms has an epoch, an arm, and how often the run took the arm then.
    """

    algorithm: Annotated[Any, _name("algorithm")]
    batch_size: Whole
    seed: Whole
    settings: dict[Annotated[Any, _name("setting")], Number]
    diverged: Whole | None
    rows: Annotated[list[Row], pydantic.AfterValidator(_in_order)]
    arms: list[tuple[Whole, Whole, Whole]]


class StoredUnit(pydantic.BaseModel):
    """A finished unit, without what its runs have measured."""

    unit: Annotated[Any, _name("unit")]
    study: dict[str, Any]
    provenance: dict[str, Any]
    epochs: Epoch
    seconds: Annotated[float, pydantic.Field(strict=True, ge=0)]
    runs: Annotated[dict[Annotated[Any, _name("run")], Any], pydantic.Field(min_length=1)]


Stored = Mapping[str, Any]
"""A `StoredRun` that was checked."""


def check_unit(content: Mapping[str, Any], file: object) -> None:
    """Check a unit that was read from a file.

    Raises:
        DamagedError: Something in it cannot be.
        UnsafeNameError: It has a name that cannot be one.
    """
    _check(StoredUnit, content, file, str(file), "it has")
    for run, stored in content["runs"].items():
        _check(StoredRun, stored, file, f"{file}, run {run!r}", f"what it has of the run {run} cannot be:")


def _check(form: type[pydantic.BaseModel], value: object, file: object, place: str, what: str) -> None:
    try:
        form.model_validate(value, context=place)
    except pydantic.ValidationError as error:
        found = error.errors(include_url=False)[0]
        where = ".".join(str(part)[:60] for part in found["loc"])
        raise DamagedError(file, f"{what} {where}: {found['msg']}") from error


# Columns of tables.


def metric_columns(specs: Iterable[StudySpec]) -> dict[str, str]:
    """The columns of a study's metrics, in order, and their types.

    First come those of every study, then the further settings and the further measures of its algorithms, each sorted
    by name. A run has NaN in the columns of settings and measures that its algorithm does not have.

    Raises:
        SettingError: An algorithm gives a setting or a measure the name of a column that means something else.
    """
    families = [family for spec in specs for family in spec.families]
    varied = {name for family in families for name in family.varied()}
    measured = {name for family in families for name in family.measures}
    further: list[str] = []
    for kind, standard, taken in (("setting", _SETTINGS, measured), ("measure", _MEASURES, varied)):
        found: set[str] = set()
        for family in families:
            names = set(family.varied() if kind == "setting" else family.measures).difference(standard)
            for name in sorted(names & {*METRIC_COLUMNS, *taken}):
                raise SettingError(
                    f"The algorithm {family.algorithm} has a {kind} named {name!r}, but another column of the study's "
                    f"tables has that name; rename the {kind}."
                )
            found |= names
        further += sorted(found)
    return {**METRIC_COLUMNS, **dict.fromkeys(further, "float64")}


def same_measures(one: Stored, other: Stored) -> str | None:
    """A difference between two records of a run, at epochs that both have; None if they agree. Times may differ."""
    theirs = {row[0]: row for row in other["rows"]}
    for row in one["rows"]:
        known = theirs.get(row[0], row)
        for name, ours, value in zip((*MEASURED, "more"), row, known, strict=True):
            if name != "seconds" and repr(ours) != repr(value):  # to the last digit; NaN is the same as NaN
                return f"{name} {ours} and {value} at epoch {row[0]}"
    both = {row[0] for row in one["rows"]} & theirs.keys()
    arms, others = ([entry for entry in stored["arms"] if entry[0] in both] for stored in (one, other))
    return None if sorted(arms) == sorted(others) else "different counts of arms"


def metric_frame(runs: Mapping[str, Stored]) -> pd.DataFrame:
    """One row a run and recorded epoch, sorted by run and epoch. See `metric_columns` for the columns.

    All of it as it was stored, whether or not the algorithms are registered here.
    """
    import pandas as pd  # noqa: PLC0415 (training needs none)

    settings = sorted({name for run in runs.values() for name in run["settings"]}.difference(METRIC_COLUMNS))
    more = sorted({name for run in runs.values() for row in run["rows"] for name in row[-1]})
    more = [name for name in more if name not in METRIC_COLUMNS and name not in settings]
    table = []
    for name, run in sorted(runs.items()):
        known = [run["settings"].get(setting, math.nan) for setting in (*_SETTINGS, *settings)]
        head = (name, run["algorithm"], run["batch_size"], run["seed"], *known[: len(_SETTINGS)])
        for row in run["rows"]:
            further = [row[-1].get(measure, math.nan) for measure in more]
            table.append((*head, *row[:-1], *known[len(_SETTINGS) :], *further))
    columns: dict[str, Any] = {**METRIC_COLUMNS, **dict.fromkeys((*settings, *more), "float64")}
    return pd.DataFrame(table, columns=list(columns)).astype(columns)


def arm_frame(runs: Mapping[str, Stored]) -> pd.DataFrame:
    """How often each run took each arm in each recorded epoch, columns as in `ARM_COLUMNS`, sorted."""
    import pandas as pd  # noqa: PLC0415 (training needs none)

    table = [(name, *entry) for name, run in sorted(runs.items()) for entry in sorted(run["arms"])]
    kinds: dict[str, Any] = dict(ARM_COLUMNS)
    return pd.DataFrame(table, columns=list(ARM_COLUMNS)).astype(kinds)


def best_runs(metrics: pd.DataFrame, algorithm: str) -> list[str]:
    """The runs of an algorithm with the lowest training loss and the lowest test error at the study's last epoch.

    Returns their ids: one if the same run has both, none if the algorithm has no runs that went so far. NaN counts as
    worst and is never chosen.
    """
    if metrics.empty:
        return []
    last = metrics[(metrics["algorithm"] == algorithm) & (metrics["epoch"] == metrics["epoch"].max())]
    chosen = []
    for name in ("train_nll", "test_error"):
        known = last.dropna(subset=name)
        if len(known):
            chosen.append(str(known.loc[known[name].idxmin(), "run"]))
    return list(dict.fromkeys(chosen))


def best_sgd(metrics: pd.DataFrame) -> list[str]:
    """The runs of SGD that were best in retrospect. See `best_runs`."""
    return best_runs(metrics, "sgd")

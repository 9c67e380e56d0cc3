"""The measures of a run: their form in units' files, their columns in tables, and the way from files to tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hotswap.errors import DamagedError, SettingError
from hotswap.names import check_name
from hotswap.studies.specification.study import StudySpec

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ARM_COLUMNS",
    "METRIC_COLUMNS",
    "arm_frame",
    "checked_run",
    "metric_columns",
    "metric_frame",
    "must_be",
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
_LARGEST = 2**63 - 1  # what a column of whole numbers can hold

Stored = Mapping[str, Any]
"""A run as its unit stores it: `algorithm`, `batch_size`, `seed`, `settings`, the epoch in which it `diverged` or None,
`rows` and `arms`. A row has the values of `MEASURED`, and a table of the run's further measures; `seconds` count the
training of the run's unit. An entry of the arms has an epoch, an arm, and how often the run took the arm then."""


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


def checked_run(run: str, stored: Any, file: object) -> None:
    """Check a run that was read from a file.

    Raises:
        DamagedError: Something in it cannot be.
        UnsafeNameError: It has a name that cannot be one.
    """
    place = f"{file}, run {run[:60]!r}"
    check_name(run, "run", str(file))
    try:
        check_name(stored["algorithm"], "algorithm", place)
        for name, value in stored["settings"].items():
            check_name(name, "setting", place)
            float(value)
        numbers = (stored["batch_size"], stored["seed"], stored["diverged"] or 0)
        must_be(_whole(numbers), f"batch size, seed and epoch of divergence {numbers}")
        _check_rows(stored["rows"], place)
        arms = stored["arms"]
        must_be({len(entry) for entry in arms} <= {3}, "a count of an arm without its epoch")
        must_be(_whole(value for entry in arms for value in entry), "counts of arms")
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise DamagedError(file, f"what it has of the run {run} cannot be: {type(error).__name__}: {why}") from error


def must_be(true: bool, what: str) -> None:
    """Raise a ValueError that names what is wrong."""
    if not true:
        raise ValueError(what)


def _check_rows(rows: Any, place: str) -> None:
    must_be({len(row) for row in rows} <= {len(MEASURED) + 1}, "a row of another length")
    epochs = [row[0] for row in rows]
    must_be(_whole(epochs) and epochs == sorted(set(epochs) - {0}), "an epoch twice, or not in order")
    must_be(_whole(row[7] for row in rows), "steps")
    must_be(all(0 <= row[8] < math.inf for row in rows), "seconds")
    must_be({type(value) for row in rows for value in row[1:9]} <= {int, float}, "words for numbers")
    more = [row[9] for row in rows if row[9]]
    for name in {name for table in more for name in table}:
        check_name(name, "measure", place)
    must_be({type(value) for table in more for value in table.values()} <= {int, float}, "words for measures")


def _whole(values: Iterable[Any]) -> bool:
    """True if all values are whole numbers that a table can hold."""
    return all(type(value) is int and 0 <= value <= _LARGEST for value in values)


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

"""The rows of a study's tables, and their columns: those that every study has, and those that its algorithms add."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotswap.errors import SettingError
from hotswap.studies.specification.study import StudySpec

__all__ = [
    "ARM_COLUMNS",
    "METRIC_COLUMNS",
    "ArmCount",
    "MetricRow",
    "further_measures",
    "metric_columns",
    "numbers_from_json",
    "numbers_to_json",
    "setting_columns",
]

METRIC_COLUMNS = {
    **{"run": "str", "algorithm": "str", "batch_size": "int64", "seed": "int64"},
    **{"lr": "float64", "lr_decay": "float64", "momentum": "float64", "epoch": "int64"},
    **{"train_nll": "float64", "test_error": "float64", "test_nll": "float64", "mean_lr": "float64"},
    **{"trials": "float64", "grad_norm": "float64", "steps": "int64", "seconds": "float64"},
}
"""The columns of metrics that every study has, in order, and their types. See `metric_columns` for all of a study's."""

ARM_COLUMNS = {"run": "str", "epoch": "int64", "arm": "int64", "count": "int64"}
"""The columns of `Store.arms`, in order, and their types."""

_SETTINGS = ("lr", "lr_decay", "momentum")  # columns of every study, whether or not one of its algorithms has them
_MEASURES = ("mean_lr", "trials")

ArmCount = tuple[str, int, int, int]
"""Run, epoch, arm, and how often the run took the arm in that epoch."""


@dataclass(frozen=True)
class MetricRow:
    """What one run measured at one epoch. Any float may be NaN or infinite: a run that diverged is data.

    `seconds` counts the training of the run's unit, from its first epoch on; `more` has what the run's algorithm
    measures beyond `mean_lr` and `trials`, by name.
    """

    run: str
    epoch: int
    train_nll: float
    test_error: float
    test_nll: float
    mean_lr: float
    trials: float
    grad_norm: float
    steps: int
    seconds: float
    more: Mapping[str, float] = field(default_factory=dict)

    def plain(self) -> tuple[str | int | float | None, ...]:
        """Return the values as Python's own types: SQLite would take a NumPy scalar for a row of bytes."""
        losses = map(float, (self.train_nll, self.test_error, self.test_nll))
        means = map(float, (self.mean_lr, self.trials, self.grad_norm))
        more = numbers_to_json(self.more) if self.more else None
        return str(self.run), int(self.epoch), *losses, *means, int(self.steps), float(self.seconds), more


def metric_columns(specs: Iterable[StudySpec]) -> dict[str, str]:
    """The columns of a study's metrics, in order, and their types.

    First come those of every study, then the further settings and the further measures of its algorithms, each sorted
    by name. A run has NaN in the columns of settings and measures that its algorithm does not have.

    Raises:
        SettingError: An algorithm gives a setting or a measure the name of a column that means something else.
    """
    specs = list(specs)
    further = (*setting_columns(specs)[len(_SETTINGS) :], *further_measures(specs))
    return {**METRIC_COLUMNS, **dict.fromkeys(further, "float64")}


def setting_columns(specs: Iterable[StudySpec]) -> tuple[str, ...]:
    """The columns that hold settings: those of every study, then the further ones, sorted by name."""
    specs = list(specs)
    taken = {*METRIC_COLUMNS, *(name for spec in specs for family in spec.families for name in family.measures)}
    return (*_SETTINGS, *_further(specs, "setting", _SETTINGS, taken))


def further_measures(specs: Iterable[StudySpec]) -> tuple[str, ...]:
    """What the study's algorithms measure beyond the columns of every study, sorted by name."""
    specs = list(specs)
    taken = {*METRIC_COLUMNS, *(name for spec in specs for family in spec.families for name in family.varied())}
    return _further(specs, "measure", _MEASURES, taken)


def _further(specs: list[StudySpec], kind: str, standard: tuple[str, ...], taken: set[str]) -> tuple[str, ...]:
    found: set[str] = set()
    for family in (family for spec in specs for family in spec.families):
        names = set(family.varied() if kind == "setting" else family.measures).difference(standard)
        for name in sorted(names & taken):
            raise SettingError(
                f"The algorithm {family.algorithm} has a {kind} named {name!r}, but another column of the study's "
                f"tables has that name; rename the {kind}."
            )
        found |= names
    return tuple(sorted(found))


def numbers_to_json(numbers: Mapping[str, float]) -> str:
    """Numbers by name as JSON text that gives every digit back. JSON has no NaN and no infinity: null and strings."""
    return json.dumps({str(name): _to_json(float(value)) for name, value in numbers.items()}, sort_keys=True)


def numbers_from_json(text: str | None) -> dict[str, float]:
    """The numbers that `numbers_to_json` wrote; none if there is no text."""
    stored: dict[str, Any] = {} if text is None else json.loads(text)
    return {name: math.nan if value is None else float(value) for name, value in stored.items()}


def _to_json(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else str(value)

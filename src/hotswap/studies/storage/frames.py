"""A ledger's measurements as data frames."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hotswap.studies.specification.study import StudySpec
from hotswap.studies.storage.rows import ARM_COLUMNS, METRIC_COLUMNS, metric_columns, numbers_from_json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_arms", "read_metrics"]

_RUN = ("algorithm", "batch_size", "seed")
_MEASURED = ("train_nll", "test_error", "test_nll", "mean_lr", "trials", "grad_norm", "steps", "seconds", "more")


def read_metrics(sql: sqlite3.Connection, specs: Sequence[StudySpec] | None) -> pd.DataFrame:
    """One row a run and recorded epoch, columns as in `metric_columns`, sorted by run and epoch.

    Without specs the columns are those for which the ledger has numbers.
    """
    names = ("run", *_RUN, "epoch", *_MEASURED)
    chosen = ", ".join(f"runs.{name}" if name in _RUN else f"metrics.{name}" for name in names)
    frame = _frame(sql, f"SELECT {chosen} FROM metrics JOIN runs ON id = run ORDER BY run, metrics.epoch", names)
    settings = {run: numbers_from_json(text) for run, text in sql.execute("SELECT id, settings FROM runs")}
    texts = (text if isinstance(text, str) else None for text in frame["more"])  # pandas has NaN for no text
    # No measure has the name of a setting: `metric_columns` has seen to that before anything was recorded.
    values = [settings[run] | numbers_from_json(text) for run, text in zip(frame["run"], texts, strict=True)]
    columns = _stored_columns(values) if specs is None else metric_columns(specs)
    for name in columns.keys() - set(frame.columns):
        frame[name] = [numbers.get(name, math.nan) for numbers in values]
    return _typed(frame, columns)


def _stored_columns(values: Iterable[Mapping[str, float]]) -> dict[str, str]:
    further = sorted({name for numbers in values for name in numbers}.difference(METRIC_COLUMNS))
    return {**METRIC_COLUMNS, **dict.fromkeys(further, "float64")}


def read_arms(sql: sqlite3.Connection) -> pd.DataFrame:
    """How often each run took each arm in each recorded epoch, columns as in `ARM_COLUMNS`, sorted."""
    names = tuple(ARM_COLUMNS)
    return _typed(_frame(sql, f"SELECT {', '.join(names)} FROM arms ORDER BY run, epoch, arm", names), ARM_COLUMNS)


def _frame(sql: sqlite3.Connection, query: str, names: tuple[str, ...]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 (training needs none)

    return pd.DataFrame(sql.execute(query).fetchall(), columns=list(names))


def _typed(frame: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    kinds: dict[str, Any] = dict(columns)
    return frame[list(columns)].astype(kinds)

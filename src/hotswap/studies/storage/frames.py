"""A ledger's measurements as data frames."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotswap.names import check_name
from hotswap.studies.storage.rows import ARM_COLUMNS, METRIC_COLUMNS, numbers_from_json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_arms", "read_metrics"]

_RUN = ("algorithm", "batch_size", "seed")
_MEASURED = ("train_nll", "test_error", "test_nll", "mean_lr", "trials", "grad_norm", "steps", "seconds", "more")


def read_metrics(sql: sqlite3.Connection, ledger: Path) -> pd.DataFrame:
    """One row a run and recorded epoch of a ledger, sorted by run and epoch.

    The columns are those of every study, then the further settings of its runs, then what else they measured, each
    sorted by name: all of it as the ledger has it, whether or not their algorithms are registered here.
    """
    names = ("run", *_RUN, "epoch", *_MEASURED)
    chosen = ", ".join(f"runs.{name}" if name in _RUN else f"metrics.{name}" for name in names)
    frame = _frame(sql, f"SELECT {chosen} FROM metrics JOIN runs ON id = run ORDER BY run, metrics.epoch", names)
    settings = {run: numbers_from_json(text) for run, text in sql.execute("SELECT id, settings FROM runs")}
    more = [numbers_from_json(text if isinstance(text, str) else None) for text in frame["more"]]  # NaN is no text
    further = _names(settings.values(), ledger), _names(more, ledger)
    for name in (*further[0], *METRIC_COLUMNS):
        if name not in frame:
            frame[name] = frame["run"].map({run: values.get(name, math.nan) for run, values in settings.items()})
    for name in further[1]:
        frame[name] = [values.get(name, math.nan) for values in more]
    return _typed(frame, METRIC_COLUMNS | dict.fromkeys((*further[0], *further[1]), "float64"))


def _names(rows: Iterable[Mapping[str, float]], ledger: Path) -> list[str]:
    """The names that are no columns of every study."""
    names = sorted({name for values in rows for name in values}.difference(METRIC_COLUMNS))
    for name in names:
        check_name(name, "setting or measure", str(ledger))
    return names


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

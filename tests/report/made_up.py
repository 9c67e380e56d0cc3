"""Small made-up results, for tests that want to know what comes out."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from hotswap.report.results import Results
from hotswap.store.tables import TIMING_COLUMNS
from hotswap.studies.rows import ARM_COLUMNS, METRIC_COLUMNS

LAST = 500


def row(algorithm: str, batch: int = 64, seed: int = 0, epoch: int = LAST, **values: Any) -> dict[str, Any]:
    """One row of metrics; everything that is not named is ordinary."""
    setting = {"lr": 0.1, "lr_decay": 1.0, "momentum": 0.0} if algorithm == "sgd" else {}
    name = f"{algorithm}-b{batch}-{values.get('lr', '')}-s{seed}"
    ordinary = {
        "run": name, "algorithm": algorithm, "batch_size": batch, "seed": seed, "epoch": epoch,
        "lr": math.nan, "lr_decay": math.nan, "momentum": math.nan, **setting,
        "train_nll": 0.1, "test_error": 0.02, "test_nll": 0.1, "mean_lr": 0.1, "trials": 0.0, "grad_norm": 0.1,
        "steps": 50_000 // batch * epoch, "seconds": float(epoch),
    }  # fmt: skip
    return {**ordinary, **values}


def table(rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    """A data frame with these columns, and whatever else the rows have as numbers."""
    further = {name: "float64" for row in rows for name in row if name not in columns}
    return pd.DataFrame(rows, columns=[*columns, *further]).astype({**columns, **further})


def timed(algorithm: str, batch: int, epoch: int, milliseconds: float) -> dict[str, Any]:
    seconds = milliseconds * (50_000 // batch) / 1e3
    made = {"device": "d", "precision": "fp32", "torch": "2", "trials": 2.0}
    return {
        "algorithm": algorithm,
        "batch_size": batch,
        "epoch": epoch,
        "milliseconds": milliseconds,
        "seconds": seconds,
        **made,
    }


def results(
    rows: list[dict[str, Any]] | None = None,
    *,
    curves: list[dict[str, Any]] | None = None,
    timing: list[dict[str, Any]] | None = None,
    arms: list[dict[str, Any]] | None = None,
    **more: Any,
) -> Results:
    return Results(
        more.pop("name", "made up"),
        more.pop("specs", ()),
        table(rows or [], METRIC_COLUMNS),
        table(arms or [], ARM_COLUMNS),
        table(timing or [], TIMING_COLUMNS),
        table(curves or [], METRIC_COLUMNS),
        **more,
    )

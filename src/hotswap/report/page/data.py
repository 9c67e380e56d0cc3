"""What the page shows, as plain JSON: numbers only, nothing drawn yet. A number that is not finite becomes null."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from hotswap.report.choices import chosen, trials_per_step
from hotswap.report.claims import Claim
from hotswap.report.origin import Origin
from hotswap.report.results import Results
from hotswap.report.summaries import ALGORITHM_NAMES, SETTING, label, settings, shown_epochs
from hotswap.report.tables import Grid
from hotswap.report.tuning import Tuning

__all__ = ["page_data"]

DATASETS = {"mnist": "MNIST", "digits": "scikit-learn's digits"}


def page_data(
    results: Results, claims: Sequence[Claim], tuning: Iterable[Tuning], tables: Sequence[Grid], origin: Origin
) -> dict[str, Any]:
    """Everything that the page's script needs, in the order in which it is shown."""
    return {
        "name": results.name,
        "datasets": sorted({DATASETS.get(spec.dataset, spec.dataset) for spec in results.specs}),
        "missing": list(results.missing),
        "epochs": list(shown_epochs(results.metrics)),
        "recorded": sorted(int(epoch) for epoch in results.metrics["epoch"].unique()),
        "settings": _settings(results.metrics),
        "claims": [asdict(claim) for claim in claims],
        "tuning": {curve.measure: _tuning(curve) for curve in tuning},
        "choices": _choices(results),
        "singles": _singles(results.curves),
        "tables": [grid._asdict() for grid in tables],
        "origin": asdict(origin),
    }


def _settings(metrics: pd.DataFrame) -> list[dict[str, Any]]:
    """One entry per setting: what it is, both measures at the shown epochs, and its medians at every recorded one."""
    moments = {epoch: settings(metrics, epoch).set_index(SETTING) for epoch in shown_epochs(metrics)}
    entries = []
    for key, rows in metrics.groupby(SETTING, dropna=False, sort=True):
        row = pd.Series(dict(zip(SETTING, key, strict=True)))
        medians = rows.groupby("epoch")[["train_nll", "test_error", "mean_lr", "trials"]].median()
        entry = {
            "label": label(row),
            "algorithm": row["algorithm"],
            "batch": int(row["batch_size"]),
            "lr": _number(row["lr"]),
            "decay": _number(row["lr_decay"]),
            "momentum": _number(row["momentum"]),
            "at": {str(epoch): _moment(rows[rows["epoch"] == epoch]) for epoch in moments},
            "curve": {
                "epoch": [int(epoch) for epoch in medians.index],
                "nll": _numbers(medians["train_nll"]),
                "error": _numbers(medians["test_error"]),
            },
        }
        if row["algorithm"] == "ducb":
            entry["curve"] |= {"rate": _numbers(medians["mean_lr"]), "trials": _numbers(medians["trials"])}
        entries.append(entry)
    return entries


def _moment(rows: pd.DataFrame) -> dict[str, Any]:
    """Median, least and most over the seeds, and each seed's own."""
    measures = {"nll": rows["train_nll"].fillna(math.inf), "error": rows["test_error"]}
    found: dict[str, Any] = {
        name: _numbers([values.median(), values.min(), values.max()]) for name, values in measures.items()
    }
    found["seeds"] = [
        {"seed": int(seed), "nll": _number(nll), "error": _number(error)}
        for seed, nll, error in zip(rows["seed"], measures["nll"], measures["error"], strict=True)
    ]
    return found


def _tuning(curve: Tuning) -> dict[str, Any]:
    return {
        "expected": _numbers(curve.expected),
        "low": _numbers(curve.low),
        "high": _numbers(curve.high),
        "ducb": {str(size): _number(value) for size, value in curve.ducb.items()},
        "one_run": _number(curve.one_run),
        "caught_up": curve.caught_up(curve.one_run),
        "caught_up_by_batch": {str(size): curve.caught_up(float(value)) for size, value in curve.ducb.items()},
    }


def _choices(results: Results) -> dict[str, Any]:
    """By batch size: the share of steps in which each arm was taken, epoch by epoch, and trials per step."""
    shares, trials = chosen(results), trials_per_step(results.metrics)
    return {
        "rates": _numbers(results.rates),
        "share": {
            str(size): {"epoch": [int(e) for e in table.index], "arms": [_numbers(row) for row in table.to_numpy()]}
            for size, table in shares.items()
        },
        "trials": {
            str(size): {"epoch": [int(e) for e in series.index], "mean": _numbers(series)}
            for size, series in trials.items()
        },
    }


def _singles(curves: pd.DataFrame) -> list[dict[str, Any]]:
    """The runs of Figure 2 against the clock, by algorithm and batch size."""
    names = {"seconds": "seconds", "test_error": "error", "train_nll": "nll", "mean_lr": "rate", "grad_norm": "norm"}
    order = list(ALGORITHM_NAMES)
    found = []
    for run, rows in curves.sort_values("epoch").groupby("run"):
        first = rows.iloc[0]
        sgd = first["algorithm"] == "sgd"
        found.append(
            {
                "run": run,
                "label": label(first),
                "short": f"SGD {first['lr']:g}, {first['momentum']:g}" if sgd else str(first["batch_size"]),
                "algorithm": first["algorithm"],
                "batch": int(first["batch_size"]),
                **{short: _numbers(rows[name]) for name, short in names.items()},
            }
        )
    return sorted(found, key=lambda entry: (order.index(entry["algorithm"]), entry["batch"], entry["run"]))


def _number(value: float) -> float | None:
    """Six digits are more than anyone can see, and keep the page small."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_number(float(value)) for value in values]

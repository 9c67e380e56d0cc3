"""The page's data, as plain JSON: numbers and tables, nothing drawn yet. A number that is not finite becomes null."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd

from hotswap.report.answer import Answer
from hotswap.report.beyond import Prize, method, prize, prize_grid, variant_grid, variants_answer
from hotswap.report.claims import Claim, claims_answer
from hotswap.report.comparison import Comparison
from hotswap.report.origin import Origin
from hotswap.report.results import Results
from hotswap.report.summaries import chosen, rates_of, settings_of, shown_epochs, trials_per_step
from hotswap.report.tables import Grid
from hotswap.report.tuning import Searched, Tuning
from hotswap.report.variants import GROUPS, group_of, readable

__all__ = ["page_data", "plain"]

TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "digits": "scikit-learn's digits",
}


def plain(value: Any) -> Any:
    """A value as JSON can hold it: numbers in six digits, which are more than anyone can see; null if not finite."""
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(one) for one in value]
    return value


def page_data(
    results: Results,
    claims: Sequence[Claim],
    tuning: Iterable[Tuning],
    tables: Sequence[Grid],
    origin: Origin,
    beyond: Comparison | None = None,
    benchmark: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that the page's script needs, in the order in which it is shown.

    benchmark: the section on other methods, as `hotswap.bench.report.section_data` makes it.
    """
    found = {
        "name": results.name,
        "datasets": sorted({TITLES.get(spec.dataset, spec.dataset) for spec in results.specs}),
        "algorithms": _algorithms(results),
        "missing": results.missing,
        "epochs": shown_epochs(results.metrics),
        "recorded": sorted(results.metrics["epoch"].unique()),
        "settings": _settings(results),
        "answers": _answers(claims, beyond),
        "claims": claims,
        "tuning": {curve.measure: _tuning(curve) for curve in tuning},
        "choices": _choices(results),
        "singles": _singles(results),
        "tables": tables,
        "origin": origin,
        "beyond": None if beyond is None else _beyond(beyond),
        "benchmark": benchmark,
    }
    whole: dict[str, Any] = plain(found)
    return whole


def _answers(claims: Sequence[Claim], beyond: Comparison | None) -> list[Answer]:
    return ([claims_answer(claims)] if claims else []) + ([] if beyond is None else [variants_answer(beyond)])


def _algorithms(results: Results) -> dict[str, dict[str, Any]]:
    """The label and the look of each algorithm, by name; the algorithm that is drawn on top comes first."""
    top = results.looks.top()
    return {
        shown.name: {
            **asdict(shown.look),
            "dark": shown.look.dark or shown.look.colour,
            "label": shown.label,
            "many": shown.many,
            "top": shown.name in top,
        }
        for shown in results.looks.from_top()
    }


def _settings(results: Results) -> list[dict[str, Any]]:
    """One entry per setting: what it is, both measures at the shown epochs, and its medians at every recorded one."""
    epochs, columns = shown_epochs(results.metrics), results.setting_columns
    names = {"train_nll": "nll", "test_error": "error", "mean_lr": "rate", "trials": "trials"}
    entries = []
    for key, rows in results.metrics.groupby(columns, dropna=False, sort=True):
        row = pd.Series(dict(zip(columns, key, strict=True)))
        shown = list(names) if results.looks[row["algorithm"]].chooses else ["train_nll", "test_error"]
        medians = rows.groupby("epoch")[shown].median()
        entry = {
            "label": results.label(row),
            "algorithm": row["algorithm"],
            "batch": int(row["batch_size"]),
            "at": {epoch: _moment(rows[rows["epoch"] == epoch]) for epoch in epochs},
            "curve": {"epoch": medians.index, **{names[name]: medians[name] for name in shown}},
        }
        entries.append(entry)
    return entries


def _moment(rows: pd.DataFrame) -> dict[str, Any]:
    """Median, least and most over the seeds, and each seed's own."""
    measures = {"nll": rows["train_nll"].fillna(math.inf), "error": rows["test_error"]}
    found = {name: [values.median(), values.min(), values.max()] for name, values in measures.items()}
    each = zip(rows["seed"], *measures.values(), strict=True)
    return {**found, "seeds": [{"seed": seed, "nll": nll, "error": error} for seed, nll, error in each]}


def _tuning(curve: Tuning) -> dict[str, Any]:
    return {
        "tuned": curve.tuned,
        "reference": curve.reference,
        "levels": curve.levels.to_dict(),
        "one_run": curve.one_run,
        **_searches(curve, curve),
        "bayesian": None if curve.bayesian is None else _searches(curve, curve.bayesian),
    }


def _searches(curve: Tuning, found: Tuning | Searched) -> dict[str, Any]:
    """The values that one way to search finds, and the trainings that it takes until it matches the reference."""
    levels = curve.levels.astype(float).to_dict()
    return {
        "expected": found.expected,
        "low": found.low,
        "high": found.high,
        "caught_up": found.caught_up(curve.one_run),
        "caught_up_by_batch": {size: found.caught_up(value) for size, value in levels.items()},
        "until_by_batch": {size: found.until(value) for size, value in levels.items()},
    }


def _choices(results: Results) -> list[dict[str, Any]]:
    """The choices of each algorithm that chooses, by batch size: shares of the arms and trials per step, by epoch."""
    return [
        {
            "algorithm": name,
            "rates": rates_of(results, name),
            "share": {
                size: {"epoch": table.index, "arms": table.to_numpy()} for size, table in chosen(results, name).items()
            },
            "trials": {
                size: {"epoch": series.index, "mean": series}
                for size, series in trials_per_step(results.metrics, name).items()
            },
        }
        for name, shown in results.looks.items()
        if shown.chooses
    ]


def _singles(results: Results) -> list[dict[str, Any]]:
    """The runs of Figure 2 against the clock, by algorithm and batch size."""
    names = {"seconds": "seconds", "test_error": "error", "train_nll": "nll", "mean_lr": "rate", "grad_norm": "norm"}
    order = [shown.name for shown in results.looks.from_top()]
    runs = {str(run): rows for run, rows in results.curves.sort_values("epoch").groupby("run")}
    shorts = _shorts(results, {run: rows.iloc[0] for run, rows in runs.items()})
    found = [
        {
            "run": run,
            "label": results.label(rows.iloc[0]),
            "short": shorts[run],
            "algorithm": str(rows["algorithm"].iloc[0]),
            "batch": int(rows["batch_size"].iloc[0]),
            **{short: rows[name] for name, short in names.items()},
        }
        for run, rows in runs.items()
    ]
    return sorted(found, key=lambda entry: (order.index(entry["algorithm"]), entry["batch"], entry["run"]))


def _shorts(results: Results, runs: Mapping[str, pd.Series]) -> dict[str, str]:
    """The text at the end of each run's line: the batch size, or the settings that tell its algorithm's runs apart.

    The text has as few settings as are enough, beginning with the first.
    """
    columns = [name for name in results.setting_columns if name in results.curves]
    values = {run: tuple(settings_of(row, columns).values()) for run, row in runs.items()}
    shorts = {}
    for run, row in runs.items():
        alike = {values[other] for other in runs if runs[other]["algorithm"] == row["algorithm"]}
        enough = (n for n in range(1, len(values[run])) if len({value[:n] for value in alike}) == len(alike))
        told = ", ".join(f"{value:g}" for value in values[run][: next(enough, None)])
        shorts[run] = f"{results.looks.label_of(row['algorithm'])} {told}" if told else str(row["batch_size"])
    return shorts


def _beyond(comparison: Comparison) -> dict[str, Any]:
    """The verdict, the tables, the curves over cost, and objectives at equal cost."""
    verdict = prize(comparison)
    groups = {family.name: group_of(family, comparison.paper) for family in comparison.others}
    return {
        "verdict": verdict.sentence(),
        "won": bool(verdict.winners),
        "method": method(comparison),
        "grids": [grid for grid in (prize_grid(verdict), variant_grid(comparison)) if grid.rows],
        "moments": comparison.moments,
        "sizes": comparison.batch_sizes,
        "groups": [{"name": name, "title": title} for name, title in GROUPS.items() if name in groups.values()],
        "rivals": [
            {"name": rival.key, "label": rival.label, **_compared(comparison, verdict, rival.key)}
            for rival in comparison.present
        ],
        "variants": [
            {"name": name, "label": readable(name), "group": group, **_compared(comparison, verdict, name)}
            for name, group in groups.items()
        ],
    }


def _compared(comparison: Comparison, verdict: Prize, who: str) -> dict[str, Any]:
    """By batch size: the curve, and at each moment the objective, its ratio to the paper's and whether it is ahead."""
    names = {"cost": "cost", "nll": "train_nll"} | ({"low": "low", "high": "high"} if who == "sgd tenth" else {})
    there = comparison.curves.index.droplevel("epoch")
    curves = {}
    for size in (size for size in comparison.batch_sizes if (who, size) in there):
        rows = comparison.curves.loc[(who, size)].sort_values("cost")
        curves[size] = {short: rows[name] for short, name in names.items()}
    at = {
        cost: {size: _at(comparison, verdict, who, size, cost) for size in comparison.batch_sizes}
        for cost in comparison.moments
    }
    return {"curves": curves, "at": at}


def _at(comparison: Comparison, verdict: Prize, who: str, size: int, cost: int) -> dict[str, Any]:
    value, standing = comparison.value(who, size, cost), verdict.of(who)
    return {
        "nll": value,
        "error": comparison.value(who, size, cost, "test_error"),
        "ratio": comparison.ratio(who, size, cost),
        "diverged": math.isinf(value),
        "first": standing is not None and standing.first(size, cost),
    }

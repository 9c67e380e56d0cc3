"""Variants of hot swapping beside the paper's algorithm, AdaDelta and SGD: by epoch, and at equal cost.

Cost is counted in **plain epochs**. A plain step is a forward and a backward pass, and the backward counts as two, so
it takes 3 passes; an epoch of N steps of SGD or AdaDelta takes 3 N, and costs 1. Trials are forward passes on top.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hotswap.errors import StudyError
from hotswap.report.results import Results, load_results
from hotswap.report.summaries import settings_among
from hotswap.report.variants import paper_among, variants_of
from hotswap.studies.algorithms import Family, HotSwapFamily

__all__ = [
    "PASSES",
    "RIVALS",
    "Comparison",
    "Rival",
    "at_cost",
    "compare",
    "comparison_of",
    "moments_of",
    "reached",
    "tenth",
    "with_costs",
]

EPOCHS = (5, 20, 50, 100, 200, 500)
"""The epochs at which runs are compared, as far as they were recorded."""


class Rival(NamedTuple):
    """An opponent that a variant is compared with."""

    key: str
    """As tables name it; no family of a study can have a name with a space."""
    label: str
    whole: str
    """The same in a sentence."""


RIVALS = (
    Rival("paper", "the paper's", "the paper's algorithm"),
    Rival("adadelta", "AdaDelta", "AdaDelta"),
    Rival("sgd tenth", "SGD, best tenth", "the median of the best tenth of SGD's settings"),
    Rival("sgd best", "SGD, best", "the best of SGD's settings"),
)
"""The first three decide; the best of SGD's settings, chosen in retrospect, is shown beside them."""

MEASURES = ["train_nll", "test_error"]


@dataclass(frozen=True)
class Comparison:
    """Everything that is said about the variants of a study, as tables of medians over seeds."""

    name: str
    variants: tuple[HotSwapFamily, ...]
    """All of them, the paper's algorithm too where it is among them."""
    paper: Family | None
    """The family that is the paper's algorithm; None where nobody has trained it on this problem."""
    batch_sizes: tuple[int, ...]
    moments: tuple[int, ...]
    """The costs, in plain epochs, at which all are compared: early, and at the end."""
    epochs: tuple[int, ...]
    by_epoch: pd.DataFrame
    """By `algorithm`, `batch_size` and `epoch`: the medians of `train_nll`, `test_error`, `trials` per step so far, and
    `cost` so far."""
    at_cost: pd.DataFrame
    """By `who` (the name of a variant, or the key of a rival), `batch_size` and `cost`: medians of both measures."""
    curves: pd.DataFrame
    """By `who`, `batch_size` and `epoch`: the medians of `cost` and `train_nll`; of a tenth of SGD's settings also the
    `low` and the `high` one. For the figures."""
    borrowed: tuple[str, ...]
    """Keys of the rivals that come from the shipped results, not from the study."""
    seeds: tuple[int, ...]
    settings: tuple[int, int]
    """How many of SGD's settings the best tenth of a batch size are, and of how many."""

    @property
    def others(self) -> tuple[HotSwapFamily, ...]:
        """The variants that are not the paper's algorithm."""
        return tuple(family for family in self.variants if family != self.paper)

    @property
    def present(self) -> tuple[Rival, ...]:
        """The rivals that have runs on this problem."""
        there = set(self.at_cost.index.get_level_values("who"))
        return tuple(rival for rival in RIVALS if rival.key in there)

    def value(self, who: str, batch_size: int, cost: int, measure: str = "train_nll") -> float:
        """A median at equal cost; NaN if it was not recorded."""
        key = (who, batch_size, cost)
        return float(self.at_cost.loc[key, measure]) if key in self.at_cost.index else math.nan

    def ratio(self, who: str, batch_size: int, cost: int, rival: str = "paper") -> float:
        """A variant's objective over a rival's at equal cost: below 1 the variant is ahead; NaN if one is missing."""
        return over(self.value(who, batch_size, cost), self.value(rival, batch_size, cost))

    def trials(self, who: str, batch_size: int) -> float:
        """Trials per step, over the whole run; of unfinished runs, as far as they are."""
        return self._last(who, batch_size, "trials")

    def relative_cost(self, who: str, batch_size: int) -> float:
        """The cost of an epoch in plain epochs, over the whole run; an unfinished run counts as far as it has come."""
        return self._last(who, batch_size, "cost") / max(1, self.last_epoch(who, batch_size))

    def last_epoch(self, who: str, batch_size: int) -> int:
        """The last epoch that was recorded; 0 if there is none."""
        if (who, batch_size) not in self.by_epoch.index:
            return 0
        return int(self.by_epoch.loc[(who, batch_size)].index.max())

    @property
    def unfinished(self) -> dict[tuple[str, int], int]:
        """Variants and batch sizes whose runs were not trained to the end, with the last epoch that was recorded."""
        lasts = {
            (one.name, size): self.last_epoch(one.name, size) for one in self.variants for size in self.batch_sizes
        }
        return {key: last for key, last in lasts.items() if last < max(self.epochs)}

    def _last(self, who: str, batch_size: int, column: str) -> float:
        last = self.last_epoch(who, batch_size)
        return float(self.by_epoch.loc[(who, batch_size, last), column]) if last else math.nan


def over(mine: float, its: float) -> float:
    """One objective over another, where 0 over 0 is 1, and so is infinite over infinite."""
    if math.isnan(mine) or math.isnan(its):
        return math.nan
    if mine == its:
        return 1.0
    return math.inf if its == 0 else (0.0 if math.isinf(its) else mine / its)


def compare(results: Results, shipped: Results | None = None) -> Comparison | None:
    """Compare the variants of a study; None if it has none.

    Rivals that the study does not have come from `shipped`, if these runs are of the same problem: the same images, the
    same network, the same batch sizes.
    """
    variants = variants_of(results)
    if not variants:
        return None
    paper = paper_among(results)
    rows, sizes = _costed(results), sorted(int(size) for size in results.metrics["batch_size"].unique())
    others = _costed(shipped) if shipped is not None and same_problem(results, shipped) else rows.iloc[:0]
    others = others[others["batch_size"].isin(sizes)]
    rivals = {
        "adadelta": rows[rows["algorithm"] == "adadelta"],
        "sgd": rows[rows["algorithm"] == "sgd"],
        "paper": rows[rows["algorithm"] == (paper.name if paper is not None else "")],
    }
    theirs = {"adadelta": "adadelta", "sgd": "sgd", "paper": "ducb"}
    borrowed = []
    for key, name in theirs.items():
        if rivals[key].empty and not (found := others[others["algorithm"] == name]).empty:
            rivals[key] = found
            borrowed.append(key)
    if "paper" in borrowed and shipped is not None:
        paper = next((family for spec in shipped.specs for family in spec.families if family.name == "ducb"), None)
    moments, epochs = moments_of(results), _shown(results)
    mine = rows[rows["algorithm"].isin([family.name for family in variants])]
    singles = {name: part for name, part in mine.groupby("algorithm", sort=False)}  # noqa: C416  # names as keys
    singles |= {key: rivals[key] for key in ("paper", "adadelta")}
    return Comparison(
        name=results.name,
        variants=tuple(variants),
        paper=paper,
        batch_sizes=tuple(sizes),
        moments=moments,
        epochs=epochs,
        by_epoch=_by_epoch(pd.concat([mine, rivals["adadelta"], *([rivals["paper"]] if "paper" in borrowed else [])])),
        at_cost=_at_cost(singles, rivals["sgd"], moments),
        curves=_curves(singles, rivals["sgd"]),
        borrowed=tuple(borrowed),
        seeds=tuple(sorted(int(seed) for seed in mine["seed"].unique())),
        settings=_tenth_of(rivals["sgd"]),
    )


def comparison_of(results: Results) -> Comparison | None:
    """Compare the variants of a study; rivals that it lacks come from the study in the package, if that is there."""
    if not variants_of(results):
        return None
    try:
        return compare(results, load_results())
    except StudyError:
        return compare(results)


def same_problem(one: Results, other: Results) -> bool:
    """Whether two studies train the same network on the same images, so that their runs can stand side by side."""
    problems = [{(s.dataset, s.train_images, s.network) for s in results.specs} for results in (one, other)]
    return problems[0] == problems[1] and len(problems[0]) == 1


def moments_of(results: Results) -> tuple[int, ...]:
    """The costs at which all are compared: the length of a whole run, and the first epoch recorded after 1/25 of it.

    They are 20 and 500 of 500 epochs. Before epoch 5 nothing is compared.
    """
    last = results.planned_epochs
    recorded = sorted(int(epoch) for epoch in results.metrics["epoch"].unique())
    early = next((epoch for epoch in recorded if epoch >= max(5, last / 25)), last)
    return tuple(sorted({early, last}))


def _shown(results: Results) -> tuple[int, ...]:
    recorded = {int(epoch) for epoch in results.metrics["epoch"].unique()}
    return tuple(sorted(recorded.intersection({*EPOCHS, max(recorded)})))


def _costed(results: Results) -> pd.DataFrame:
    """All rows with their costs; forward passes are counted of the algorithms that say so."""
    counted = [name for name, shown in results.looks.items() if shown.kind and "passes" in shown.kind.measures]
    return with_costs(results.metrics, counted)


def _by_epoch(rows: pd.DataFrame) -> pd.DataFrame:
    rows = rows.assign(train_nll=rows["train_nll"].fillna(math.inf))
    grouped = rows.groupby(["algorithm", "batch_size", "epoch"])
    columns = {"train_nll": "train_nll", "test_error": "test_error", "trials_so_far": "trials", "cost": "cost"}
    table: pd.DataFrame = grouped[list(columns)].median().rename(columns=columns)
    return table


def _at_cost(singles: dict[str, pd.DataFrame], sgd: pd.DataFrame, moments: Sequence[int]) -> pd.DataFrame:
    parts = []
    for cost in moments:
        for who, rows in singles.items():
            if len(rows):
                parts.append(_median(reached(rows, cost).assign(who=who, cost=cost), ["who", "batch_size", "cost"]))
        if len(sgd):
            table = _settings(reached(sgd, cost), _setting_columns(sgd))
            for who, only in (("sgd tenth", False), ("sgd best", True)):
                best = pd.concat(_best(part, only=only) for _, part in table.groupby("batch_size"))
                parts.append(_median(best.assign(who=who, cost=cost), ["who", "batch_size", "cost"]))
    return pd.concat(parts).sort_index()


def _median(rows: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Medians by group; NaN as soon as one of a group is not known: the others might be the better half."""
    table: pd.DataFrame = rows.groupby(list(by))[MEASURES].agg(lambda values: values.median(skipna=False))
    return table


def _settings(rows: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """One row for each setting: the median over its seeds of what its runs have reached."""
    return rows.groupby(list(columns), dropna=False)[MEASURES].median().reset_index()


def _setting_columns(rows: pd.DataFrame) -> list[str]:
    """The columns that make a setting; what was added to the rows here is none."""
    return settings_among(rows.drop(columns=["cost", "trials_so_far"]))


def _best(table: pd.DataFrame, *, only: bool) -> pd.DataFrame:
    """The settings of the lowest objectives, a tenth of them or one; settings that were not recorded have no part."""
    known = table.dropna(subset="train_nll").sort_values("train_nll", kind="stable")
    return known.head(1 if only else tenth(len(table)))


def tenth(settings: int) -> int:
    """How many settings are a tenth, to the nearest whole number: 7 of 72. At least one."""
    return max(1, round(settings / 10))


def _tenth_of(sgd: pd.DataFrame) -> tuple[int, int]:
    """How many settings there are at a batch size, and how many are a tenth of them."""
    columns = _setting_columns(sgd)
    counts = sgd.drop_duplicates(columns)["batch_size"].value_counts()
    most = int(counts.max()) if len(counts) else 0
    return (tenth(most), most) if most else (0, 0)


def _curves(singles: dict[str, pd.DataFrame], sgd: pd.DataFrame) -> pd.DataFrame:
    """Medians by recorded epoch. The best tenth of SGD's settings is chosen anew at each epoch."""
    parts = []
    for who, rows in singles.items():
        if len(rows):
            filled = rows.assign(who=who, train_nll=rows["train_nll"].fillna(math.inf))
            parts.append(filled.groupby(["who", "batch_size", "epoch"])[["cost", "train_nll"]].median())
    columns = [name for name in _setting_columns(sgd) if name != "batch_size"]
    filled = sgd.assign(train_nll=sgd["train_nll"].fillna(math.inf))
    medians = filled.groupby(["batch_size", "epoch", *columns], dropna=False)["train_nll"].median()
    tenths = []
    for (size, epoch), values in medians.groupby(level=["batch_size", "epoch"]):
        best = values.nsmallest(tenth(len(values)))
        row = {"who": "sgd tenth", "batch_size": size, "epoch": epoch, "cost": float(epoch), "train_nll": best.median()}
        tenths.append(row | {"low": best.min(), "high": best.max()})
    if tenths:
        parts.append(pd.DataFrame(tenths).set_index(["who", "batch_size", "epoch"]))
    return pd.concat(parts).sort_index()


# --- costs ------------------------------------------------------------------------------------------------------------

PASSES = 3.0
"""Forward passes of a step without trials."""


def with_costs(metrics: pd.DataFrame, counted: Collection[str] = ()) -> pd.DataFrame:
    """The rows of runs, sorted, with two columns more, over all epochs so far.

    `cost` is in plain epochs. Of the algorithms in `counted` it is `passes / (3 · steps per epoch)`, and NaN where
    passes are not known. Of the others it follows from the trials: epochs + ∑ trials per step / 3.

    `trials_so_far` are trials per step. They were recorded for some epochs; between these they are taken to lie on a
    straight line.
    """
    rows = metrics.sort_values(["run", "epoch"], ignore_index=True)
    sums = np.full(len(rows), math.nan)
    for places in rows.groupby("run", sort=False).indices.values():
        sums[places] = _sum_of_trials(rows["epoch"].to_numpy()[places], rows["trials"].to_numpy()[places])
    passes = rows["passes"] if "passes" in rows else pd.Series(math.nan, rows.index)
    steps = rows["steps"] / rows["epoch"]
    cost = (rows["epoch"] + sums / PASSES).where(~rows["algorithm"].isin(counted), passes / (PASSES * steps))
    return rows.assign(cost=cost, trials_so_far=sums / rows["epoch"])


def _sum_of_trials(epochs: NDArray[np.int64], trials: NDArray[np.float64]) -> NDArray[np.float64]:
    """Trials per step, summed over all epochs up to each recorded one."""
    every = np.arange(1, epochs[-1] + 1)
    sums = np.cumsum(np.interp(every, epochs, trials))
    return np.asarray(sums[epochs - 1], dtype=float)


def at_cost(costs: NDArray[np.float64], values: NDArray[np.float64], cost: float) -> float:
    """The value that a run had reached at a cost; its recorded costs are in ascending order.

    Between two records the logarithm of the value is on a straight line over the cost; the value itself is, where one
    of the two is 0. NaN before the first and after the last record: nothing is guessed beyond them.
    """
    known = ~np.isnan(costs)
    costs, values = costs[known], values[known]
    if not len(costs) or cost < costs[0] * (1 - 1e-9) or cost > costs[-1] * (1 + 1e-9):
        return math.nan
    after = min(int(np.searchsorted(costs, cost * (1 - 1e-9))), len(costs) - 1)
    before = max(after - 1, 0)
    if before == after or math.isclose(costs[after], cost, rel_tol=1e-9):
        return float(values[after])
    share = (cost - costs[before]) / (costs[after] - costs[before])
    pair = values[[before, after]]
    if not np.isfinite(pair).all() or (pair <= 0).any():
        return float((1 - share) * pair[0] + share * pair[1])
    return float(np.exp((1 - share) * np.log(pair[0]) + share * np.log(pair[1])))


def reached(rows: pd.DataFrame, cost: float) -> pd.DataFrame:
    """One row per run, as `with_costs` has sorted them: `train_nll` and `test_error` at a cost, beside what names it.

    An objective that is not a number counts as infinite, so that it can be ranked; one that was not recorded so early
    or so late is NaN.
    """
    if rows.empty:
        return rows
    found = rows.drop_duplicates("run").set_index("run")
    objectives, errors = {}, {}
    for run, part in rows.groupby("run", sort=False):
        costs = part["cost"].to_numpy()
        objectives[run] = at_cost(costs, part["train_nll"].fillna(math.inf).to_numpy(), cost)
        errors[run] = at_cost(costs, part["test_error"].to_numpy(), cost)
    found["train_nll"], found["test_error"] = pd.Series(objectives), pd.Series(errors)
    return found.reset_index()

"""What the bandit chose over time, which the paper could not show."""

from __future__ import annotations

import pandas as pd

from hotswap.report.results import Results

__all__ = ["chosen", "rates_of", "trials_per_step"]


def chosen(results: Results, algorithm: str | None = None) -> dict[int, pd.DataFrame]:
    """By batch size: the share of an epoch's steps in which each rate was taken, epochs × rates, the mean over seeds.

    Arms that have the same rate, and differ in something else, count together; the columns are numbered as the rates of
    `rates_of`. What is missing to 1 are steps in which nothing moved. Of the first algorithm that chooses, if none is
    named.
    """
    algorithm = algorithm or next(iter(results.arm_values), None)
    if results.arms.empty or results.metrics.empty or algorithm not in results.arm_values:
        return {}
    rates = rates_of(results, algorithm)
    places = {arm: rates.index(rate) for arm, rate in enumerate(results.arm_values[algorithm])}
    runs = results.metrics[results.metrics["algorithm"] == algorithm].drop_duplicates("run").set_index("run")
    arms = results.arms[results.arms["run"].isin(runs.index)]
    arms = arms.assign(batch_size=runs.loc[arms["run"], "batch_size"].to_numpy(), rate=arms["arm"].map(places))
    steps = results.metrics.assign(per_epoch=results.metrics["steps"] // results.metrics["epoch"])
    per_epoch = steps.groupby("batch_size")["per_epoch"].first()
    seeds = arms.groupby(["batch_size", "epoch"])["run"].nunique()
    tables = {}
    for size, rows in arms.groupby("batch_size"):
        table = rows.pivot_table("count", "epoch", "rate", aggfunc="sum", fill_value=0)
        table = table.reindex(columns=range(len(rates)), fill_value=0)
        tables[int(size)] = table.div(seeds[size] * int(per_epoch[size]), axis=0)
    return tables


def rates_of(results: Results, algorithm: str) -> tuple[float, ...]:
    """The rates that an algorithm chose among, large to small, each once; none if it did not choose."""
    return tuple(sorted(set(results.arm_values.get(algorithm, ())), reverse=True))


def trials_per_step(metrics: pd.DataFrame, algorithm: str) -> dict[int, pd.Series]:
    """By batch size: an algorithm's trials per step, by epoch, the median over its runs."""
    rows = metrics[metrics["algorithm"] == algorithm]
    return {int(size): part.groupby("epoch")["trials"].median() for size, part in rows.groupby("batch_size")}

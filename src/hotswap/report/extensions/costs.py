"""What training has cost, and what it had reached at a given cost.

Cost is counted in **plain epochs**. A plain step is a forward and a backward pass, and the backward counts as two, so
it takes 3 passes; an epoch of N steps of SGD or AdaDelta takes 3 N, and costs 1. Trials are forward passes on top.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["PASSES", "at_cost", "reached", "with_costs"]

PASSES = 3.0
"""Forward passes of a step without trials."""

Numbers = NDArray[np.float64]


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


def _sum_of_trials(epochs: NDArray[np.int64], trials: Numbers) -> Numbers:
    """Trials per step, summed over all epochs up to each recorded one."""
    every = np.arange(1, epochs[-1] + 1)
    sums = np.cumsum(np.interp(every, epochs, trials))
    return np.asarray(sums[epochs - 1], dtype=float)


def at_cost(costs: Numbers, values: Numbers, cost: float) -> float:
    """What a run had reached at a cost, with its recorded costs in ascending order.

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

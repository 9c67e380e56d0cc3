"""Which runs of a tuned algorithm stand for all of them."""

from __future__ import annotations

import math

import pandas as pd

from hotswap.studies.rows import best_runs, best_sgd


def table(*rows: tuple[str, str, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["run", "algorithm", "epoch", "train_nll", "test_error"])


def test_the_two_sgd_runs_are_chosen_in_retrospect() -> None:
    metrics = table(
        ("sgd-1", "sgd", 5, 0.1, 0.30),
        ("sgd-2", "sgd", 5, 0.2, 0.10),
        ("sgd-1", "sgd", 1, 0.0, 0.00),  # not the last epoch
        ("ducb-1", "ducb", 5, 0.0, 0.0),
    )
    assert best_sgd(metrics) == ["sgd-1", "sgd-2"]
    assert best_runs(metrics, "ducb") == ["ducb-1"]
    assert best_sgd(metrics[3:]) == best_sgd(metrics[:0]) == []


def test_runs_that_did_not_come_to_the_last_epoch_are_not_chosen() -> None:
    assert best_sgd(table(("sgd-1", "sgd", 4, 0.1, 0.1), ("ducb-1", "ducb", 5, 0.2, 0.2))) == []


def test_a_run_that_is_best_by_both_is_chosen_once() -> None:
    assert best_sgd(table(("sgd-1", "sgd", 5, 0.1, 0.1), ("sgd-2", "sgd", 5, 0.2, 0.2))) == ["sgd-1"]


def test_nan_counts_as_worst_and_is_never_chosen() -> None:
    diverged = ("sgd-1", "sgd", 5, math.nan, 0.9)
    assert best_sgd(table(diverged, ("sgd-2", "sgd", 5, math.inf, 0.95))) == ["sgd-2", "sgd-1"]
    assert best_sgd(table(diverged)) == ["sgd-1"]  # by its test error, which is a number
    assert best_sgd(table(("sgd-1", "sgd", 5, math.nan, math.nan))) == []

"""The runs of SGD that one would have chosen in retrospect."""

from __future__ import annotations

import pandas as pd

from hotswap.studies.exchange.best_runs import best_sgd

NAN = float("nan")


def best(*rows: tuple[str, str, int, float, float]) -> list[str]:
    return best_sgd(pd.DataFrame(rows, columns=["run", "algorithm", "epoch", "train_nll", "test_error"]))


def test_the_lowest_loss_and_the_lowest_error_at_the_last_epoch() -> None:
    rows = [("a", "sgd", 5, 0.1, 0.3), ("b", "sgd", 5, 0.2, 0.1), ("c", "sgd", 5, 0.3, 0.4)]
    assert best(*rows, ("c", "sgd", 1, 0.0, 0.0), ("d", "ducb", 5, 0.0, 0.0)) == ["a", "b"]
    assert best(*rows, ("e", "sgd", 5, 0.0, 0.0)) == ["e"]


def test_what_is_not_a_number_is_worst() -> None:
    assert best(("a", "sgd", 5, NAN, 0.3), ("b", "sgd", 5, float("inf"), NAN), ("c", "sgd", 5, 9.0, 0.4)) == ["c", "a"]
    assert best(("a", "sgd", 5, NAN, NAN)) == ["a"]


def test_there_may_be_none() -> None:
    assert best() == []
    assert best(("d", "ducb", 5, 0.0, 0.0)) == []
    assert best(("a", "sgd", 4, 0.0, 0.0), ("d", "ducb", 5, 0.0, 0.0)) == []

"""Columns that come from the algorithms of a study, and the runs that stand for a tuned algorithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from hotswap.errors import SettingError
from hotswap.studies import PAPER, AdaDeltaFamily, several
from hotswap.studies.folder import Store
from hotswap.studies.rows import METRIC_COLUMNS, best_runs, best_sgd, metric_columns, metric_frame
from hotswap.studies.settings import POSITIVE
from tests.studies.test_folder import study


def spec(varied: tuple[str, ...] = (), measures: tuple[str, ...] = ()) -> Any:
    """As much of a study as its columns depend on."""
    family = SimpleNamespace(name="new", algorithm="new", varied=lambda: dict.fromkeys(varied, ""), measures=measures)
    return SimpleNamespace(families=(family,))


def test_the_papers_study_has_the_columns_of_every_study() -> None:
    assert list(metric_columns([PAPER])) == list(METRIC_COLUMNS)
    assert metric_columns([]) == METRIC_COLUMNS


def test_further_columns_follow_settings_first_each_by_name() -> None:
    columns = metric_columns([spec(("lr", "weight_decay", "beta2"), ("trials", "width")), spec(("beta2",), ("angle",))])
    assert list(columns) == [*METRIC_COLUMNS, "beta2", "weight_decay", "angle", "width"]
    assert {columns[name] for name in ("beta2", "weight_decay", "angle", "width")} == {"float64"}


@pytest.mark.parametrize(
    ("specs", "kind", "name"),
    [
        ([spec(("epoch",))], "setting", "epoch"),
        ([spec(("mean_lr",))], "setting", "mean_lr"),
        ([spec((), ("test_error",))], "measure", "test_error"),
        ([spec((), ("lr",))], "measure", "lr"),
        ([spec(("angle",)), spec((), ("angle",))], "setting", "angle"),
    ],
)
def test_a_column_means_one_thing(specs: list[Any], kind: str, name: str) -> None:
    with pytest.raises(SettingError, match=f"The algorithm new has a {kind} named '{name}', but another column"):
        metric_columns(specs)


def test_settings_and_measures_of_any_name_are_columns() -> None:
    rows = [[1, *map(float, range(6)), 10, 1.0, {"angle": 0.1 + 0.2}]]
    run = {"algorithm": "new", "batch_size": 1, "seed": 0, "settings": {"beta": 0.1}, "rows": rows, "arms": []}
    table = metric_frame({"b": run, "a": {**run, "settings": {"lr": 3.0}, "rows": [[*rows[0][:-1], {}]]}})
    assert list(table.columns) == [*METRIC_COLUMNS, "beta", "angle"]
    assert table["run"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(table["beta"], [math.nan, 0.1])
    np.testing.assert_array_equal(table["angle"], [math.nan, 0.1 + 0.2])
    np.testing.assert_array_equal(table["lr"], [3.0, math.nan])


@dataclass(frozen=True, kw_only=True)
class Clashing(AdaDeltaFamily):
    epoch: tuple[float, ...] = several(POSITIVE, (1.0, 2.0), help="a name that is taken", short="e")


def test_a_study_whose_columns_clash_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="has a setting named 'epoch', but another column"):
        Store.create(tmp_path / "study", study(families=(Clashing(name="clashing"),)), precision="fp32")
    assert not (tmp_path / "study").exists()


# The best runs in retrospect.


def last_rows(*rows: tuple[str, str, int, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["run", "algorithm", "epoch", "train_nll", "test_error"])


def test_the_two_sgd_runs_are_chosen_in_retrospect() -> None:
    metrics = last_rows(
        ("sgd-1", "sgd", 5, 0.1, 0.30),
        ("sgd-2", "sgd", 5, 0.2, 0.10),
        ("sgd-1", "sgd", 1, 0.0, 0.00),  # not the last epoch
        ("ducb-1", "ducb", 5, 0.0, 0.0),
    )
    assert best_sgd(metrics) == ["sgd-1", "sgd-2"]
    assert best_runs(metrics, "ducb") == ["ducb-1"]
    assert best_sgd(metrics[3:]) == best_sgd(metrics[:0]) == []


def test_runs_that_did_not_come_to_the_last_epoch_are_not_chosen() -> None:
    assert best_sgd(last_rows(("sgd-1", "sgd", 4, 0.1, 0.1), ("ducb-1", "ducb", 5, 0.2, 0.2))) == []


def test_a_run_that_is_best_by_both_is_chosen_once() -> None:
    assert best_sgd(last_rows(("sgd-1", "sgd", 5, 0.1, 0.1), ("sgd-2", "sgd", 5, 0.2, 0.2))) == ["sgd-1"]


def test_nan_counts_as_worst_and_is_never_chosen() -> None:
    diverged = ("sgd-1", "sgd", 5, math.nan, 0.9)
    assert best_sgd(last_rows(diverged, ("sgd-2", "sgd", 5, math.inf, 0.95))) == ["sgd-2", "sgd-1"]
    assert best_sgd(last_rows(diverged)) == ["sgd-1"]  # by its test error, which is a number
    assert best_sgd(last_rows(("sgd-1", "sgd", 5, math.nan, math.nan))) == []

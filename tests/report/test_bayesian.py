"""Bayesian search over settings that are all known, and the file that keeps searches."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.errors import StudyError
from hotswap.report import load_results
from hotswap.report.bayesian import FILE, FIRST, bayesian_search, expected_improvement, read_searches, search_on
from hotswap.report.tuning import Space, space_of
from tests.report.made_up import results, row


def bowl() -> Space:
    """A hundred settings of two hyperparameters, the best of them, 37, where both are right."""
    grid = pd.DataFrame([(a, b) for a in range(10) for b in range(10)], columns=["lr", "momentum"])
    values = np.exp(((grid["lr"] - 3) / 2) ** 2 + ((grid["momentum"] - 7) / 3) ** 2).to_numpy()
    return Space("train_nll", "sgd", "ducb", grid, values, pd.Series({64: 2.0}))


def test_expected_improvement_is_what_drawing_gives() -> None:
    drawn = np.random.default_rng(0).normal(0.3, 0.5, 400_000)
    improvement = expected_improvement(np.array([0.3]), np.array([0.5]), 0.1)
    assert improvement[0] == pytest.approx(np.maximum(0.1 - drawn, 0).mean(), rel=0.01)


def test_a_search_finds_the_bottom_of_a_bowl_with_few_trainings() -> None:
    orders = [bayesian_search(bowl(), seed) for seed in range(6)]
    for order in orders:
        assert order[-1] == 37
        assert len(set(order)) == len(order)
    assert max(map(len, orders)) < 30  # drawing at random takes 50 on average
    assert len({tuple(order[:5]) for order in orders}) == 6  # from different first settings
    assert bayesian_search(bowl(), 3) == orders[3]


def test_a_search_ends_where_its_first_settings_have_the_best() -> None:
    space = bowl()
    first = np.random.default_rng(0).permutation(100)[:FIRST]
    values = np.where(np.arange(100) == first[4], 0.5, space.values)
    assert bayesian_search(replace(space, values=values), 0) == first[:5].tolist()


def test_values_that_have_no_logarithm_do_not_stop_it() -> None:
    space = bowl()
    for values in (np.where(space.values < 1.1, 0.0, space.values), -1 / space.values, np.ones(100)):
        order = bayesian_search(replace(space, values=values), 1)
        assert values[order[-1]] == values.min()


def test_settings_are_placed_by_the_order_of_their_values() -> None:
    rows = [row("sgd", batch, lr=rate, train_nll=rate) for batch in (64, 128, 1024) for rate in (0.001, 0.1)]
    space = space_of(results([*rows, row("ducb")]).metrics, "train_nll")
    assert space is not None
    assert list(space.settings) == ["batch_size", "lr"]  # in which they differ
    assert space.points.tolist() == [[0, 0], [0, 1], [0.5, 0], [0.5, 1], [1, 0], [1, 1]]
    assert replace(space, values=space.values + 1).digest != space.digest


def test_the_shipped_searches_can_be_made_again() -> None:
    shipped = load_results()
    spaces = shipped.spaces()
    assert set(shipped.searches) == set(spaces) == {"train_nll", "test_error"}
    for measure, space in spaces.items():
        assert len(space.values) == 360
        orders = shipped.searches[measure]
        shortest = min(range(len(orders)), key=lambda seed: (len(orders[seed]) <= FIRST, len(orders[seed])))
        assert tuple(bayesian_search(space, shortest)) == orders[shortest]


class Stopped(Exception):  # noqa: N818
    pass


def test_searches_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    space = bowl()
    whole = search_on(tmp_path / "whole", {"train_nll": space}, 4, "hotswap study tuning")
    told: list[int] = []

    def stop(_measure: str, number: int) -> None:
        told.append(number)
        if number == 2:
            raise Stopped

    with pytest.raises(Stopped):
        search_on(tmp_path / "parts", {"train_nll": space}, 4, "hotswap study tuning", stop)
    assert told == [0, 1, 2]
    assert len(read_searches(tmp_path / "parts", {"train_nll": space})["train_nll"]) == 2
    told.clear()
    again = search_on(
        tmp_path / "parts", {"train_nll": space}, 4, "again", lambda _measure, number: told.append(number)
    )
    assert told == [2, 3, 4]
    assert again == whole == read_searches(tmp_path / "whole", {"train_nll": space})
    document = json.loads((tmp_path / "parts" / FILE).read_text(encoding="utf-8"))
    assert document["command"] == "again"
    assert "scikit-learn" in document["versions"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d | {"format": 2}, "is of another version of hotswap"),
        (lambda d: {"format": 1}, "cannot be read"),
        (lambda d: [d], "cannot be read"),
        (lambda d: changed(d, digest="0"), "is of other results than those beside it"),
        (lambda d: changed(d, orders=[[100, 37]]), "settings that are not there, or one twice"),
        (lambda d: changed(d, orders=[[1, 1, 37]]), "settings that are not there, or one twice"),
        (lambda d: changed(d, orders=[[37, 1]]), "does not end with the best"),
        (lambda d: changed(d, orders=[[]]), "settings that are not there"),
        (lambda d: changed(d, orders=3), "cannot be read"),
    ],
)
def test_a_damaged_file_is_refused_with_a_sentence(tmp_path: Path, change: Any, why: str) -> None:
    spaces = {"train_nll": bowl()}
    search_on(tmp_path, spaces, 1, "x")  # type: ignore[arg-type]
    path = tmp_path / FILE
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    with pytest.raises(StudyError, match=f"{why}.*hotswap study tuning .* write it anew"):
        read_searches(tmp_path, spaces)  # type: ignore[arg-type]
    path.write_text("{", encoding="utf-8")
    with pytest.raises(StudyError, match="cannot be read"):
        read_searches(tmp_path, spaces)  # type: ignore[arg-type]


def changed(document: dict[str, Any], **values: Any) -> dict[str, Any]:
    return document | {"searches": {"train_nll": document["searches"]["train_nll"] | values}}


def study_in(folder: Path, *, ducb: bool = True) -> Path:
    """An exported table of twelve settings of SGD, and of DUCB."""
    rows = [
        row("sgd", batch, lr=rate, train_nll=abs(math.log(rate / 0.1)) + batch / 1e4, test_error=rate / 10)
        for batch in (64, 128)
        for rate in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    ]
    folder.mkdir()
    results([*rows, *([row("ducb", train_nll=0.5, test_error=0.02)] if ducb else [])]).metrics.to_parquet(
        folder / "metrics.parquet", index=False
    )
    return folder


def test_the_command_makes_what_the_report_shows(tmp_path: Path) -> None:
    folder = study_in(tmp_path / "small")
    assert load_results(folder).searches == {}
    done = CliRunner().invoke(app, ["study", "tuning", str(folder), "--searches", "3"])
    assert done.exit_code == 0, done.output
    assert "3 by train_nll, 3 by test_error" in done.output
    found = load_results(folder)
    assert [len(orders) for orders in found.searches.values()] == [3, 3]
    assert not any("tuning" in sentence for sentence in found.missing)
    (folder / FILE).write_text("{", encoding="utf-8")
    broken = load_results(folder)
    assert broken.searches == {}
    assert any("no Bayesian search in the price of tuning" in sentence for sentence in broken.missing)


def test_the_command_refuses(tmp_path: Path) -> None:
    def said(folder: Path) -> str:
        done = CliRunner().invoke(app, ["study", "tuning", str(folder)])
        assert done.exit_code != 0
        return " ".join(str(done.exception or done.output).split())

    assert "is not a folder" in said(tmp_path / "nowhere")
    alone = study_in(tmp_path / "alone", ducb=False)
    assert "it has no algorithm with settings to search beside one that chooses its rate" in said(alone)
    assert list(alone.iterdir()) == [alone / "metrics.parquet"]

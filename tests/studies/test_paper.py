"""The paper's study, counted, and its printed numbers, against each other."""

from __future__ import annotations

from collections import Counter

import pytest

from hotswap.bandits import DiscountedUCB
from hotswap.networks import PAPER_HIDDEN
from hotswap.searches import Backtracking
from hotswap.studies import PAPER, DucbFamily
from hotswap.studies.paper import BEST_TEST_ERROR, COST_RATIO, MEDIAN_TEST_ERROR, TABLE_1, TABLE_2


def test_there_are_1110_runs() -> None:
    runs = PAPER.runs()
    assert Counter(run.algorithm for run in runs) == {"sgd": 1080, "adadelta": 15, "ducb": 15}
    assert len({run.id for run in runs}) == 1110
    assert Counter(run.batch_size for run in runs) == dict.fromkeys((64, 128, 256, 512, 1024), 222)
    assert Counter(run.seed for run in runs) == dict.fromkeys((0, 1, 2), 370)


def test_there_are_360_settings_of_sgd() -> None:
    settings = Counter(
        (run.batch_size, run.lr, run.lr_decay, run.momentum) for run in PAPER.runs() if run.algorithm == "sgd"
    )
    assert len(settings) == 360
    assert set(settings.values()) == {3}


def test_some_of_its_runs_by_name() -> None:
    assert {
        "sgd-b64-lr1-decay0.99-mom0-s0",
        "sgd-b1024-lr0.003-decay1-mom0.9-s2",
        "sgd-b256-lr0.03-decay0.995-mom0.7-s1",
        "adadelta-b512-s1",
        "ducb-b64-s0",
        "ducb-b1024-s2",
    } <= {run.id for run in PAPER.runs()}


def test_500_epochs_recorded_53_times() -> None:
    recorded = PAPER.recorded_epochs()
    assert recorded[:5] == (1, 2, 5, 10, 20)
    assert recorded[-2:] == (490, 500)
    assert len(recorded) == 53
    assert {200, 500} <= set(recorded)  # Figure 1
    assert {100, 300, 500} <= set(recorded)  # Tables 1 and 2


def test_it_is_the_network_and_the_bandit_of_the_other_rooms() -> None:
    assert PAPER.network.hidden == PAPER_HIDDEN
    ducb = PAPER.family("ducb")
    assert isinstance(ducb, DucbFamily)
    assert (ducb.discount, ducb.exploration) == (DiscountedUCB().discount, DiscountedUCB().exploration)
    assert (ducb.search, ducb.headroom) == ("backtracking", Backtracking().headroom)
    assert len(ducb.rates) == 33


def test_the_tables_agree_with_each_other() -> None:
    # Seconds per epoch are milliseconds per minibatch times the minibatches of an epoch: a wrong digit shows.
    assert tuple(TABLE_1) == tuple(TABLE_2) == PAPER.batch_sizes
    for size in PAPER.batch_sizes:
        for per_minibatch, per_epoch in zip(TABLE_1[size], TABLE_2[size], strict=True):
            assert per_minibatch * (50_000 / size) / 1000 == pytest.approx(per_epoch, abs=0.11)


def test_the_printed_cost_ratio_is_nearly_that_of_the_table() -> None:
    ratios = [ducb / row.sgd for row in TABLE_1.values() for ducb in row.ducb]
    assert (min(ratios), max(ratios)) == pytest.approx((1.53, 3.56), abs=0.01)
    assert COST_RATIO == (1.6, 3.6)


def test_the_printed_errors() -> None:
    assert MEDIAN_TEST_ERROR == {"ducb": 0.0185, "adadelta": 0.0197, "sgd": 0.0235}
    assert min(MEDIAN_TEST_ERROR.values()) > BEST_TEST_ERROR == 0.0163


def test_a_printed_time_by_algorithm_and_epoch() -> None:
    row = TABLE_1[64]
    assert (row.of("sgd", 0), row.of("adadelta", 0), row.of("ducb", 300)) == (11.9, 12.1, 40.2)
    assert row.of("ducb", 200) is row.of("ducb", 0) is row.of("adam", 0) is row.of("count", 0) is None

"""Which runs share an ensemble."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap.errors import SettingError
from hotswap.studies import PAPER, plan


def test_one_unit_per_algorithm_and_batch_size() -> None:
    units = plan(PAPER)
    assert [unit.id for unit in units] == [
        f"{algorithm}-b{size}" for algorithm in ("adadelta", "ducb", "sgd") for size in (64, 128, 256, 512, 1024)
    ]
    assert [len(unit.runs) for unit in units] == [3] * 10 + [216] * 5
    assert all(unit.part is None for unit in units)


def test_small_batch_sizes_come_first_however_the_study_lists_them() -> None:
    study = replace(PAPER, batch_sizes=(1024, 64), families=PAPER.families[::-1])
    assert [unit.id for unit in plan(study)] == [
        *("adadelta-b64", "adadelta-b1024", "ducb-b64", "ducb-b1024", "sgd-b64", "sgd-b1024")
    ]


def test_parts_of_72_are_one_seed_each() -> None:
    parts = [unit for unit in plan(PAPER, max_runs=72) if unit.batch_size == 64 and unit.algorithm == "sgd"]
    assert [unit.id for unit in parts] == ["sgd-b64-part1", "sgd-b64-part2", "sgd-b64-part3"]
    assert [{run.seed for run in unit.runs} for unit in parts] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    ("most", "sizes"), [(216, [216]), (215, [108, 108]), (100, [72, 72, 72]), (50, [44, 43, 43, 43, 43])]
)
def test_parts_are_few_and_alike(most: int, sizes: list[int]) -> None:
    sgd = PAPER.select(algorithms=["sgd"], batch_sizes=[64])
    assert [len(unit.runs) for unit in plan(sgd, max_runs=most)] == sizes


@given(st.none() | st.integers(1, 300), st.integers(1, 3))
@settings(max_examples=20)
def test_a_plan_holds_every_run_once(most: int | None, seeds: int) -> None:
    study = PAPER.select(batch_sizes=[64, 256], seeds=seeds)
    units = plan(study, max_runs=most)
    planned = [run for unit in units for run in unit.runs]
    assert len(planned) == len(study.runs())
    assert set(planned) == set(study.runs())
    assert len({unit.id for unit in units}) == len(units)
    for unit in units:
        assert 1 <= len(unit.runs) <= (most or 216)
        assert {(run.algorithm, run.batch_size) for run in unit.runs} == {(unit.algorithm, unit.batch_size)}
    assert units == plan(study, max_runs=most)


@pytest.mark.parametrize("most", [0, -1, 2.0, True])
def test_a_limit_that_cannot_be_meant(most: Any) -> None:
    with pytest.raises(SettingError, match="max_runs must be a whole number of at least 1, or None"):
        plan(PAPER, max_runs=most)

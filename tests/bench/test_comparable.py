"""Runs of a workload that were trained on other data, or in another precision, are not put beside each other."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from hotswap.bench.comparable import Circumstances, check_before_running, check_together, circumstances
from hotswap.bench.methods import FIRST
from hotswap.bench.running import BenchOptions
from hotswap.bench.runs import Result, Run
from hotswap.bench.store import BenchStore
from hotswap.bench.training import train
from hotswap.bench.workloads import WORKLOADS
from hotswap.bench.workloads.text import fingerprint
from hotswap.errors import StudyError
from tests.bench.helpers import made

HERE, OTHER = platform.python_version(), "3.10.0"
TEXT, CONVOLUTION, PLAIN = "recurrent_text", "fashion_convolution", "paper_network"


def trained(workload: str, seed: int, python: str = HERE, device: str = "CPU", **more: Any) -> Result:
    return made(workload, "adamw", seed, python=python, device=device, **more)


def left_of(workload: str) -> BenchOptions:
    return BenchOptions(workloads=[workload], methods=["adamw"])


def where(name: str, **origin: str) -> Circumstances:
    return circumstances(name, {"python": HERE, "device": "CPU", **origin})


def test_what_makes_a_difference() -> None:
    texts = {name for name in WORKLOADS if not where(name).agree_with([where(name, python=OTHER)])}
    assert texts == {"recurrent_text", "transformer_text"}
    precise = {name for name in WORKLOADS if not where(name).agree_with([where(name, device="H200")])}
    assert precise == {"fashion_convolution", "transformer_text"}
    assert str(where("somebody's own", device="H200")) == ""


def test_one_version_may_have_several_texts() -> None:
    one, other, unknown = where(TEXT, text="abc"), where(TEXT, text="def"), where(TEXT)
    assert not one.agree_with([other])
    assert one.agree_with([unknown])
    assert unknown.agree_with([other])
    assert one.agree_with([one, other, unknown])
    assert not one.agree_with([other, unknown])  # what is not known about one of them does not make it the same
    assert not one.agree_with([])
    assert str(one) == f"on the sources of Python {HERE} (text abc)"
    result = train(Run(TEXT, "adamw", FIRST, 0, "smoke"))
    assert result.origin["text"] == fingerprint()
    assert "text" not in train(Run("logistic_regression", "adamw", FIRST, 0, "smoke")).origin


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            trained(TEXT, 0, OTHER),
            rf"on the sources of Python {OTHER}; here .* Python {HERE} \(text .*\), and could",
        ),
        (
            trained(CONVOLUTION, 0, device="H200"),
            "trained in bfloat16 on a GPU; here .* in float32 on a CPU, and could",
        ),
    ],
)
def test_runs_are_not_added_to_others_that_they_cannot_be_compared_with(
    tmp_path: Path, there: Result, said: str
) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    store.record([there])
    with pytest.raises(StudyError, match=said):
        check_before_running(store, left_of(there.run.workload), "cpu")
    check_before_running(store, left_of(PLAIN), "cpu")


@pytest.mark.parametrize(
    "there",
    [
        trained(TEXT, 0),
        trained(TEXT, 0, device="H200"),  # float32 there, too
        trained(CONVOLUTION, 0, OTHER),
        trained(PLAIN, 0, OTHER, "H200"),
        trained(TEXT, 0, OTHER, state="missing"),  # nothing was trained
        made(TEXT, "adamw"),  # does not say
    ],
)
def test_others_are(tmp_path: Path, there: Result) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    store.record([there])
    check_before_running(store, left_of(there.run.workload), "cpu")


def test_nothing_is_refused_where_nothing_is_left(tmp_path: Path) -> None:
    store = BenchStore.create(tmp_path, "smoke")
    store.record([trained(TEXT, seed, OTHER) for seed in range(5)])
    check_before_running(store, left_of(TEXT), "cpu")


def test_runs_that_cannot_be_compared_are_not_put_together() -> None:
    check_together([trained(TEXT, 0), trained(TEXT, 1), trained(PLAIN, 0), trained(PLAIN, 1, OTHER)], "here")
    with pytest.raises(StudyError, match=f"here has runs of {TEXT} that cannot be compared: .* Move the files"):
        check_together([trained(TEXT, 0), trained(TEXT, 1, OTHER)], "here")


def test_two_texts_are_not_put_together_by_runs_that_do_not_say_theirs() -> None:
    silent, one, other = trained(TEXT, 0), trained(TEXT, 1, text="abc"), trained(TEXT, 2, text="def")
    check_together([silent, one], "here")
    with pytest.raises(StudyError, match=r"\(text abc\).* others .*\(text def\)"):
        check_together([silent, one, other], "here")

"""Which runs there are follows from rules, and from results."""

from __future__ import annotations

import pytest

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.plan import CHOOSING, chosen, chosen_settings, fails, reporting_seeds, wanted
from hotswap.bench.runs import Result, State
from hotswap.bench.workloads import WORKLOADS
from tests.bench.helpers import by_id, made

SMALL, LARGE = "paper_network", "fashion_convolution"


def search(workload: str, best: int = 7, state: State = "finished") -> list[Result]:
    return [
        made(workload, REFERENCE, CHOOSING, 0.1 if number == best else 0.2, configuration=name, state=state)
        for number, name in enumerate(SEARCHED)
    ]


def reported(workload: str, end: float = 0.1) -> list[Result]:
    return [made(workload, REFERENCE, seed, end, configuration=SEARCHED[7]) for seed in reporting_seeds(workload)]


def test_seeds_for_choosing_are_not_reported() -> None:
    for workload in WORKLOADS:
        assert CHOOSING not in reporting_seeds(workload)
        assert len(reporting_seeds(workload)) == (3 if WORKLOADS[workload].wants_gpu else 5)


def test_what_is_known_from_the_start() -> None:
    runs = wanted([SMALL, LARGE], list(METHODS), "smoke", {})
    assert len(runs) == len(set(runs)) == 2 * len(SEARCHED) + (5 + 3) * (len(METHODS) - 1)
    assert all(run.seed == CHOOSING for run in runs if run.method == REFERENCE)
    assert {run.configuration for run in runs if run.method != REFERENCE} == {FIRST}
    assert {run.size for run in runs} == {"smoke"}


def test_the_reference_is_chosen_when_the_search_is_complete() -> None:
    found = search(SMALL)
    assert chosen(SMALL, by_id(*found[:-1])) is None
    assert chosen(SMALL, by_id(*found)) == SEARCHED[7]
    assert chosen_settings(SMALL, by_id(*found)) == METHODS[REFERENCE]().configuration(SEARCHED[7]).settings
    assert chosen(LARGE, by_id(*found)) is None
    found[7] = made(SMALL, REFERENCE, CHOOSING, configuration=SEARCHED[7], state="diverged")
    assert chosen(SMALL, by_id(*found)) == SEARCHED[0]  # the first of equals
    found[7] = made(SMALL, REFERENCE, CHOOSING, configuration=SEARCHED[7], state="killed")
    assert chosen(SMALL, by_id(*found)) is None  # it is to be trained again
    assert chosen(SMALL, by_id(*search(SMALL, state="failed"))) is None


def test_then_it_is_trained_from_the_seeds_that_are_reported() -> None:
    runs = wanted([SMALL], [REFERENCE], "smoke", by_id(*search(SMALL)))
    assert [(run.configuration, run.seed) for run in runs if run.seed != CHOOSING] == [
        (SEARCHED[7], seed) for seed in range(5)
    ]


@pytest.mark.parametrize(("end", "second"), [(0.149, False), (0.151, True)])
def test_a_method_that_is_far_behind_gets_another_try(end: float, second: bool) -> None:
    own = [made(SMALL, "prodigy", seed, end) for seed in range(5)]
    known = by_id(*search(SMALL), *reported(SMALL), *own)
    assert fails(SMALL, "prodigy", known) == second
    runs = wanted([SMALL], ["prodigy"], "smoke", known)
    assert [run.seed for run in runs if run.configuration == SECOND] == (list(range(5)) if second else [])
    assert not fails(SMALL, "prodigy", by_id(*own))  # as long as there is nothing to compare with
    assert not fails(SMALL, "prodigy", by_id(*search(SMALL), *reported(SMALL)[:4], *own))  # or not all of it


def test_it_gets_one_as_soon_as_no_other_seed_can_change_that() -> None:
    own = [made(SMALL, "prodigy", seed, 0.2 if seed < 3 else 0.1) for seed in range(5)]
    known = [*search(SMALL), *reported(SMALL)]
    assert fails(SMALL, "prodigy", by_id(*known, *own))  # three of five are the median's
    assert fails(SMALL, "prodigy", by_id(*known, *own[:3]))
    assert not fails(SMALL, "prodigy", by_id(*known, *own[:2]))
    assert not fails(SMALL, "prodigy", by_id(*known, *own[1:]))


def test_a_method_that_diverges_from_one_seed_gets_another_try() -> None:
    ends: list[State] = ["finished", "finished", "finished", "finished", "diverged"]
    own = [made(SMALL, "prodigy", seed, state=state) for seed, state in enumerate(ends)]
    assert fails(SMALL, "prodigy", by_id(*own))
    assert fails(SMALL, "prodigy", by_id(own[-1]))
    assert not fails(SMALL, "prodigy", by_id(*own[:-1]))
    assert not wanted([SMALL], ["adamw"], "smoke", by_id(*own))[5:]  # which has no other configuration


def test_advice_is_for_the_kind_of_workload_that_it_speaks_of() -> None:
    for workload, due in ((SMALL, 0), ("gaussian_regression", 5)):
        own = [made(workload, "hotswap_sgd", seed, state="failed") for seed in range(5)]
        runs = wanted([workload], ["hotswap_sgd"], "smoke", by_id(*own))
        assert sum(run.configuration == SECOND for run in runs) == due

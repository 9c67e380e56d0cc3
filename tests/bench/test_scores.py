"""Scores of tables that were made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hotswap.bench.methods import SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.plan import CHOOSING
from hotswap.bench.runs import PERCENTS, Result
from hotswap.bench.scores import Score, curve, in_hindsight, overall, profile, scores, too_easy
from tests.bench.helpers import by_id, made

W, V = "paper_network", "autoencoder"


def falling(*, at_10: float, at_30: float, end: float) -> list[float]:
    """From 1, in three strides."""
    return [1.0 if percent < 10 else at_10 if percent < 30 else at_30 if percent < 100 else end for percent in PERCENTS]


def reference(workload: str, end: float = 0.1, seeds: int = 5) -> list[Result]:
    """The search, whose best is its fourth, and the runs of that."""
    search = [
        made(workload, REFERENCE, CHOOSING, 0.05 if number == 3 else 0.9, configuration=name)
        for number, name in enumerate(SEARCHED)
    ]
    return search + [made(workload, REFERENCE, seed, end, configuration=SEARCHED[3]) for seed in range(seeds)]


def one(found: list[Score], method: str, workload: str = W, configuration: str = "default") -> Score:
    (score,) = [s for s in found if (s.method, s.workload, s.configuration) == (method, workload, configuration)]
    return score


def test_medians_over_seeds_over_that_of_the_reference() -> None:
    ends = (0.2, 0.11, 0.12, 0.1, 0.3)
    runs = [made(W, "sgd", seed, curve=falling(at_10=0.5, at_30=0.25, end=end)) for seed, end in enumerate(ends)]
    score = one(scores(by_id(*reference(W), *runs)), "sgd")
    assert (score.seeds, score.unfinished) == (5, 0)
    assert (score.median, score.low, score.high) == (0.12, 0.1, 0.3)
    assert score.ratio == pytest.approx(1.2)
    assert score.early == {10: pytest.approx(5), 30: pytest.approx(2.5)}
    assert score.time == math.inf  # the median run
    assert score.seconds == pytest.approx(10)
    assert score.missed


def test_the_reference_is_compared_with_itself_and_chosen_by_other_seeds() -> None:
    found = scores(by_id(*reference(W, end=0.25)))
    assert [(score.method, score.configuration) for score in found] == [(REFERENCE, SEARCHED[3])]
    assert (found[0].ratio, found[0].time, found[0].missed) == (1.0, 1.0, False)


def test_time_to_the_level_of_the_reference() -> None:
    runs = [
        made(W, "sgd", seed, curve=falling(at_10=at_10, at_30=0.09, end=0.2))
        for seed, at_10 in enumerate((0.05, 0.5, 0.5, 0.5, 0.05))
    ]
    score = one(scores(by_id(*reference(W), *runs)), "sgd")
    assert score.time == pytest.approx(0.3)
    assert score.ratio == pytest.approx(2)
    assert not score.missed  # it was there, and lost it again
    assert score.nearest == pytest.approx(0.9)


def test_a_run_without_an_end_counts_as_the_untrained_network() -> None:
    states = ("diverged", "failed", "diverged", "finished", "finished")
    runs = [made(W, "sgd", seed, 0.1, state=state) for seed, state in enumerate(states)]
    score = one(scores(by_id(*reference(W), *runs)), "sgd")
    assert (score.unfinished, score.median, score.ratio, score.low) == (3, 1.0, pytest.approx(10), 0.1)
    assert score.time == math.inf
    bare = [replace(run, points=()) for run in runs[:3]]  # not even measured once: as the others began
    assert one(scores(by_id(*reference(W), *bare)), "sgd").ratio == pytest.approx(10)


def test_a_run_that_made_the_network_worse_is_counted() -> None:
    runs = [
        made(W, "sgd", seed, curve=falling(at_10=0.5, at_30=0.5, end=end)) for seed, end in enumerate((3, 2, 1, 0.1))
    ]
    score = one(scores(by_id(*reference(W), *runs)), "sgd")
    assert (score.unfinished, score.spoiled, score.marked) == (0, 2, True)
    assert score.high == 1.0
    assert not one(scores(by_id(*reference(W), *runs[2:])), "sgd").marked


def test_the_best_single_configuration_is_known_afterwards() -> None:
    first, second = reference(W), reference(V)
    assert in_hindsight(by_id(*first)) is None  # one workload tells nothing
    # Its 0.05 is of the seed of the search, and the 0.1 that it is taken over of the seeds that are reported.
    assert in_hindsight(by_id(*first, *second)) == (SEARCHED[3], pytest.approx(0.5), pytest.approx(0.5))
    other = [  # here the fifth is the best, and the fourth diverges
        replace(run, state="diverged")
        if run.run.configuration == SEARCHED[3]
        else made(V, REFERENCE, CHOOSING, 0.07, configuration=SEARCHED[4])
        if run.run.configuration == SEARCHED[4]
        else run
        for run in second
        if run.run.seed == CHOOSING
    ]
    other += [made(V, REFERENCE, seed, 0.1, configuration=SEARCHED[4]) for seed in range(5)]
    name, mean, worst = in_hindsight(by_id(*first, *other)) or ("", 0.0, 0.0)
    assert name == SEARCHED[4]  # the fourth is not one for all workloads
    assert (mean, worst) == (pytest.approx(math.sqrt(9 * 0.7)), pytest.approx(9))


def test_a_moment_without_finite_measures_is_no_end() -> None:
    lost = [1.0, 0.5, math.nan, *[0.5] * (len(PERCENTS) - 4), 0.2]
    score = one(scores(by_id(*reference(W), *(made(W, "sgd", seed, curve=lost) for seed in range(5)))), "sgd")
    assert (score.unfinished, score.median) == (0, 0.2)
    assert curve([made(W, "sgd", curve=lost)])[2] == (1.0, 1.0, 1.0)


def test_what_was_not_trained_has_no_score() -> None:
    states = ("missing", "killed", "damaged", "outdated", "finished")
    runs = [made(W, "sgd", seed, state=state) for seed, state in enumerate(states)]
    found = scores(by_id(*reference(W), *runs, made(W, "adamw", state="missing")))
    assert one(found, "sgd").seeds == 1
    assert "adamw" not in {score.method for score in found}


def test_without_a_reference_there_are_measures_and_no_scores() -> None:
    (score,) = scores(by_id(made(W, "sgd", end=0.3)))
    assert score.median == pytest.approx(0.3)
    assert math.isnan(score.ratio)
    assert math.isnan(score.time)
    assert not score.missed
    assert overall([score]) == []
    assert profile([score], [1.0]) == {}
    assert scores({}) == []


def test_over_all_workloads() -> None:
    runs = [
        *reference(W),
        *reference(V),
        *(made(W, "sgd", seed, 0.2) for seed in range(5)),
        *(made(V, "sgd", seed, 0.05) for seed in range(5)),
        *(made(W, "adamw", seed, 0.1) for seed in range(5)),
        *(made(W, "salsa", seed, state="failed") for seed in range(5)),
        *(made(V, "salsa", seed, 0.1) for seed in range(5)),
        *(made(W, "salsa", seed, 0.01, configuration=SECOND) for seed in range(5)),
    ]
    rows = {row.method: row for row in overall(scores(by_id(*runs)))}
    assert set(list(rows)[:2]) == {"sgd", REFERENCE}  # equally good
    assert list(rows)[2:] == ["salsa", "adamw"]
    sgd, salsa = rows["sgd"], rows["salsa"]
    assert (sgd.workloads, sgd.mean) == (2, pytest.approx(1))
    assert (sgd.worst, sgd.where, sgd.misses, sgd.failures) == (pytest.approx(2), W, (W,), ())
    assert (salsa.mean, salsa.failures, salsa.misses) == (pytest.approx(10**0.5), (W,), (W,))  # of its first
    assert salsa.second == pytest.approx(0.1**0.5)  # its second has a score of 0.1 on one of them
    assert sgd.second == sgd.mean
    worse = [made(V, "salsa", seed, 0.4, configuration=SECOND) for seed in range(5)]
    again = {row.method: row for row in overall(scores(by_id(*runs, *worse)))}
    assert again["salsa"].second == pytest.approx(salsa.second)  # the better try counts
    assert rows["adamw"].workloads == 1


def test_the_profile_is_the_share_of_workloads_within_a_factor() -> None:
    runs = [
        *reference(W),
        *reference(V),
        *(made(W, "sgd", seed, 0.2) for seed in range(5)),
        *(made(V, "sgd", seed, 0.05) for seed in range(5)),
        *(made(W, "adamw", seed, 0.1) for seed in range(5)),
    ]
    found = profile(scores(by_id(*runs)), [0.4, 0.5, 1.001, 1.9, 2.001])
    assert found["sgd"] == [0, 0.5, 0.5, 0.5, 1]
    assert "adamw" not in found  # it was not trained on the other one
    assert found[REFERENCE] == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(("at_10", "easy"), [(0.09, [W]), (0.11, [])])
def test_a_workload_that_is_too_easy(at_10: float, easy: list[str]) -> None:
    runs = [made(W, "adamw", seed, curve=falling(at_10=at_10, at_30=0.09, end=0.08)) for seed in range(5)]
    assert too_easy(scores(by_id(*reference(W), *runs))) == easy
    runs = [made(W, "sgd", seed, curve=falling(at_10=at_10, at_30=0.09, end=0.08)) for seed in range(5)]
    assert too_easy(scores(by_id(*reference(W), *runs))) == []


def test_no_error_at_all_is_infinitely_good_and_no_reference() -> None:
    perfect = [made(W, "sgd", seed, 0.0) for seed in range(5)]
    found = scores(by_id(*reference(W), *reference(V), *perfect, *(made(V, "sgd", seed, 0.2) for seed in range(5))))
    assert one(found, "sgd").ratio == 0
    assert {row.method: row.mean for row in overall(found)}["sgd"] == 0
    found = scores(by_id(*reference(W, end=0.0), *perfect))
    assert math.isnan(one(found, "sgd").ratio)
    assert overall(found) == []

"""The verdict and the findings, whichever way the numbers fall."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hotswap.report.extensions import Comparison, compare, confirmed, findings, prize
from hotswap.report.extensions.tables import (
    epoch_grid,
    error_grid,
    in_groups,
    markdown_text,
    method,
    objective_grid,
    prize_grid,
    variant_grid,
)
from hotswap.report.extensions.words import factor, factors, listed, sizes
from hotswap.report.results import Results
from tests.report.made_up import results
from tests.report.variants import made, study, variant_rows

EVERYONE = "the paper's algorithm, AdaDelta and the median of the best tenth of SGD's settings"
WHERE = "at every batch size, at the cost of 20 and of 500 plain epochs"


def compared(results: Results) -> Comparison:
    found = compare(results)
    assert found is not None
    return found


def test_who_is_ahead_of_all_wins() -> None:
    """The paper's has 2 over the epoch, AdaDelta 8, the best of SGD 4."""
    verdict = prize(compared(made({"ucb1": 1.0, "exp3s": 1.9, "headroom": 3.0})))
    assert [standing.variant for standing in verdict.winners] == ["ucb1", "exp3s"]
    standing = verdict.of("ucb1")
    assert standing is not None
    assert len(standing.margins) == 12  # three rivals, two batch sizes, two costs
    assert standing.leads == 12
    assert standing.worst.lead == pytest.approx(2)
    assert standing.worst.rival.key == "paper"
    assert verdict.sentences() == [
        f"Ahead of {EVERYONE} {WHERE}: `ucb1` and `exp3s`.",
        "`ucb1` is ahead by a factor of 2.0 or more; by least of the paper's algorithm, at batch 64 at the cost of 20 "
        "plain epochs.",
        "`exp3s` is ahead by a factor of 1.1 or more; by least of the paper's algorithm, at batch 64 at the cost of 20 "
        "plain epochs.",
    ]


def test_behind_at_one_place_is_not_ahead_of_all() -> None:
    verdict = prize(compared(made({"ucb1": {64: 0.1, 128: 2.5}, "exp3s": 9.0})))
    assert verdict.winners == ()
    assert verdict.nearest is not None
    assert verdict.nearest.variant == "ucb1"
    assert verdict.sentences() == [
        f"No variant is ahead of {EVERYONE} {WHERE}.",
        "Nearest is `ucb1`, ahead in 10 of 12 comparisons: where it is worst, at batch 128 at the cost of 20 plain "
        "epochs, its objective is 1.2 times that of the paper's algorithm.",
    ]


def test_as_good_is_not_ahead() -> None:
    verdict = prize(compared(made({"ucb1": 2.0})))
    assert verdict.winners == ()
    assert "its objective is as good as that of the paper's algorithm" in verdict.sentences()[1]


def test_who_diverged_is_last() -> None:
    verdict = prize(compared(made({"no_search": math.nan, "ucb1": 99.0})))
    assert [standing.variant for standing in verdict.standings] == ["ucb1", "no_search"]
    alone = prize(compared(made({"no_search": math.nan})))
    assert "its objective is no number" in alone.sentences()[1]


def test_a_variant_that_is_not_done_is_not_judged() -> None:
    study = made({"ucb1": 1.0, "exp3s": 3.0})
    metrics = study.metrics
    half = replace(study, metrics=metrics[(metrics["algorithm"] != "ucb1") | (metrics["epoch"] < 500)])
    verdict = prize(compared(half))
    assert verdict.winners == ()
    assert verdict.nearest is not None
    assert verdict.nearest.variant == "exp3s"
    assert verdict.sentences()[-1] == "Of 1 of 2 variants not all of these costs were recorded."
    neither = replace(
        study, metrics=metrics[metrics["algorithm"].isin(["paper", "sgd", "adadelta"]) | (metrics["epoch"] < 500)]
    )
    assert prize(compared(neither)).sentences() == [
        f"No variant was trained for long enough to be compared with {EVERYONE} {WHERE}."
    ]


def test_without_rivals_there_is_no_verdict() -> None:
    rows = [*variant_rows("paper", 2.0), *variant_rows("ucb1", 1.0)]
    verdict = prize(compared(results(rows, specs=(study("paper", "ucb1"),))))
    assert verdict.winners == ()
    assert verdict.sentences() == [
        f"Whether a variant is ahead of {EVERYONE} cannot be said: there are no runs of AdaDelta and the median of the "
        "best tenth of SGD's settings."
    ]


def test_the_paper_is_not_a_candidate() -> None:
    assert [standing.variant for standing in prize(compared(made({"ucb1": 1.0}))).standings] == ["ucb1"]


@pytest.mark.parametrize(
    ("again", "begins"),
    [
        ({"ucb1": 1.5}, "It is confirmed: `ucb1` is ahead by a factor of 1.3 or more;"),
        ({"ucb1": 3.0}, "It is not confirmed for `ucb1`, ahead in 8 of 12 comparisons:"),
        ({"exp3s": 1.0}, "`ucb1` was not trained to the end again"),
    ],
)
def test_what_was_chosen_is_confirmed_or_not(again: dict[str, float | dict[int, float]], begins: str) -> None:
    first, second = (prize(compared(made(objectives))) for objectives in ({"ucb1": 1.0}, again))
    (sentence,) = confirmed(first, second)
    assert sentence.startswith(begins)
    nothing = prize(compared(made({"ucb1": 3.0})))
    assert confirmed(nothing, second) == second.sentences()


# --- findings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "says"),
    [
        (1.0, "lower than the paper's at both batch sizes (by a factor of 2.0)"),
        ({64: 1.0, 128: 0.02}, "lower than the paper's at both batch sizes (by factors of 2.0 to 100)"),
        (2.1, "within 10% of the paper's at both batch sizes"),
        (5.0, "higher than the paper's at both batch sizes (by a factor of 2.5)"),
        (
            {64: 1.0, 128: 3.0},
            "lower than the paper's at batch 64 (by a factor of 2.0) and higher at batch 128 (by a factor of 1.5)",
        ),
        ({64: 2.0, 128: 3.0}, "within 10% of the paper's at batch 64 and higher at batch 128 (by a factor of 1.5)"),
        (
            {64: 1.0, 128: 2.0},
            "lower than the paper's at batch 64 (by a factor of 2.0) and within 10% of it at batch 128",
        ),
        (
            {64: 1.0, 128: math.nan},
            "lower than the paper's at batch 64 (by a factor of 2.0) and not finite at batch 128",
        ),
        (math.nan, "not finite at both batch sizes"),
        (0.0, "lower than the paper's at both batch sizes (down to 0)"),
    ],
)
def test_a_finding_whichever_way(objective: float | dict[int, float], says: str) -> None:
    (found,) = findings(compared(made({"ucb1": objective})))
    assert found.variant == "ucb1"
    assert found.group == "bandits"
    assert (
        f"With the bandit `UCB1()`, the objective at the cost of 500 plain epochs is {says}; at that" in found.sentence
    )
    assert f"; at that of 20 it is {says};" in found.sentence
    assert found.sentence.endswith("an epoch costs 1.00 plain ones (the paper's: 0.00 and 1.00).")


def test_a_finding_as_a_whole() -> None:
    rows = []
    for size in (64, 128, 256):
        rows += variant_rows("paper", 2.0, size=size, trials=3.0, test_error=0.0186)
        rows += variant_rows("every_5", 2.0, size=size, test_error=0.0172)
    (found,) = findings(compared(results(rows, specs=(study("paper", "every_5"),))))
    assert found.sentence == (
        "With a search in one of 5 steps, the objective at the cost of 500 plain epochs is lower than the paper's at "
        "all 3 batch sizes (by a factor of 3.6); at that of 20 it is lower than the paper's at all 3 batch sizes (by a "
        "factor of 2.0); its median test error at 500 is 1.72% (the paper's: 1.86%); with 0.00 trials per step an "
        "epoch costs 1.00 plain ones (the paper's: 3.00 and 2.00)."
    )


def test_a_finding_of_what_was_not_recorded() -> None:
    rows = [*variant_rows("paper", 2.0), *(r for r in variant_rows("ucb1", 1.0) if r["epoch"] < 20)]
    (found,) = findings(compared(results(rows, specs=(study("paper", "ucb1"),))))
    assert "is not recorded; at that of 20 it is not recorded" in found.sentence
    assert "with 0.00 trials per step an epoch costs 1.00 plain ones" in found.sentence  # as far as it was
    (alone,) = findings(compared(results(variant_rows("ucb1", 1.0), specs=(study("ucb1"),))))
    assert "plain epochs is not recorded; at" in alone.sentence
    assert alone.sentence.endswith("an epoch costs 1.00 plain ones.")


@pytest.mark.parametrize(
    ("value", "text"), [(1.04, "1.0"), (9.94, "9.9"), (24.4, "24"), (1310.0, "1,300"), (99.7, "100"), (4.2e7, "4e+07")]
)
def test_factors_have_two_digits(value: float, text: str) -> None:
    assert factor(value) == text


def test_words() -> None:
    assert factors([2.0, 2.04]) == "a factor of 2.0"
    assert factors([24.0, 2.0]) == "factors of 2.0 to 24"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert sizes([64], [64]) == "batch 64"
    assert sizes([64, 128], [64, 128, 256]) == "batch 64 and 128"
    assert sizes([64, 128, 256], [64, 128, 256]) == "all 3 batch sizes"


# --- tables -----------------------------------------------------------------------------------------------------------


def test_tables() -> None:
    comparison = compared(made({"ucb1": {64: 1.0, 128: 3.0}, "no_search": math.nan}))
    objective = objective_grid(comparison, 500)
    assert objective.headings == ("", "batch 64", "batch 128")
    rows = {row[0]: row[1:] for row in objective.rows}
    assert rows["the paper's algorithm"] == ("4.0e-03", "4.0e-03")
    assert rows["AdaDelta"] == ("1.6e-02 (4.00)", "1.6e-02 (4.00)")
    assert rows["`ucb1`"] == ("**2.0e-03 (0.50)**", "6.0e-03 (1.50)")  # bold: ahead of all three
    assert rows["`no_search`"] == ("diverged", "diverged")
    assert {row[0]: row[1] for row in error_grid(comparison, 20).rows}["`ucb1`"] == "2.00%"
    summary = variant_grid(comparison)
    assert summary.headings == ("variant", "with", "objective at 20", "objective at 500", "trials per step",
                                "cost of an epoch")  # fmt: skip
    rows = {row[0]: row[1:] for row in summary.rows}
    assert rows["`paper`"] == ("the paper's algorithm", "1.00", "1.00", "0.00", "1.00")
    assert rows["AdaDelta"] == ("", "4.00", "4.00", "0.00", "1.00")
    assert rows["`ucb1`"] == ("the bandit `UCB1()`", "0.87", "0.87", "0.00", "1.00")  # √(0.5 · 1.5)
    assert rows["`no_search`"][1:3] == ("diverged", "diverged")
    ranked = prize_grid(prize(comparison)).rows
    assert ranked[0][:3] == ("`ucb1`", "10 of 12", "0.67")
    assert ranked[0][3].startswith("the paper's algorithm, batch 128, cost ")
    epochs = epoch_grid(comparison, in_groups(comparison)["bandits"], "bandits")
    assert epochs.headings[2:-2] == ("epoch 5", "epoch 20", "epoch 50", "epoch 500")
    assert epochs.rows[0] == ("`ucb1`", "64", "2.0e-01, 2.00%", "5.0e-02, 2.00%", "2.0e-02, 2.00%", "2.0e-03, 2.00%",
                              "0.00", "1.00")  # fmt: skip


def test_all_of_it_as_markdown() -> None:
    text = markdown_text(compared(made({"ucb1": 1.0, "every_5": 3.0})))
    assert text.startswith("# Beyond the paper: the study extensions\n\nAhead of the paper's algorithm")
    for part in (
        "## Findings",
        "**Other bandits**",
        "- `ucb1`: With the bandit",
        "- `every_5`: With a search in one of",
    ):
        assert part in text
    assert "| `paper` | the paper's algorithm |" in text
    assert "nan" not in text


def test_the_method_names_what_was_compared() -> None:
    text = method(compared(made({"ucb1": 1.0})))
    assert "Medians over seed 0." in text
    assert "The best tenth of SGD's settings are 1 of 10" in text
    assert "paper's study" not in text

"""The verdict on variants and the tables about them, whichever way the numbers fall."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hotswap.report.beyond import (
    EVERYONE,
    Outcome,
    beyond_text,
    epoch_grid,
    error_grid,
    in_groups,
    method,
    objective_grid,
    prize,
    prize_grid,
    variant_grid,
    variants_answer,
)
from tests.report.made_up import results
from tests.report.variants import compared, made, study, variant_rows


def test_who_is_ahead_of_all_wins() -> None:
    """The paper's has 2 over the epoch, AdaDelta 8, the best of SGD 4."""
    comparison = compared(made({"ucb1": 1.0, "exp3s": 1.9, "headroom": 3.0}))
    verdict = prize(comparison)
    every, some = variants_answer(comparison).groups
    assert [case[:2] for case in every.cases] == [("ucb1", "12 of 12"), ("exp3s", "12 of 12")]
    assert (some.sign, some.cases[0].text) == ("part", "headroom")
    assert [standing.variant for standing in verdict.winners] == ["ucb1", "exp3s"]
    standing = verdict.of("ucb1")
    assert standing is not None
    assert (len(standing.margins), standing.leads) == (12, 12)  # three rivals, two batch sizes, two costs
    assert (standing.worst.lead, standing.worst.rival.key) == (pytest.approx(2), "paper")
    assert verdict.sentence() == (
        f"Ahead of {EVERYONE} at every batch size, at the costs of 20 and 500 plain epochs: `ucb1`, `exp3s`."
    )


@pytest.mark.parametrize("objective", [{64: 0.1, 128: 2.5}, 2.0])  # behind at one place; as good, but not ahead
def test_who_is_not_ahead_everywhere_does_not_win(objective: float | dict[int, float]) -> None:
    verdict = prize(compared(made({"ucb1": objective, "exp3s": 9.0})))
    assert verdict.winners == ()
    assert verdict.outcome is Outcome.NOBODY
    assert verdict.sentence().endswith("The nearest is `ucb1`.")


def test_who_diverged_or_is_not_done_is_last() -> None:
    comparison = compared(made({"no_search": math.nan, "ucb1": 99.0}))
    assert [standing.variant for standing in prize(comparison).standings] == ["ucb1", "no_search"]
    (group,) = variants_answer(comparison).groups
    assert (group.sign, [case.text for case in group.cases]) == ("bad", ["ucb1", "no search"])
    some = made({"ucb1": 1.0, "exp3s": 3.0})
    metrics = some.metrics
    half = replace(some, metrics=metrics[(metrics["algorithm"] != "ucb1") | (metrics["epoch"] < 500)])
    verdict = prize(compared(half))
    assert [standing.variant for standing in verdict.standings] == ["exp3s", "ucb1"]
    early = metrics["algorithm"].isin(["paper", "sgd", "adadelta"]) | (metrics["epoch"] < 500)
    assert prize(compared(replace(some, metrics=metrics[early]))).outcome is Outcome.SHORT


def test_without_rivals_there_is_no_verdict() -> None:
    rows = [*variant_rows("paper", 2.0), *variant_rows("ucb1", 1.0)]
    verdict = prize(compared(results(rows, specs=(study("paper", "ucb1"),))))
    assert verdict.winners == ()
    assert verdict.outcome is Outcome.LACKING
    assert "no runs of AdaDelta, the median of the best tenth" in verdict.sentence()


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
    assert summary.headings == ("variant", "with", "objective at 20", "objective at 500", "test error at 500",
                                "trials per step", "cost of an epoch")  # fmt: skip
    rows = {row[0]: row[1:] for row in summary.rows}
    assert rows["`paper`"] == ("the paper's algorithm", "1.00", "1.00", "2.00%", "0.00", "1.00")
    assert rows["AdaDelta"] == ("", "4.00", "4.00", "2.00%", "0.00", "1.00")
    assert rows["`ucb1`"] == ("`bandit=UCB1()`", "0.87", "0.87", "2.00%", "0.00", "1.00")  # √(0.5 · 1.5)
    assert rows["`no_search`"][1:3] == ("diverged", "diverged")
    ranked = prize_grid(prize(comparison)).rows
    assert ranked[0][:3] == ("`ucb1`", "10 of 12", "0.67")
    assert ranked[0][3].startswith("the paper's algorithm, batch 128, cost ")
    epochs = epoch_grid(comparison, in_groups(comparison)["bandits"], "bandits")
    assert epochs.headings[2:-2] == ("epoch 5", "epoch 20", "epoch 50", "epoch 500")
    assert epochs.rows[0] == ("`ucb1`", "64", "2.0e-01, 2.00%", "5.0e-02, 2.00%", "2.0e-02, 2.00%", "2.0e-03, 2.00%",
                              "0.00", "1.00")  # fmt: skip


def test_what_was_not_recorded_is_a_dash() -> None:
    rows = [*variant_rows("paper", 2.0), *(r for r in variant_rows("ucb1", 1.0) if r["epoch"] < 20)]
    comparison = compared(results(rows, specs=(study("paper", "ucb1"),)))
    cells = {row[0]: row[2:] for row in variant_grid(comparison).rows}["`ucb1`"]
    assert cells == ("–", "–", "–", "0.00", "1.00")  # effort as far as it was trained
    text = beyond_text(comparison)
    assert "nan" not in text


def test_all_of_it_as_markdown() -> None:
    text = beyond_text(compared(made({"ucb1": 1.0, "every_5": 3.0})))
    assert text.startswith("# Beyond the paper: the study extensions\n\nAhead of the paper's algorithm")
    assert "| `paper` | the paper's algorithm |" in text
    assert "| `every_5` | `search_every=5` |" in text


def test_the_method_names_what_was_compared() -> None:
    text = method(compared(made({"ucb1": 1.0})))
    assert "Medians over seeds 0." in text
    assert "The best tenth of SGD's settings are 1 of 10" in text
    assert "paper's study" not in text

"""Tables 1 and 2: ours, the paper's, the ratio."""

from __future__ import annotations

from hotswap.report.claims import Claim, claims_grid
from hotswap.report.tables import latex, markdown, timing_grid
from tests.report.algorithms import Greedy, Nadam, registered
from tests.report.made_up import results, timed

TIMING = [
    timed("sgd", 64, 0, 0.1),
    timed("adadelta", 64, 0, 0.2),
    timed("ducb", 64, 100, 0.25),
    timed("ducb", 64, 500, 0.3),
    timed("sgd", 32, 0, 0.1),
]


def test_the_papers_numbers_stand_in_brackets_and_the_ratio_at_the_end() -> None:
    grid = timing_grid(results(timing=TIMING).timing, "milliseconds")
    assert grid.headings == (
        "batch size", "SGD", "AdaDelta", "DUCB, epoch 100", "DUCB, epoch 500",
        "DUCB, epoch 100 / SGD", "DUCB, epoch 500 / SGD",
    )  # fmt: skip
    assert grid.rows[1] == (
        "64", "0.100 (11.9)", "0.200 (12.1)", "0.250 (30.1)", "0.300 (42.4)", "2.50 (2.53)", "3.00 (3.56)",
    )  # fmt: skip
    assert grid.rows[0] == ("32", "0.100", "–", "–", "–", "–", "–")  # neither timed nor in the paper


def test_further_algorithms_have_columns_of_their_own() -> None:
    further = [timed("nadam", 64, 0, 0.15), timed("greedy", 64, 500, 0.4), timed("stranger", 64, 0, 0.5)]
    with registered(nadam=Nadam, greedy=Greedy):
        grid = timing_grid(results(timing=[*TIMING, *further]).timing, "milliseconds")
    assert grid.headings == (
        "batch size", "SGD", "AdaDelta", "NAdam", "stranger", "DUCB, epoch 100", "DUCB, epoch 500", "Greedy, epoch 500",
        "DUCB, epoch 100 / SGD", "DUCB, epoch 500 / SGD", "Greedy, epoch 500 / SGD",
    )  # fmt: skip
    assert grid.rows[1][3:5] == ("0.150", "0.500")  # the paper has none of these
    assert grid.rows[1][-1] == "4.00"


def test_table_2_has_seconds() -> None:
    grid = timing_grid(results(timing=TIMING).timing, "seconds")
    assert grid.rows[1][:2] == ("64", "0.0781 (9.3)")
    assert grid.rows[1][-1] == "3.00 (3.57)"  # 33.2 / 9.3


def test_both_languages() -> None:
    grid = timing_grid(results(timing=TIMING).timing, "milliseconds")
    lines = markdown(grid).splitlines()
    assert lines[0].startswith("**Table 1. Milliseconds per minibatch")
    assert {line.count("|") for line in lines[2:]} == {8}
    text = latex(grid)
    assert text.count(r"\\") == 3
    assert r"\begin{tabular}{rrrrrrr}" in text
    assert "–" not in text


def test_claims_escape_what_markdown_would_take_for_a_column() -> None:
    claim = Claim(1, "a | b", "p", "o", "the rule", None)
    text = markdown(claims_grid([claim]))
    assert r"| 1 | a \| b | p | o | the rule | — |" in text

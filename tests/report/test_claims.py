"""Each verdict comes out each way, on made-up data."""

from __future__ import annotations

from typing import Any

import pytest

from hotswap.report.claims import claims_answer, judge
from tests.report.made_up import results, row, timed

YES, PARTLY, NO = "reproduced", "partly reproduced", "not reproduced"


def claim(number: int, rows: list[dict[str, Any]] | None = None, **more: Any) -> tuple[str | None, str]:
    found = judge(results(rows, **more))[number - 1]
    assert found.number == number
    return found.verdict, found.ours


@pytest.mark.parametrize(
    ("ends", "verdict", "says"),
    [
        ((0.01, 0.02), YES, "2 of 2 end below 0.05"),
        ((0.01, 0.07), PARTLY, "1 of 2 end below 0.05, the lowest of the other 2 (1 of 1 at 64, 0 of 1 at 128)"),
        ((0.06, 0.07), NO, "0 of 2 end below 0.05"),
        ((0.05, 0.05), NO, "0 of 2"),  # as low is not lower
    ],
)
def test_1_lowest_objective(ends: tuple[float, float], verdict: str, says: str) -> None:
    rows = [row("ducb", batch, train_nll=end) for batch, end in zip((64, 128), ends, strict=True)]
    rows += [row("sgd", train_nll=0.05), row("adadelta", train_nll=0.3)]
    rows += [row("ducb", 64, epoch=10, train_nll=9.0), row("sgd", epoch=10, train_nll=1e-9)]  # only the end counts
    found, text = claim(1, rows)
    assert found == verdict
    assert says in text


def test_1_a_run_that_diverged_is_not_the_lowest() -> None:
    rows = [row("ducb", train_nll=0.01), row("sgd", train_nll=float("nan")), row("sgd", seed=1, train_nll=0.5)]
    assert claim(1, rows)[0] == YES
    rows = [row("ducb", train_nll=float("nan")), row("sgd", train_nll=0.5)]
    assert claim(1, rows)[0] == NO


@pytest.mark.parametrize(
    ("errors", "verdict"),
    [
        ((0.0173, 0.0181, 0.0217), YES),
        ((0.0173, 0.0174, 0.0217), PARTLY),  # the order, but not half of the distance
        ((0.0173, 0.0230, 0.0217), PARTLY),  # lowest, but the others change places
        ((0.0190, 0.0181, 0.0217), NO),
    ],
)
def test_2_median_errors(errors: tuple[float, float, float], verdict: str) -> None:
    rows = [row(name, test_error=error) for name, error in zip(("ducb", "adadelta", "sgd"), errors, strict=True)]
    found, text = claim(2, rows)
    assert found == verdict
    assert text == " / ".join(f"{error:.2%}" for error in errors)


def test_2_is_about_the_papers_algorithms_only() -> None:
    rows = [row(name, test_error=error) for name, error in (("ducb", 0.0173), ("adadelta", 0.0181), ("sgd", 0.0217))]
    assert claim(2, [*rows, row("nadam", test_error=float("nan"))])[0] == YES


@pytest.mark.parametrize(
    ("ducb", "sgd", "verdict", "says"),
    [
        (0.016, 0.017, YES, "1.60%, DUCB (batch 64, seed 0)"),
        (0.016, 0.016, PARTLY, "1.60%, DUCB and SGD"),
        (0.017, 0.016, NO, "1.60%, SGD (batch 64, seed 0); the best DUCB run has 1.70%"),
    ],
)
def test_3_best_error(ducb: float, sgd: float, verdict: str, says: str) -> None:
    found, text = claim(3, [row("ducb", test_error=ducb), row("sgd", test_error=sgd)])
    assert found == verdict
    assert says in text


@pytest.mark.parametrize(
    ("ends", "verdict", "says"),
    [
        ((0.25, 0.05), YES, "2 of 2 do"),
        ((0.25, 0.95), PARTLY, "1 of 2 do; SGD settings that are better: 20% at 64, 90% at 128"),
        ((0.85, 0.95), NO, "0 of 2 do"),
    ],
)
def test_4_adadelta_ranks(ends: tuple[float, float], verdict: str, says: str) -> None:
    rows = [row("sgd", lr=0.1 * n, train_nll=0.1 * n) for n in range(1, 11)]
    rows += [row("adadelta", batch, train_nll=end) for batch, end in zip((64, 128), ends, strict=True)]
    found, text = claim(4, rows)
    assert found == verdict
    assert says in text


def curve(algorithm: str, batch: int, error: float, speed: float) -> list[dict[str, Any]]:
    """A single run whose test error falls to `error`, recorded every ten epochs."""
    return [
        row(algorithm, batch, epoch=epoch, seconds=speed * epoch, test_error=error + 1 / epoch**2)
        for epoch in range(10, 501, 10)
    ]


@pytest.mark.parametrize(
    ("others", "verdict", "better"),
    [([0.03] * 8, YES, 0), ([0.01] * 2 + [0.03] * 6, PARTLY, 2), ([0.01] * 3 + [0.03] * 5, NO, 3)],
)
def test_5_best_by_the_clock(others: list[float], verdict: str, better: int) -> None:
    curves = curve("ducb", 64, 0.02, speed=2.0)
    for number, error in enumerate(others):
        curves += curve("sgd", 64 * 2 ** (number + 1), error, speed=1.0)
    found, text = claim(5, curves=curves)
    assert found == verdict
    assert f"{better} of 8 others are better" in text
    assert "after 84.5 s" in text  # 33,000 of 781 minibatches an epoch, two seconds each


def test_5_needs_a_run_that_is_long_enough() -> None:
    short = [r for r in curve("ducb", 64, 0.02, 1.0) if r["epoch"] <= 40] + curve("sgd", 128, 0.02, 1.0)
    assert claim(5, curves=short) == (
        None,
        "no verdict: no single run of DUCB at batch 64 that is long enough, beside others",
    )


@pytest.mark.parametrize(
    ("late", "verdict", "says"),
    [
        ((0.5, 0.5), YES, "2 of 2"),
        ((0.5, 2.0), PARTLY, "1 of 2 batch sizes: 1 → 0.5 at 64, 1 → 2 at 128"),
        ((2.0, 1.0), NO, "0 of 2"),
    ],
)
def test_6_falling_rate(late: tuple[float, float], verdict: str, says: str) -> None:
    rows = []
    for batch, rate in zip((64, 128), late, strict=True):
        rows += [row("ducb", batch, epoch=epoch, mean_lr=1.0) for epoch in (60, 80, 100)]
        rows += [row("ducb", batch, epoch=epoch, mean_lr=9.0) for epoch in (10, 50, 200, 450)]  # in neither window
        rows += [row("ducb", batch, epoch=epoch, mean_lr=rate) for epoch in (460, 500)]
    found, text = claim(6, rows)
    assert found == verdict
    assert says in text


@pytest.mark.parametrize(("norm", "verdict"), [(0.01, YES), (0.15, PARTLY), (0.9, NO)])
def test_7_small_gradients(norm: float, verdict: str) -> None:
    rows = [row("ducb", grad_norm=norm), row("adadelta", grad_norm=0.2)]
    rows += [row("sgd", lr=1.0, train_nll=0.001, grad_norm=0.1), row("sgd", lr=0.3, test_error=0.01, grad_norm=0.3)]
    rows += [row("sgd", lr=0.1, grad_norm=1e-9)]  # the best in nothing
    found, text = claim(7, rows)
    assert found == verdict
    assert "SGD of the best objective 0.1, SGD of the best test error 0.3" in text


@pytest.mark.parametrize(
    ("ducb", "verdict"),
    [
        ({64: (2.0, 3.5), 1024: (2.0, 2.2)}, YES),
        ({64: (2.0, 9.0), 1024: (2.0, 2.2)}, PARTLY),  # dearer than the paper's
        ({64: (2.0, 3.0), 256: (2.0, 2.04), 1024: (2.0, 2.01)}, PARTLY),  # grows at one batch size only
        ({64: (9.0, 8.0), 1024: (9.0, 8.5)}, NO),
    ],
)
def test_8_cost(ducb: dict[int, tuple[float, float]], verdict: str) -> None:
    timing = [timed("sgd", batch, 0, 10.0) for batch in ducb]
    for batch, times in ducb.items():
        timing += [timed("ducb", batch, epoch, 10 * time) for epoch, time in zip((100, 500), times, strict=True)]
    assert claim(8, timing=timing)[0] == verdict


def test_without_data_there_is_no_verdict_but_a_sentence() -> None:
    for found in judge(results()):
        assert found.verdict is None
        assert found.ours.startswith("no verdict: no ")
    assert claim(1, [row("ducb")]) == (None, "no verdict: no runs of SGD")


def test_the_papers_own_ratio_is_computed() -> None:
    assert judge(results())[7].paper == "1.6–3.6× (its Table 1: 1.53–3.56)"


def test_the_answer_counts_and_lists_verdicts() -> None:
    rows = [row("ducb", train_nll=0.01, test_error=0.03), row("sgd", train_nll=0.5), row("adadelta", train_nll=0.3)]
    claims = judge(results(rows))
    answer = claims_answer(claims)
    found = {group.outcome: [case.text for case in group.cases] for group in answer.groups}
    assert found == {
        verdict or "without a verdict yet": [claim.claim for claim in claims if claim.verdict == verdict]
        for verdict in (YES, PARTLY, NO, None)
    }
    assert answer.sentence() == (
        "Of 8 claims: 2 reproduced, 0 partly reproduced, 3 not reproduced, 3 without a verdict yet."
    )
    assert [claim.verdict for claim in claims if claim.number in {1, 4}] == [YES, YES]

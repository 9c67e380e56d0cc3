"""Variants beside their rivals: medians by epoch and at equal cost, and where the rivals come from."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from hotswap.report import Results, load_results
from hotswap.report.beyond import method
from hotswap.report.comparison import compare, moments_of, over, same_problem, tenth
from hotswap.report.variants import GROUPS, changes, group_of, paper_among, variants_of
from hotswap.searches import FirstDecrease
from hotswap.studies import EXTENSIONS, PAPER, AdaDeltaFamily, DucbFamily, HotSwapFamily
from hotswap.studies import extensions as groups
from tests.report.made_up import results, row
from tests.report.variants import SIZES, compared, made, study, variant_rows


@pytest.fixture(scope="module")
def shipped() -> Results:
    return load_results()


def as_variant(shipped: Results, name: str = "paper") -> Results:
    """The paper's runs of DUCB, as if they were of the study of extensions: with passes, which follow from trials."""
    rows = shipped.metrics[shipped.metrics["algorithm"] == "ducb"].copy()
    rows["run"] = rows["run"].str.replace("ducb", name)
    ducb = compare(replace(shipped, specs=(study("ucb1", sizes=PAPER.batch_sizes),)), None)
    assert ducb is None  # there are no runs of it
    rows["algorithm"] = name
    rows = rows.sort_values(["run", "epoch"])
    per = rows["steps"] / rows["epoch"]
    steps = rows.groupby("run")["epoch"].diff().fillna(rows["epoch"])
    rows["passes"] = 3 * rows["steps"] + (rows["trials"] * steps * per).groupby(rows["run"]).cumsum()
    spec = replace(EXTENSIONS, families=(EXTENSIONS.family(name),))
    return Results("extensions", (spec,), rows, shipped.arms.iloc[:0], shipped.timing.iloc[:0], shipped.curves.iloc[:0])


def test_values_at_equal_cost() -> None:
    """A run with three trials a step spends two plain epochs in each of its own, so it is read at half the epoch."""
    rows = [*variant_rows("paper", 2.0), *variant_rows("ucb1", 2.0, trials=3.0)]
    found = compared(results(rows, specs=(study("paper", "ucb1", sizes=(64,)),)))
    assert found.moments == (20, 500)
    assert found.value("paper", 64, 20) == pytest.approx(2 / 20)
    assert found.value("ucb1", 64, 20) == pytest.approx(2 / 10)
    assert found.ratio("ucb1", 64, 20) == pytest.approx(2)
    share = (500 - 100) / (1000 - 100)  # its cost is 100 after 50 epochs and 1000 after 500
    assert found.value("ucb1", 64, 500) == pytest.approx((2 / 50) ** (1 - share) * (2 / 500) ** share)
    assert found.trials("ucb1", 64) == pytest.approx(3)
    assert found.relative_cost("ucb1", 64) == pytest.approx(2)
    assert found.relative_cost("paper", 64) == pytest.approx(1)
    assert found.epochs == (5, 20, 50, 500)
    assert found.by_epoch.loc[("ucb1", 64, 20), "train_nll"] == pytest.approx(2 / 20)
    assert found.by_epoch.loc[("ucb1", 64, 20), "cost"] == pytest.approx(40)


def test_runs_that_are_not_finished_are_named_and_judged_as_far_as_they_are() -> None:
    done = variant_rows("paper", 2.0)
    rows = [*done, *(r for r in variant_rows("ucb1", 2.0, trials=3.0) if r["epoch"] <= 50)]
    found = compared(results(rows, specs=(study("paper", "ucb1", sizes=(64,)),)))
    assert found.unfinished == {("ucb1", 64): 50}
    assert found.trials("ucb1", 64) == pytest.approx(3)
    assert found.relative_cost("ucb1", 64) == pytest.approx(2)
    assert method(found).endswith("Not trained to the end yet: `ucb1` at batch 64 (epoch 50).")
    whole = compared(results(done, specs=(study("paper", sizes=(64,)),)))
    assert "Not trained" not in method(whole)


def test_the_median_over_seeds_is_of_what_each_has_reached() -> None:
    rows = [r | {"seed": s, "run": f"{r['run']}{s}", "train_nll": s * r["train_nll"]}
            for s in (1, 2, 5) for r in variant_rows("paper", 1.0)]  # fmt: skip
    found = compared(results(rows, specs=(study("paper", sizes=(64,)),)))
    assert found.value("paper", 64, 500) == pytest.approx(2 / 500)
    assert found.seeds == (1, 2, 5)


def test_a_seed_that_is_not_done_leaves_the_median_open() -> None:
    rows = variant_rows("paper", 1.0)
    rows += [r | {"seed": 1, "run": "second"} for r in rows if r["epoch"] <= 50]
    found = compared(results(rows, specs=(study("paper", sizes=(64,)),)))
    assert found.value("paper", 64, 20) == pytest.approx(1 / 20)
    assert math.isnan(found.value("paper", 64, 500))


def test_the_best_tenth_of_sgd() -> None:
    """Of ten settings one is a tenth; of twenty two, whose median lies between them."""
    found = compared(made({"ucb1": 1.0}, adadelta=8.0, sgd=4.0))
    assert found.settings == (1, 10)
    assert found.value("sgd tenth", 64, 20) == found.value("sgd best", 64, 20) == pytest.approx(4 / 20)
    assert found.value("adadelta", 128, 500) == pytest.approx(8 / 500)
    twice = made({"ucb1": 1.0})
    sgd = twice.metrics[twice.metrics["algorithm"] == "sgd"]
    more = sgd.assign(lr=sgd["lr"] + 1, run=sgd["run"] + "x", train_nll=1.5 * sgd["train_nll"])
    found = compared(replace(twice, metrics=pd.concat([twice.metrics, more], ignore_index=True)))
    assert found.settings == (2, 20)
    assert found.value("sgd tenth", 64, 20) == pytest.approx((4 + 6) / 2 / 20)
    assert found.value("sgd best", 64, 20) == pytest.approx(4 / 20)
    band = found.curves.loc[("sgd tenth", 64, 20)]
    assert (band["low"], band["high"]) == (pytest.approx(4 / 20), pytest.approx(6 / 20))


@pytest.mark.parametrize(("settings", "best"), [(72, 7), (6, 1), (1, 1), (20, 2), (360, 36)])
def test_how_many_are_a_tenth(settings: int, best: int) -> None:
    assert tenth(settings) == best


def test_the_best_settings_are_chosen_at_that_very_cost() -> None:
    """One setting is best early and another late."""
    study = made({"ucb1": 1.0})
    metrics = study.metrics.copy()
    first = (metrics["algorithm"] == "sgd") & (metrics["lr"] == 0.01)
    metrics.loc[first & (metrics["epoch"] == 500), "train_nll"] = 9.0
    found = compared(replace(study, metrics=metrics))
    assert found.value("sgd tenth", 64, 20) == pytest.approx(4 / 20)
    assert found.value("sgd tenth", 64, 500) == pytest.approx(8 / 500)


def test_rivals_of_the_papers_study_are_taken_for_the_same_problem(shipped: Results) -> None:
    mine = as_variant(shipped)
    found = compared(mine, shipped)
    assert found.borrowed == ("adadelta", "sgd")
    assert found.settings == (7, 72)
    assert found.batch_sizes == PAPER.batch_sizes
    last = shipped.metrics[(shipped.metrics["epoch"] == 500) & (shipped.metrics["batch_size"] == 64)]
    adadelta = last[last["algorithm"] == "adadelta"]
    assert found.value("adadelta", 64, 500) == pytest.approx(adadelta["train_nll"].median())
    sgd = last[last["algorithm"] == "sgd"].groupby(["lr", "lr_decay", "momentum"])["train_nll"].median()
    assert found.value("sgd tenth", 64, 500) == pytest.approx(sgd.nsmallest(7).median())
    assert found.value("sgd best", 64, 500) == pytest.approx(sgd.min())
    assert found.value("paper", 64, 500) > last[last["algorithm"] == "ducb"]["train_nll"].median()  # it has trials
    other = replace(mine, specs=(replace(mine.specs[0], dataset="fashion_mnist"),))
    assert not same_problem(other, shipped)
    alone = compared(other, shipped)
    assert alone.borrowed == ()
    assert [rival.key for rival in alone.present] == ["paper"]


def test_the_papers_own_runs_stand_in_for_the_paper(shipped: Results) -> None:
    """A study of one variant, without the paper's algorithm: that is DUCB of the shipped results, at its own cost."""
    found = compared(as_variant(shipped, "ucb1"), shipped)
    assert found.borrowed == ("adadelta", "sgd", "paper")
    assert found.paper == PAPER.family("ducb")
    for size in PAPER.batch_sizes:
        assert found.ratio("ucb1", size, 500) == pytest.approx(1, rel=0.1)  # the same runs, their trials summed roughly


def test_a_study_without_variants_is_not_compared(shipped: Results) -> None:
    assert compare(shipped, shipped) is None
    assert variants_of(results()) == []


@pytest.mark.parametrize(
    ("epochs", "recorded", "expected"),
    [(500, (1, 2, 5, 10, 20, 500), (20, 500)), (10, (1, 2, 5, 10), (5, 10)), (5, (1, 2, 5), (5,)), (2, (1, 2), (2,))],
)
def test_moments(epochs: int, recorded: tuple[int, ...], expected: tuple[int, ...]) -> None:
    made = results([row("paper", epoch=e) for e in recorded], specs=(study("paper", epochs=epochs),))
    assert moments_of(made) == expected


@pytest.mark.parametrize(
    ("mine", "its", "expected"),
    [(1.0, 2.0, 0.5), (0.0, 0.0, 1.0), (1.0, 0.0, math.inf), (math.inf, 1.0, math.inf), (1.0, math.inf, 0.0)],
)
def test_ratios_at_the_edges(mine: float, its: float, expected: float) -> None:
    assert over(mine, its) == expected
    assert math.isnan(over(math.nan, its))
    assert math.isnan(over(mine, math.nan))


# --- what a family changes --------------------------------------------------------------------------------------------


def test_every_extension_is_told_apart_and_is_where_the_study_has_it() -> None:
    paper = EXTENSIONS.families[0]
    others = [family for family in EXTENSIONS.families[1:] if isinstance(family, HotSwapFamily)]
    assert len({changes(family, paper) for family in others}) == len(others) == len(EXTENSIONS.families) - 1
    expected = {"bandits": groups.BANDITS[1:], "paces": groups.PACES, "searches": groups.SEARCHES,
                "bases": groups.BASES, "judges": groups.JUDGES, "several": groups.SEVERAL}  # fmt: skip
    for group, families in expected.items():
        assert {group_of(family, paper) for family in families} == {group}
    assert set(expected) | {"rest"} == set(GROUPS)


@pytest.mark.parametrize(
    ("family", "words", "group"),
    [
        (HotSwapFamily(name="x"), "nothing", "rest"),
        (HotSwapFamily(name="x", high=1.0, count=7, low=1e-6), "`high=1.0`, `count=7`", "rest"),
        (HotSwapFamily(name="x", momentum=(0.9,)), "`momentum=0.9`", "bases"),
        (HotSwapFamily(name="x", weight_decay=(1e-4,)), "`weight_decay=0.0001`", "several"),
        (HotSwapFamily(name="x", search_when="risen"), "`search_when='risen'`", "paces"),
        (HotSwapFamily(name="x", search=FirstDecrease()), "`search=FirstDecrease()`", "searches"),
        (HotSwapFamily(name="x", guard=3.0), "`guard=3.0`", "searches"),
    ],
)  # fmt: skip
def test_what_a_family_of_ones_own_changes(family: HotSwapFamily, words: str, group: str) -> None:
    assert changes(family) == words
    assert group_of(family) == group


def test_changes_are_told_against_the_studys_own_paper() -> None:
    paper = HotSwapFamily(name="paper", count=9)
    assert changes(HotSwapFamily(name="x", count=9, search_every=2), paper) == "`search_every=2`"


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ((HotSwapFamily(name="a", count=9), HotSwapFamily(name="paper", count=9)), "paper"),
        ((HotSwapFamily(name="a", count=9), HotSwapFamily(name="plain")), "plain"),
        ((HotSwapFamily(name="a", count=9), DucbFamily()), "ducb"),
        ((HotSwapFamily(name="a", count=9), AdaDeltaFamily()), None),
    ],
)
def test_who_is_the_papers_algorithm(families: tuple[HotSwapFamily, ...], expected: str | None) -> None:
    spec = replace(EXTENSIONS, families=families)
    made = results([row(family.name, size) for family in families for size in SIZES], specs=(spec,))
    found = paper_among(made)
    assert (found and found.name) == expected

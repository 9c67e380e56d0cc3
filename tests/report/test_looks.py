"""Labels and looks: an algorithm's own, a family's name, and what an unknown algorithm gets."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from hotswap.report.looks import Looks
from hotswap.report.summaries import label, settings, settings_among
from tests.report.algorithms import Greedy, Nadam, further_rows, registered
from tests.report.made_up import results, row


@pytest.fixture
def known() -> Iterator[None]:
    with registered(nadam=Nadam, greedy=Greedy):
        yield


def test_the_papers_algorithms_in_the_order_of_drawing() -> None:
    looks = Looks(["ducb", "sgd", "adadelta"])
    assert list(looks) == ["sgd", "adadelta", "ducb"]
    assert [looks.label_of(name) for name in looks] == ["SGD", "AdaDelta", "DUCB"]
    assert [shown.chooses for shown in looks.values()] == [False, False, True]
    assert [shown.many for shown in looks.values()] == [True, False, False]
    assert looks.top() == ("ducb",)


@pytest.mark.usefixtures("known")
def test_a_registered_algorithm_speaks_for_itself() -> None:
    looks = Looks(["sgd", "nadam", "greedy"])
    assert looks["nadam"].label == "NAdam"
    assert looks["nadam"].look == Nadam.look
    assert looks["greedy"].chooses
    assert not looks["nadam"].chooses
    assert looks.top() == ("greedy",)


@pytest.mark.usefixtures("known")
def test_families_of_one_algorithm_are_told_apart() -> None:
    looks = Looks(["nadam", "slow", "greedy"], [Nadam(name="slow"), Nadam(), Greedy()])
    assert looks["slow"].label == "slow"
    assert looks["nadam"].look == Nadam.look  # the name of the algorithm has the first right to its look
    assert looks["slow"].look.colour not in {look.look.colour for name, look in looks.items() if name != "slow"}
    assert looks["slow"].describe({"lr": 0.1, "decay1": 0.9}) == "lr 0.1, decay1 0.9"


def test_thirty_unknown_algorithms_look_different() -> None:
    looks = Looks(["sgd", "adadelta", "ducb", *(f"mine{n}" for n in range(27))])
    shown = [(look.look.colour, look.look.marker) for look in looks.values()]
    assert len(set(shown)) == len(shown) == 30
    first = Looks(["sgd", "adadelta", "ducb", *(f"mine{n}" for n in range(7))])
    assert len({look.look.colour for look in first.values()}) == 10


def test_an_unknown_algorithm_has_its_name_and_marks_that_fit_its_number() -> None:
    looks = Looks(["few", "hundreds"], settings={"few": 5, "hundreds": 300}, choosing=["few"])
    assert looks.label_of("few") == "few"
    assert looks["few"].chooses
    assert not looks["few"].many
    assert looks["hundreds"].many
    assert looks.label_of("never heard of") == "never heard of"


def test_a_setting_in_words() -> None:
    known = pd.Series(row("sgd", lr=0.1, lr_decay=0.99, momentum=0.9))
    assert label(known) == "SGD, batch 64, rate 0.1 × 0.99 per epoch, momentum 0.9"
    assert label(pd.Series(row("sgd", 128))) == "SGD, batch 128, rate 0.1, momentum 0"
    assert label(pd.Series(row("ducb"))) == "DUCB, batch 64"
    stranger = pd.Series(row("stranger", lr=0.5, lanes=7.0, width=3.0))
    assert label(stranger) == "stranger, batch 64, lr 0.5"
    assert label(stranger, columns=["lr", "width"]) == "stranger, batch 64, lr 0.5, width 3"


@pytest.mark.parametrize("registered_too", [True, False])
def test_settings_are_told_from_measures(registered_too: bool) -> None:
    """By what the algorithm says, or by the numbers: a setting is the same at all epochs and for all seeds."""
    metrics = results(further_rows()).metrics
    with registered(**({"nadam": Nadam} if registered_too else {})):
        assert settings_among(metrics) == ["algorithm", "batch_size", "lr", "lr_decay", "momentum", "decay1"]
        table = settings(metrics, 500)
    assert table["algorithm"].value_counts().to_dict() == {"nadam": 8, "greedy": 2}
    assert (table["seeds"] == 2).all()


def test_a_table_without_further_columns_has_the_papers_settings() -> None:
    columns = ["algorithm", "batch_size", "lr", "lr_decay", "momentum"]
    assert settings_among(results([row("sgd")]).metrics) == columns == settings_among(results().metrics)

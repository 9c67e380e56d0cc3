"""Studies as data: their runs, ids, parts, fingerprints, units and round trips."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotswap import Armijo, Backtracking, DiscountedUCB, RelativeReduction
from hotswap.arms import log_grid
from hotswap.errors import SettingError
from hotswap.studies import (
    ALGORITHMS,
    PAPER,
    STUDIES,
    AdaDeltaFamily,
    AdamFamily,
    ConvolutionalSpec,
    DucbFamily,
    HotSwapFamily,
    NetworkSpec,
    RunSpec,
    SgdFamily,
    StudySpec,
    VsgdFamily,
    one,
    plan,
)
from hotswap.studies.settings import whole, yes_or_no

SGD = SgdFamily(lr=(1.0, 0.1), lr_decay=(0.99, 1.0), momentum=(0.0, 0.5, 0.9))
SMALL = StudySpec(
    name="small",
    dataset="digits",
    train_images=100,
    network=NetworkSpec(hidden=(8,), unit="tanh"),
    families=(SGD, AdaDeltaFamily(eps=1e-7), DucbFamily(count=5)),
    batch_sizes=(16, 32),
    seeds=(3, 5),
    epochs=12,
)


# Runs and their ids


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (
            RunSpec(algorithm="sgd", batch_size=64, seed=0, lr=0.1, lr_decay=0.99, momentum=0.9),
            "sgd-b64-lr0.1-decay0.99-mom0.9-s0",
        ),
        (
            RunSpec(algorithm="sgd", batch_size=1024, seed=2, lr=1.0, lr_decay=1.0, momentum=0.0),
            "sgd-b1024-lr1-decay1-mom0-s2",
        ),
        (
            RunSpec(algorithm="sgd", batch_size=128, seed=1, lr=1e-5, lr_decay=0.995, momentum=-0.0),
            "sgd-b128-lr1e-05-decay0.995-mom0-s1",
        ),
        (RunSpec(algorithm="ducb", batch_size=64, seed=0), "ducb-b64-s0"),
        (RunSpec(algorithm="adadelta", batch_size=512, seed=2), "adadelta-b512-s2"),
    ],
)
def test_ids_never_change(run: RunSpec, expected: str) -> None:
    assert run.id == expected


def test_an_id_does_not_tell_one_from_one_point_zero() -> None:
    whole = RunSpec(algorithm="sgd", batch_size=64, seed=0, lr=1, lr_decay=1, momentum=0)
    decimal = RunSpec(algorithm="sgd", batch_size=64, seed=0, lr=1.0, lr_decay=1.0, momentum=0.0)
    assert whole.id == decimal.id
    assert type(whole.lr) is float


def test_runs_go_by_family_batch_size_seed_and_setting() -> None:
    runs = SMALL.runs()
    assert len(runs) == 2 * 2 * (12 + 1 + 1)
    assert [run.id for run in runs[:4]] == [
        "sgd-b16-lr1-decay0.99-mom0-s3",
        "sgd-b16-lr1-decay0.99-mom0.5-s3",
        "sgd-b16-lr1-decay0.99-mom0.9-s3",
        "sgd-b16-lr1-decay1-mom0-s3",
    ]
    assert runs[12].id == "sgd-b16-lr1-decay0.99-mom0-s5"
    assert [run.id for run in runs[-4:]] == ["ducb-b16-s3", "ducb-b16-s5", "ducb-b32-s3", "ducb-b32-s5"]


def test_close_rates_keep_their_own_ids() -> None:
    close = replace(SMALL, families=(replace(SGD, lr=(0.1, 0.10000000000000002)),))
    assert len({run.id for run in close.runs()}) == len(close.runs())


# Families


def test_families_know_their_algorithm() -> None:
    assert [family.algorithm for family in SMALL.families] == ["sgd", "adadelta", "ducb"]
    assert SMALL.algorithms == ("sgd", "adadelta", "ducb")
    assert tuple(ALGORITHMS) == ("sgd", "adadelta", "ducb", "hotswap", "adam", "vsgd")
    assert SMALL.family("adadelta") == AdaDeltaFamily(eps=1e-7)
    with pytest.raises(SettingError, match=r"family\('adam'\).*choose from sgd, adadelta, ducb\."):
        SMALL.family("adam")


def test_the_rates_of_ducb() -> None:
    assert DucbFamily().rates == log_grid(1e2, 1e-6, 33)
    assert DucbFamily(high=1, low=0.01, count=3).rates == pytest.approx((1.0, 0.1, 0.01))


def test_specs_are_frozen_hashable_and_equal_by_value() -> None:
    assert hash(SMALL) == hash(replace(SMALL))
    assert len({SMALL, replace(SMALL), replace(SMALL, epochs=13)}) == 2
    assert hash(replace(SMALL, batch_sizes=[16, 32])) == hash(SMALL)  # type: ignore[arg-type]  # lists become tuples
    with pytest.raises(FrozenInstanceError):
        SMALL.epochs = 3  # type: ignore[misc]


# Recorded epochs


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (4, (1, 2, 4)),
        (5, (1, 2, 5)),
        (10, (1, 2, 5, 10)),
        (33, (1, 2, 5, 10, 20, 30, 33)),
    ],
)
def test_recorded_epochs(epochs: int, expected: tuple[int, ...]) -> None:
    assert replace(SMALL, epochs=epochs).recorded_epochs() == expected


# Parts of a study


def test_a_part_keeps_the_order_of_the_study() -> None:
    part = SMALL.select(algorithms=["ducb", "sgd"], batch_sizes=[32], seeds=1, epochs=3)
    assert part.algorithms == ("sgd", "ducb")
    assert (part.batch_sizes, part.seeds, part.epochs) == ((32,), (3,), 3)
    assert {run.id for run in part.runs()} <= {run.id for run in SMALL.runs()}
    assert len(part.runs()) == 13
    assert SMALL.select() == SMALL


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            {"algorithms": ["adam"]},
            "algorithms has 'adam', which is not in the study; choose from sgd, adadelta, ducb.",
        ),
        ({"algorithms": "sgd"}, "algorithms is 'sgd'; it must be a list, with items of sgd, adadelta, ducb."),
        ({"algorithms": []}, "algorithms is empty; choose from sgd, adadelta, ducb."),
        ({"batch_sizes": [16, 64]}, "batch_sizes has 64, which is not in the study; choose from 16, 32."),
        ({"batch_sizes": 16}, "batch_sizes is 16; it must be a list, with items of 16, 32."),
        ({"seeds": 3}, "seeds is 3; it must be a whole number from 1 to 2."),
        ({"seeds": 0}, "seeds is 0; it must be a whole number from 1 to 2."),
        ({"epochs": 13}, "epochs is 13; it must be a whole number from 1 to 12."),
        ({"epochs": True}, "epochs is True; it must be a whole number from 1 to 12."),
    ],
)
def test_what_is_not_in_the_study_cannot_be_selected(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        SMALL.select(**asked)
    assert str(caught.value) == f"Selecting runs: {message}"


def test_what_a_part_left_out_cannot_be_selected_from_it() -> None:
    with pytest.raises(SettingError, match="'ducb', which is not in the study; choose from sgd, adadelta"):
        SMALL.select(algorithms=["sgd", "adadelta"]).select(algorithms=["ducb"])


# Fingerprints


@pytest.mark.parametrize("algorithm", SMALL.algorithms)
def test_parts_have_the_fingerprint_of_the_whole(algorithm: str) -> None:
    part = SMALL.select(algorithms=[algorithm], batch_sizes=[16], seeds=1, epochs=2)
    assert part.fingerprint() == SMALL.fingerprint()
    assert StudySpec.from_dict(part.to_dict()).fingerprint() == SMALL.fingerprint()


def test_a_part_of_a_part_too() -> None:
    part = SMALL.select(algorithms=["adadelta", "ducb"]).select(algorithms=["adadelta"])
    assert part.algorithms == ("adadelta",)
    assert set(part.set_aside) == {SGD, DucbFamily(count=5)}
    assert part.fingerprint() == SMALL.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"epochs": 100},
        {"batch_sizes": (8,)},
        {"seeds": (0, 1)},
        {"families": (replace(SGD, lr=(0.5,), momentum=(0.1,)), *SMALL.families[1:])},
        {"families": SMALL.families[::-1]},
    ],
)
def test_what_only_chooses_runs_is_not_in_the_fingerprint(change: dict[str, Any]) -> None:
    changed = replace(SMALL, **change)
    assert changed != SMALL
    assert changed.fingerprint() == SMALL.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "mnist"},
        {"train_images": 99},
        {"train_images": None},
        {"data_seed": 1},
        {"network": replace(SMALL.network, hidden=(9,))},
        {"network": replace(SMALL.network, unit="relu")},
        {"network": replace(SMALL.network, init="sparse")},
    ],
)
def test_what_decides_a_result_is_in_the_fingerprint(change: dict[str, Any]) -> None:
    assert replace(SMALL, **change).fingerprint() != SMALL.fingerprint()


CONSTANTS: dict[type[AdaDeltaFamily | DucbFamily], dict[str, Any]] = {
    AdaDeltaFamily: {"rho": 0.5, "eps": 0.5, "lr": 0.5},
    DucbFamily: {
        **{"high": 10.0, "low": 1e-5, "count": 6, "discount": 0.9, "exploration": 0.0},
        **{"search": "first_decrease", "headroom": 1},
    },
}


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, constants in CONSTANTS.items() for name, value in constants.items()],
)
def test_a_constant_of_a_family_is_in_the_fingerprint(
    kind: type[AdaDeltaFamily | DucbFamily], name: str, value: Any
) -> None:
    assert set(CONSTANTS[kind]) == set(kind.schema())
    before = replace(SMALL, families=(SGD, kind()))
    after = replace(SMALL, families=(SGD, kind(**{name: value})))
    assert before.fingerprint() != after.fingerprint()
    assert before.select(algorithms=["sgd"]).fingerprint() != after.select(algorithms=["sgd"]).fingerprint()


@dataclass(frozen=True, kw_only=True)
class LaterNetwork(NetworkSpec):
    """The perceptron as a later version may have it."""

    bias: bool = one(yes_or_no(), True, help="whether layers have one", added=True)


@dataclass(frozen=True, kw_only=True)
class LaterDucb(DucbFamily):
    """The family of DUCB as a later version may have it."""

    patience: int = one(whole(0), 0, help="how long it waits", added=True)


def test_what_is_added_with_a_default_changes_no_fingerprint() -> None:
    later = replace(SMALL, network=LaterNetwork(hidden=(8,), unit="tanh"), families=(SGD, LaterDucb(count=5)))
    now = replace(SMALL, families=(SGD, DucbFamily(count=5)))
    assert later.fingerprint() == now.fingerprint()
    assert replace(later, families=(SGD, LaterDucb(count=5, patience=1))).fingerprint() != now.fingerprint()
    assert replace(later, network=replace(later.network, bias=False)).fingerprint() != now.fingerprint()
    assert StudySpec.from_dict(now.to_dict()) == now  # what was stored before such a setting came has its default


# Several families of one algorithm


BOLD = HotSwapFamily(name="bold", count=5, search=Backtracking(headroom=2), bandit=DiscountedUCB(discount=0.9))
NAMED = replace(SMALL, families=(HotSwapFamily(count=5), BOLD, DucbFamily(count=5)))


def test_families_of_one_algorithm_have_names_of_their_own() -> None:
    assert NAMED.algorithms == ("hotswap", "bold", "ducb")
    assert NAMED.family("bold") is BOLD
    assert [run.id for run in NAMED.select(algorithms=["bold"], seeds=1).runs()] == ["bold-b16-s3", "bold-b32-s3"]
    assert NAMED.to_dict()["families"][1] == {
        **{"algorithm": "hotswap", "name": "bold", "high": 100.0, "low": 1e-6, "count": 5},
        "bandit": {"name": "discounted_ucb", "discount": 0.9},
        "search": {"name": "backtracking", "headroom": 2},
        "reward": {"name": "log_reduction"},
        **{"search_every": 1, "search_when": "never", "guard": 0.0, "next_weight": 0.0, "base": "sgd"},
        **{"momentum": [0.0], "weight_decay": [0.0], "beta1": 0.9, "beta2": 0.999, "factored": False},
    }
    assert "base" not in BOLD.constants()  # settings that came later change no fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"bandit": DiscountedUCB(discount=0.8)},
        {"search": Backtracking(headroom=1)},
        {"reward": RelativeReduction()},
        {"name": "bolder"},
    ],
)
def test_the_parts_of_hot_swapping_are_in_the_fingerprint(change: dict[str, Any]) -> None:
    changed = replace(NAMED, families=(NAMED.families[0], replace(BOLD, **change), NAMED.families[2]))
    assert changed.fingerprint() != NAMED.fingerprint()


def test_settings_of_a_part_are_checked_as_its_own() -> None:
    with pytest.raises(SettingError, match=r"bandit 'discounted_ucb' has no key 'discont'.*nearest: discount"):
        HotSwapFamily(bandit={"name": "discounted_ucb", "discont": 0.9})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"HotSwapFamily: bandit cannot be used: .*discount must be in"):
        HotSwapFamily(bandit={"name": "discounted_ucb", "discount": 2})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="bandit 'discounted_ucb' does not take these settings"):
        HotSwapFamily(bandit={"name": "discounted_ucb", "discount": "much"})  # type: ignore[arg-type]


def test_a_part_that_nobody_has_registered_cannot_be_remembered() -> None:
    class Unregistered(DiscountedUCB):
        pass

    with pytest.raises(SettingError, match="Unregistered cannot be part of a study"):
        HotSwapFamily(bandit=Unregistered())


# Round trips


@pytest.mark.parametrize(
    "study",
    [
        SMALL,
        NAMED,
        SMALL.select(algorithms=["ducb"]),
        replace(SMALL, train_images=None, data_seed=2**63 - 1),
        replace(SMALL, families=(replace(SGD, lr=(5e-324, 0.1 + 0.2, 1e308)),)),
    ],
)
def test_json_and_back(study: StudySpec) -> None:
    plain = study.to_dict()
    stored = json.loads(json.dumps(plain))
    assert stored == plain
    again = StudySpec.from_dict(stored)
    assert again == study
    assert [run.id for run in again.runs()] == [run.id for run in study.runs()]
    assert again.fingerprint() == study.fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epoch": 3}, "has no key 'epoch'; the valid keys are"),
        ({"epochs": "3"}, "epochs is '3'; it must be a whole number of at least 1."),
        ({"network": {"hidden": [0]}}, "network hidden[0] is 0; it must be a whole number of at least 1."),
        ({"network": 3}, "network 3 is not a table of settings."),
        (
            {"families": [{"algorithm": "lion"}]},
            "families[0] algorithm is 'lion'; it must be one of sgd, adadelta, ducb, hotswap, adam, vsgd.",
        ),
        (
            {"families": [{"algorithm": "race", "count": 6}]},
            "families[0] algorithm: studies no longer train races; `python -m benchmarks.paper_races` trains races",
        ),
        (
            {"families": [3]},
            "families[0] algorithm is None; it must be one of sgd, adadelta, ducb, hotswap, adam, vsgd.",
        ),
        ({"network": {"name": "resnet"}}, "network: there is no network 'resnet'; there are perceptron, convolutional"),
        ({"families": [{"algorithm": "ducb", "count": 0}]}, "families[0] count is 0; it must be a whole number"),
        (
            {"families": [{"algorithm": "sgd"}]},
            "families[0] lr, lr_decay, momentum are missing, and there is no default.",
        ),
    ],
)
def test_stored_studies_that_are_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        StudySpec.from_dict({**SMALL.to_dict(), **change})
    assert str(caught.value).startswith(f"StudySpec.from_dict: {message}")


# Settings that cannot be meant


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (NetworkSpec, {"hidden": ()}, "hidden is empty; it must have at least one item, a whole number of at least 1."),
        (NetworkSpec, {"hidden": (5, 2.0)}, "hidden[1] is 2.0; it must be a whole number of at least 1."),
        (NetworkSpec, {"hidden": 5}, "hidden is 5; it must be a list, each item a whole number of at least 1."),
        (NetworkSpec, {"unit": "gelu"}, "unit is 'gelu'; it must be one of sigmoid, tanh, relu."),
        (NetworkSpec, {"init": None}, "init is None; it must be one of glorot, sparse."),
        (SgdFamily, {"lr": (0.0,)}, "lr[0] is 0.0; it must be a positive, finite number."),
        (SgdFamily, {"lr": (1.0, float("nan"))}, "lr[1] is nan; it must be a positive, finite number."),
        (SgdFamily, {"lr": (10**400,)}, "lr[0] is "),
        (SgdFamily, {"lr": "0.1"}, "lr is '0.1'; it must be a list, each item a positive, finite number."),
        (SgdFamily, {"lr": (1, 0.1, 1.0)}, "lr[2] is 1.0 again; give each value once."),
        (SgdFamily, {"lr_decay": (1.01,)}, "lr_decay[0] is 1.01; it must be a number in (0, 1]."),
        (SgdFamily, {"momentum": (0, 0.5, 1)}, "momentum[2] is 1; it must be a number in [0, 1)."),
        (SgdFamily, {"momentum": (True,)}, "momentum[0] is True; it must be a number in [0, 1)."),
        (AdaDeltaFamily, {"rho": 1.0}, "rho is 1.0; it must be a number in (0, 1)."),
        (AdaDeltaFamily, {"eps": 0}, "eps is 0; it must be a positive, finite number."),
        (AdaDeltaFamily, {"lr": "1"}, "lr is '1'; it must be a positive, finite number."),
        (DucbFamily, {"low": 1e3}, "low is 1000.0; it must be smaller than high, which is 100.0."),
        (DucbFamily, {"low": 1e2}, "low is 100.0; it must be smaller than high, which is 100.0."),
        (DucbFamily, {"count": 0}, "count is 0; it must be a whole number of at least 1."),
        (DucbFamily, {"high": 1 + 2e-16, "low": 1}, "count is 33; there are not so many different rates"),
        (DucbFamily, {"discount": 0}, "discount is 0; it must be a number in (0, 1]."),
        (DucbFamily, {"exploration": -1}, "exploration is -1; it must be a finite number, 0 or more."),
        (DucbFamily, {"search": "golden"}, "search is 'golden'; it must be one of backtracking, first_decrease."),
        (DucbFamily, {"headroom": -1}, "headroom is -1; it must be a whole number of at least 0."),
        (
            HotSwapFamily,
            {"search_every": 0},
            'search_every is 0, but search_when is "never"; one of them must ask for a search.',
        ),
        (HotSwapFamily, {"search_when": "often"}, "search_when is 'often'; it must be one of never, unsure, risen."),
        (HotSwapFamily, {"guard": 0.5}, "guard is 0.5; it must be a finite number above 1, or 0 for none."),
        (HotSwapFamily, {"next_weight": 2}, "next_weight is 2; it must be a number in"),
        (HotSwapFamily, {"base": "lion"}, "base is 'lion'; it must be one of sgd, nesterov, adam."),
        (
            HotSwapFamily,
            {"base": "adam", "momentum": (0.9,)},
            'momentum is of the base "sgd" or "nesterov"; leave it out for "adam".',
        ),
        (HotSwapFamily, {"base": "nesterov"}, 'momentum must be one value above 0 for the base "nesterov".'),
        (
            HotSwapFamily,
            {"base": "adam", "weight_decay": (0.1,)},
            "weight_decay is of the base \"sgd\"; leave it out for 'adam'.",
        ),
        (
            HotSwapFamily,
            {"factored": True},
            "factored is true, but the rate alone is swapped; give several momenta or decays.",
        ),
        (
            HotSwapFamily,
            {"momentum": (0.0, 0.9), "search": Armijo()},
            "search asks for a slope, which arms over several",
        ),
        (HotSwapFamily, {"momentum": (1.0,)}, "momentum[0] is 1.0; it must be a number in [0, 1)."),
        (VsgdFamily, {"start": 0}, "start is 0; it must be a whole number of at least 1."),
        (VsgdFamily, {"slow": 0.5}, "slow is 0.5; it must be a finite number, 1 or more."),
        (HotSwapFamily, {"name": "Bold"}, "name is 'Bold'; it must be a word of lower-case letters"),
        (HotSwapFamily, {"name": "sgd"}, "name is 'sgd', which is another algorithm; choose another name."),
        (HotSwapFamily, {"bandit": "ucb"}, "bandit is 'ucb'; it must be the name of a bandit (discounted_ucb"),
        (HotSwapFamily, {"bandit": {"discount": 0.9}}, "bandit is {'discount': 0.9}; it must be the name of a bandit"),
        (HotSwapFamily, {"search": 3}, "search is 3; it must be the name of a search ("),
        (RunSpec, {"algorithm": "Adam W"}, "algorithm is 'Adam W'; it must be a word of lower-case letters"),
        (RunSpec, {"lr": None}, "lr is None; it must be a positive, finite number."),
        (RunSpec, {"algorithm": "ducb"}, "lr is 0.1; it must be None for ducb."),
        (StudySpec, {"name": " "}, "name is ' '; it must be letters (a-z, A-Z), digits, '_', '-' and '.' only"),
        (StudySpec, {"name": "a\nb"}, "name is 'a\\nb'; it must be letters (a-z, A-Z), digits, '_', '-' and '.' only"),
        (StudySpec, {"dataset": "cifar"}, "dataset is 'cifar'; it must be one of "),
        (StudySpec, {"train_images": 0}, "train_images is 0; it must be a whole number of at least 1."),
        (StudySpec, {"network": (500,)}, "network is (500,); it must be a Network."),
        (StudySpec, {"families": ()}, "families is empty; it must have at least one item,"),
        (
            StudySpec,
            {"families": ("sgd",)},
            "families[0] is 'sgd'; it must be a Family.",
        ),
        (
            StudySpec,
            {"families": (SGD, replace(SGD, lr=(2,)))},
            "families[1] is sgd, as is families[0]; give each once.",
        ),
        (StudySpec, {"set_aside": (DucbFamily(),)}, "set_aside[0] is ducb, as is families[2]; give each once."),
        (
            StudySpec,
            {"batch_sizes": (16, 101)},
            "batch_sizes[1] is 101; it must be at most train_images, which is 100.",
        ),
        (StudySpec, {"seeds": (0, 0)}, "seeds[1] is 0 again; give each value once."),
        (StudySpec, {"seeds": (-1,)}, "seeds[0] is -1; it must be a whole number of at least 0 and at most"),
        (StudySpec, {"seeds": (2**63,)}, "seeds[0] is 9223372036854775808; it must be a whole number of at least 0"),
        (StudySpec, {"epochs": 0}, "epochs is 0; it must be a whole number of at least 1."),
        (StudySpec, {"data_seed": None}, "data_seed is None; it must be a whole number of at least 0"),
    ],
)
def test_settings_that_cannot_be_meant(make: Any, arguments: dict[str, Any], message: str) -> None:
    valid: dict[Any, Any] = {
        SgdFamily: SGD,
        RunSpec: RunSpec(algorithm="sgd", batch_size=16, seed=0, lr=0.1, lr_decay=1.0, momentum=0.0),
        StudySpec: SMALL,
    }
    with pytest.raises(SettingError) as caught:
        replace(valid.get(make) or make(), **arguments)
    assert str(caught.value).startswith(f"{make.__name__}: {message}")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_limit_of_a_minibatch_is_all_of_the_images() -> None:
    assert replace(SMALL, batch_sizes=(100,)).batch_sizes == (100,)
    assert replace(SMALL, train_images=None, batch_sizes=(101,)).batch_sizes == (101,)


# Units: which runs share an ensemble.


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


# Fingerprints that were stored: results belong together by them.


RESULTS = Path(__file__).parents[2] / "results"
STORED = sorted(RESULTS.glob("*/*provenance.json"))

KNOWN = {
    "paper": ("0845392ce6316b44", "a605d78796736080"),
    "extensions": ("e33524d76a682e8b", "8d85c4305e1e4d34"),
    "confirmation": ("b6ae757f2567e21d", "81fc1ee059f3886f"),
    "first_decrease": ("04d7b08006d72b1b", "444267b4a3cace94"),
    "cited": ("cc4add446ee9f195", "5a2bd316ec94b555"),
}
"""Of each study that comes with hotswap, its fingerprint and a digest over the ids of its runs."""

MIXED = StudySpec(
    name="mixed",
    dataset="digits",
    train_images=None,
    network=ConvolutionalSpec(channels=(4, 8), batch_norm=False),
    families=(
        HotSwapFamily(name="bold", count=5, bandit=DiscountedUCB(discount=0.9), search=Backtracking(headroom=2)),
        HotSwapFamily(base="nesterov", momentum=(0.9,), search_every=5, next_weight=0.5),
        AdamFamily(lr=(1, 0.01), weight_decay=(-0.0,)),
        VsgdFamily(slow=3),
    ),
    batch_sizes=(16,),
    seeds=(0, 2**63 - 1),
    epochs=3,
    data_seed=7,
)


def ids(study: StudySpec) -> str:
    return hashlib.sha256("\n".join(run.id for run in study.runs()).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", KNOWN)
def test_studies_that_come_with_hotswap(name: str) -> None:
    assert (STUDIES[name].fingerprint(), ids(STUDIES[name])) == KNOWN[name]


@pytest.mark.parametrize("file", STORED, ids=lambda file: str(file.relative_to(RESULTS)))
def test_studies_beside_results(file: Path) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    study = StudySpec.from_dict(document["study"])
    assert study.fingerprint() == document["fingerprint"]
    assert {StudySpec.from_dict(spec).fingerprint() for spec in document["specs"]} == {document["fingerprint"]}
    assert StudySpec.from_dict(json.loads(json.dumps(study.to_dict()))) == study


def test_the_fingerprint_of_every_kind_of_setting() -> None:
    assert (MIXED.fingerprint(), ids(MIXED)) == ("1fcda578fce0b73b", "a032b21512d85bcf")

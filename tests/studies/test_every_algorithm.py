"""What every algorithm of a study must do: a new one is in the list as soon as it is registered."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap.ensemble import TrainingData
from hotswap.errors import SettingError
from hotswap.networks import multilayer_perceptron
from hotswap.studies import ALGORITHMS, AdaDeltaFamily, Family, Look, NetworkSpec, RunSpec, StudySpec, plan, several
from hotswap.studies.algorithms import family_from_dict
from hotswap.studies.settings import COUNT, one_of
from hotswap.studies.training import Assembled, Held, assemble

EPOCHS = 3
SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": (0.5, 0.1), "lr_decay": (0.9,), "momentum": (0.0, 0.9)},
    "adam": {"lr": (0.01, 0.003), "lr_decay": (0.9,), "weight_decay": (0.0, 0.1)},
    "ducb": {"high": 10.0, "low": 1e-3, "count": 9},
    "hotswap": {"high": 10.0, "low": 1e-3, "count": 9},
}


def family(name: str) -> Family:
    return ALGORITHMS[name](**SETTINGS.get(name, {}))


def study(name: str) -> StudySpec:
    return StudySpec(
        name="small",
        dataset="digits",
        train_images=None,
        network=NetworkSpec(hidden=(6,), unit="tanh"),
        families=(family(name),),
        batch_sizes=(16,),
        seeds=(0, 1),
        epochs=EPOCHS,
    )


@pytest.fixture(scope="module")
def held() -> Held:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(80, 8)), random.integers(0, 3, 80)
    x[np.arange(80), y] += 2
    tensors = torch.from_numpy(x), torch.from_numpy(y)
    return Held(TrainingData(tensors[0][:64], tensors[1][:64], tensors[0][64:], tensors[1][64:]), (1, 2, 4), 3)


def trained(spec: StudySpec, held: Held, runs: tuple[RunSpec, ...], epochs: range = range(EPOCHS)) -> Assembled:
    """The runs after these epochs, alone in an ensemble."""
    unit = replace(plan(spec)[0], runs=runs)
    assembled = assemble(spec, unit, held)
    for epoch in epochs:
        assembled.ensemble.train_epoch(epoch)
    return assembled


def weights(assembled: Assembled) -> dict[str, bytes]:
    theta = assembled.ensemble.update.theta
    return {run.id: row.numpy().tobytes() for run, row in zip(assembled.runs, theta, strict=True)}


@pytest.mark.parametrize("name", ALGORITHMS)
class TestEveryAlgorithm:
    def test_runs_train_alone_as_they_do_together(self, name: str, held: Held) -> None:
        spec = study(name)
        together = weights(trained(spec, held, spec.runs()))
        assert len(set(together.values())) == len(together)
        for run in spec.runs()[::3]:
            alone = np.frombuffer(weights(trained(spec, held, (run,)))[run.id])
            assert alone == pytest.approx(np.frombuffer(together[run.id]), rel=1e-9, abs=1e-12)

    def test_it_learns(self, name: str, held: Held) -> None:
        spec = replace(study(name), epochs=20)
        assembled = trained(spec, held, spec.runs(), range(20))
        before = assemble(spec, plan(spec)[0], held).ensemble.measure().train_nll
        assert np.median(assembled.ensemble.measure().train_nll) < 0.7 * np.median(before)

    def test_its_state_is_all_that_a_checkpoint_needs(self, name: str, held: Held) -> None:
        spec = study(name)
        half = trained(spec, held, spec.runs(), range(1))
        kept = {key: tensor.clone() for key, tensor in half.ensemble.update.state().items()}
        resumed = trained(spec, held, spec.runs(), range(0))
        resumed.ensemble.restore(kept)
        for epoch in range(1, EPOCHS):
            resumed.ensemble.train_epoch(epoch)
        assert weights(resumed) == weights(trained(spec, held, spec.runs()))

    def test_it_measures_what_it_says(self, name: str, held: Held) -> None:
        spec = study(name)
        tally = trained(spec, held, spec.runs(), range(1)).ensemble.tally()
        measured = {**tally.means, **tally.totals}
        assert set(family(name).measures) <= set(measured)
        assert all(np.isfinite(measured[measure]).all() for measure in family(name).measures)
        assert [len(row) for row in tally.arms] == [len(family(name).arms())] * len(spec.runs())

    def test_it_survives_json(self, name: str) -> None:
        for one in (family(name), replace(family(name), name="another")):
            assert family_from_dict(json.loads(json.dumps(one.to_dict())), "here") == one

    def test_every_setting_says_what_it_means(self, name: str) -> None:
        kind = ALGORITHMS[name]
        assert [item.name for item in fields(kind)] == ["name", *kind.schema()]
        assert all(setting.help for setting in kind.schema().values())
        assert kind.label
        assert kind.look.colour.startswith("#")

    def test_a_run_can_be_described(self, name: str) -> None:
        for settings in family(name).grid():
            assert ALGORITHMS[name].describe(settings) or not settings


def test_no_two_look_alike() -> None:
    looks = [(kind.look.colour, kind.label) for kind in ALGORITHMS.values()]
    assert len({colour for colour, _ in looks}) == len({label for _, label in looks}) == len(looks)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_is_torchs_adamw(held: Held, weight_decay: float) -> None:
    spec = replace(study("adam"), seeds=(1,))
    settings = {"lr": 0.01, "lr_decay": 0.9, "weight_decay": weight_decay}
    run = next(run for run in spec.runs() if run.settings == settings)
    ours = trained(spec, held, (run,))
    network = multilayer_perceptron((8, 6, 3), seed=1, unit="tanh").double()
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01, weight_decay=weight_decay)
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = 0.01 * 0.9**epoch
        shuffle = torch.Generator().manual_seed(epoch)
        for rows in torch.randperm(64, generator=shuffle).view(-1, 16):
            optimizer.zero_grad()
            cross_entropy(network(held.tensors.train_x[rows]), held.tensors.train_y[rows]).backward()
            optimizer.step()
    expected = ours.ensemble.update.model.flatten(network)  # type: ignore[attr-defined]  # a perceptron's
    assert ours.ensemble.update.theta[0].tolist() == pytest.approx(expected.tolist(), rel=1e-7, abs=1e-10)
    assert ours.ensemble.tally().means["mean_lr"] == pytest.approx([0.01 * 0.9**2])


def test_an_algorithm_without_a_label_or_a_look_is_refused() -> None:
    class Bare(Family):
        def update(self, model: Any, theta: Any, runs: Any) -> Any: ...

    with pytest.raises(SettingError, match="The algorithm 'bare' has no label and no look; Bare must say"):
        ALGORITHMS.register("bare")(Bare)
    assert "bare" not in ALGORITHMS


def test_a_look_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Look\(marker='star'\): marker must be one of circle, triangle"):
        Look("#E69F00", marker="star")  # type: ignore[arg-type]


def test_an_update_that_is_none_is_refused(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS["adadelta"], "update", lambda *_: None)
    small = study("adadelta")
    with pytest.raises(SettingError, match=r"AdaDeltaFamily\.update\(\) must return a hotswap\.ensemble\.Update"):
        assemble(small, plan(small)[0], held)


@dataclass(frozen=True, kw_only=True)
class Varied(AdaDeltaFamily):
    count: tuple[int, ...] = several(COUNT, (1, 2), help="a whole number", short="n")
    kind: tuple[str, ...] = several(one_of(("a", "b")), help="no number", short="k")


@dataclass(frozen=True, kw_only=True)
class Counted(AdaDeltaFamily):
    count: tuple[int, ...] = several(COUNT, (1, 2), help="a whole number", short="n")


def test_whole_numbers_that_vary_stay_whole_whatever_the_family_is_called() -> None:
    spec = replace(study("adadelta"), families=(Counted(name="counted"),), seeds=(0,))
    assert [run.id for run in spec.runs()] == ["counted-b16-count1-s0", "counted-b16-count2-s0"]
    assert [type(run.settings["count"]) for run in spec.runs()] == [int, int]


def test_only_numbers_vary_between_runs() -> None:
    with pytest.raises(SettingError, match=r"kind\[0\] is 'a', but only numbers can vary between the runs of a family"):
        Varied(kind=("a", "b"))

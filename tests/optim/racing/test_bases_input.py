"""Lists of bases that do not go together, and states of other races, get one sentence and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from hotswap.errors import CheckpointError, HotSwapError, SettingError, UnsupportedError
from tests.optim.racing import test_bases
from tests.optim.racing.helpers import contents, minibatches, network, race, same, train
from tests.optim.racing.test_input import stepped

FILE = Path(__file__).parents[1] / "data" / "race-one-base.pt"


class Rateless(Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"speed": 1.0})


def shared(model: nn.Module) -> list[Optimizer]:
    groups = [{"params": list(model.parameters())}]
    return [AdamW(groups), SGD(groups, lr=0.1)]


def turned(model: nn.Module) -> Optimizer:
    return SGD(list(model.parameters())[::-1], lr=0.1)


def split(model: nn.Module) -> Optimizer:
    first, *others = model.parameters()
    return SGD([{"params": [first]}, {"params": others}], lr=0.1)


RATES = [{"lr": [1e-2, 1e-3]}, {"lr": [0.1, 0.01]}]


@pytest.mark.parametrize(
    ("make", "kind", "sentence"),
    [
        (lambda net, bases: hotswap.Race([]), SettingError, "there is no base"),
        (lambda net, bases: hotswap.Race([bases[0], 3]), SettingError, "of type int, not a torch.optim.Optimizer"),
        (lambda net, bases: hotswap.Race([bases[0], stepped()]), SettingError, "has state already"),
        (lambda net, bases: hotswap.Race([bases[0], bases[0]]), SettingError, "the very same dictionaries"),
        (lambda net, bases: hotswap.Race(shared(net)), SettingError, "the very same dictionaries"),
        (lambda net, bases: hotswap.Race([bases[0], turned(net)]), SettingError, "base 2, SGD, has other parameters"),
        (lambda net, bases: hotswap.Race([*bases, split(net)]), SettingError, "base 3, SGD, has other parameters"),
        (lambda net, bases: hotswap.Race([bases[0], Rateless(net.parameters())]), SettingError, "Rateless has no lr"),
        (lambda net, bases: hotswap.Race([bases[0], hotswap.HotSwapSGD(net)]), UnsupportedError, "HotSwapSGD"),
        (
            lambda net, bases: hotswap.Race([bases[0], SGD(net.parameters(), maximize=True)]),
            UnsupportedError,
            "maximize",
        ),
        (lambda net, bases: hotswap.Race(bases, {"lr": [0.1, 0.01]}), SettingError, "arms is a list of 2"),
        (lambda net, bases: hotswap.Race(bases, RATES[:1]), SettingError, "arms is a list of 2"),
        (lambda net, bases: hotswap.Race(bases, [[0.1], [0.2]]), SettingError, "name what lanes differ in"),
        (lambda net, bases: hotswap.Race(bases[:1], RATES), SettingError, "name what lanes differ in"),
        (lambda net, bases: hotswap.Race(bases, RATES[::-1] + RATES), SettingError, "arms is a list of 2"),
        (
            lambda net, bases: hotswap.Race(bases, [{"lr": [0.1]}, {"betas": [(0.9, 0.99)]}]),
            SettingError,
            "SGD has no hyperparameter 'betas'",
        ),
        (lambda net, bases: hotswap.Race(bases, total_steps=1000, rounds=((0.1, 9),)), SettingError, "only 9 lanes"),
        (lambda net, bases: hotswap.Race(bases, module=3), SettingError, "must be a torch.nn.Module"),
    ],
)
def test_bases_that_do_not_go_together(
    make: Callable[[nn.Module, list[Optimizer]], object], kind: type[HotSwapError], sentence: str
) -> None:
    model = network()
    bases = [AdamW(model.parameters()), SGD(model.parameters(), lr=0.1)]
    before = [[dict(group) for group in base.param_groups] for base in bases]
    with pytest.raises(kind, match=sentence):
        make(model, bases)
    assert [[dict(group) for group in base.param_groups] for base in bases] == before
    assert not any(base.state for base in bases)


def test_the_state_of_a_race_of_other_bases_is_refused() -> None:
    models = [network() for _ in range(3)]
    one, two = race(models[0]), test_bases.race(models[1])
    turned = test_bases.race(models[2], test_bases.LANES["SGD comes first"])
    for optimizer, model in zip((one, two, turned), models, strict=True):
        train(optimizer, model, minibatches(15))
    for optimizer, model, told in (
        (one, models[0], "it has 2 bases, AdamW, SGD, this one one base"),
        (two, models[1], "it has one base, this one 2 bases, AdamW, SGD"),
        (turned, models[2], "it has 2 bases, AdamW, SGD, this one 2 bases, SGD, AdamW"),
    ):
        before, leads = contents(model), type(optimizer.base)
        state = (one if optimizer is two else two).state_dict()
        with pytest.raises(CheckpointError, match=told):
            optimizer.load_state_dict(state)
        assert same(before, contents(model))
        assert type(optimizer.base) is leads
        assert optimizer.cost.plain == 15
        train(optimizer, model, minibatches(5))


def test_a_state_that_does_not_fit_changes_nothing() -> None:
    """Torch itself refuses it: there is another number of groups."""
    model, other = network(), network()
    one, two = test_bases.race(model), test_bases.race(other)
    train(one, model, minibatches(15))
    one.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    train(two, other, minibatches(5))
    assert (type(one.base), type(two.base)) == (SGD, AdamW)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        two.load_state_dict(one.state_dict())
    assert type(two.base) is AdamW
    assert two.cost.plain == 5
    twin_model = network()
    twin = test_bases.race(twin_model)
    train(twin, twin_model, minibatches(5))
    assert train(two, other, minibatches(5)) == train(twin, twin_model, minibatches(5))


def test_a_state_that_was_written_before_there_were_lists_of_bases() -> None:
    """`data/race-one-base.pt`: a race after 15 steps, and the losses of the steps after them."""
    for build in (race, lambda net: test_bases.race(net, [(AdamW, (0.1, 0.01, 0.001))], rounds=((12, 2), (24, 1)))):
        file, model = torch.load(FILE, weights_only=True), network(seed=3)
        optimizer = build(model)
        optimizer.load_state_dict(file["middle"]["race"])
        model.load_state_dict(file["middle"]["model"])
        torch.set_rng_state(file["middle"]["numbers"])
        losses = train(optimizer, model, list(minibatches())[15:], seed=None)
        assert [list(step) for step in losses] == [[number for number, _ in step] for step in file["later"]]
        for mine, theirs in zip(losses, file["later"], strict=True):
            assert mine == pytest.approx(dict(theirs), rel=1e-5)  # other processors may round differently

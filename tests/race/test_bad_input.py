"""Each mistake gets one sentence that says what to do, and changes nothing."""

from __future__ import annotations

import gc
import re
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import LBFGS, SGD, AdamW
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

import hotswap
from hotswap import CheckpointError, HotSwapError, LossError, SettingError, UnsupportedError
from hotswap.race.validation import GONE_NAMES, GONE_SETTINGS
from tests.race.helpers import (
    equal,
    loss_of,
    made,
    minibatches,
    perceptron,
    step,
    tensors_of,
    three,
    through_a_file,
    two,
    with_dropout_and_norm,
)


def one_sentence(error: HotSwapError) -> bool:
    said = str(error)
    return said.isprintable() and said.endswith(".") and len(said) < 400


MODEL = perceptron()
PARAMETERS = list(MODEL.parameters())
STARTED = AdamW(PARAMETERS)
for p in PARAMETERS:
    p.grad = torch.ones_like(p)
STARTED.step()
TWICE = AdamW(PARAMETERS)

AT_THE_START: list[tuple[Callable[[], Any], type[HotSwapError], str]] = [
    (lambda: hotswap.Race(TWICE), SettingError, r"write Race\(model, optimizer, total_steps=...\)"),
    (lambda: hotswap.Race([TWICE], total_steps=9), SettingError, r"write Race\(model, optimizer"),
    (lambda: hotswap.Race(PARAMETERS), SettingError, "was given parameters"),
    (lambda: hotswap.Race(MODEL.parameters()), SettingError, "was given parameters"),
    (lambda: hotswap.Race(nn.Linear), SettingError, "the class Linear"),
    (lambda: hotswap.Race(None), SettingError, "was given None"),
    (lambda: hotswap.Race(nn.Identity()), SettingError, "nothing to train"),
    (lambda: hotswap.Race(nn.LazyLinear(2)), SettingError, "run one forward pass first"),
    (lambda: hotswap.Race(MODEL, AdamW), SettingError, "the class AdamW.*give an optimizer, made with"),
    (lambda: hotswap.Race(MODEL, [AdamW, SGD]), SettingError, "the class AdamW is no optimizer"),
    (lambda: hotswap.Race(MODEL, PARAMETERS), SettingError, "is no optimizer"),
    (lambda: hotswap.Race(MODEL, MODEL), SettingError, "a Sequential.*give an optimizer"),
    (lambda: hotswap.Race(MODEL, {"one": TWICE}), SettingError, "a dict.*give an optimizer"),
    (lambda: hotswap.Race(MODEL, "adamw"), SettingError, "give an optimizer"),
    (lambda: hotswap.Race(MODEL, 100), SettingError, "give an optimizer"),
    (lambda: hotswap.Race(MODEL, []), SettingError, "at least one optimizer"),
    (lambda: hotswap.Race(MODEL, [TWICE, TWICE]), SettingError, "there twice"),
    (lambda: hotswap.Race(MODEL, [TWICE] * 10_000), SettingError, "10000 lanes are too many; give at most 100"),
    (lambda: hotswap.Race(MODEL, process_group=3), SettingError, "give a torch.distributed process group"),
    (lambda: hotswap.Race(MODEL, LBFGS(PARAMETERS)), UnsupportedError, "LBFGS cannot be a lane"),
    (lambda: hotswap.Race(MODEL, STARTED), SettingError, "has taken steps already.*make a new one"),
    (lambda: hotswap.Race(MODEL, AdamW(perceptron().parameters())), SettingError, "4 parameters that are not"),
    (lambda: hotswap.Race(MODEL, [TWICE, SGD(PARAMETERS[:2])]), SettingError, "different parameters, such as 2.bias"),
    (lambda: hotswap.Race(MODEL, hotswap.HotSwapSGD(PARAMETERS)), UnsupportedError, "HotSwapSGD cannot be a lane"),
    (lambda: hotswap.Race(MODEL, hotswap.Race(MODEL)), UnsupportedError, "Race cannot be a lane"),
    (lambda: hotswap.HotSwap(hotswap.Race(MODEL), {"lr": [0.1]}), UnsupportedError, "cannot be around a race"),
    (lambda: hotswap.HotSwapSGD(hotswap.Race(MODEL)), SettingError, "takes the model"),
    *((lambda n=n: hotswap.Race(MODEL, total_steps=n), SettingError, "epochs") for n in (0, -1, 1.5, "9", True)),
    *((lambda s=s: hotswap.Race(MODEL, share=s), SettingError, "share") for s in (0, 1, -0.1, "a", None, True)),
    (lambda: hotswap.Race(MODEL, judge=3), SettingError, "a function of the model"),
    (lambda: hotswap.Race(MODEL, schedule="cosine"), SettingError, "'linear', None, or a function"),
    (lambda: hotswap.Race(MODEL, schedule=lambda _: None), SettingError, "must return a torch scheduler"),
    (lambda: hotswap.Race(MODEL, schedule=lambda _: LambdaLR(TWICE, abs)), SettingError, "the optimizer that"),
    (lambda: hotswap.Race(MODEL, schedule=ReduceLROnPlateau), SettingError, r"ReduceLROnPlateau\(race\)"),
    *((lambda a=a: hotswap.Race(MODEL, also=a), SettingError, "also") for a in (3, [3], torch.ones(2), "x")),
    (lambda: hotswap.Race(MODEL, rates=[1]), SettingError, "no setting 'rates'"),
    (lambda: hotswap.lanes(MODEL, muon="no"), SettingError, "choose 'auto', True or False"),
    (lambda: hotswap.lanes(PARAMETERS), SettingError, "needs the model"),
    *((lambda n=n: hotswap.Race(MODEL, **{n: 1}), SettingError, f"no {n} any more") for n in GONE_SETTINGS),
]


@pytest.mark.parametrize(("call", "kind", "said"), AT_THE_START)
def test_what_a_race_is_made_of(call: Callable[[], Any], kind: type[HotSwapError], said: str) -> None:
    before = [p.clone() for p in PARAMETERS]
    with pytest.raises(kind, match=said) as caught:
        call()
    assert one_sentence(caught.value)
    assert equal(before, [p.detach() for p in PARAMETERS])
    assert not any(isinstance(p, UninitializedParameter) for p in PARAMETERS)
    assert not TWICE.state


def begun(steps: int = 5, **settings: Any) -> tuple[nn.Module, hotswap.Race]:
    model = made(perceptron)
    race = hotswap.Race(model, three(model), **{"total_steps": 240, "share": 0.5, **settings})
    for batch in minibatches(steps):
        step(model, race, batch)
    return model, race


def everything(model: nn.Module, race: hotswap.Race) -> list[Any]:
    """All that a refused call must leave as it was."""
    contest = race._contest
    numbers = [contest.step, contest.turn_step, contest.slot, contest.round, str(race.standings())]
    numbers += [len(contest.values), len(contest.observed), contest.here.name, contest.scale, contest.base]
    return [numbers, [t.tolist() for t in tensors_of(model, race)]]


NO_LOSSES = [1 + 2j, "0.5", [0.5], NotImplemented, torch.ones(2), torch.ones(0), torch.tensor(1j), {"loss": 1.0}]


@pytest.mark.parametrize("loss", NO_LOSSES, ids=str)
def test_a_loss_that_is_no_number(loss: Any) -> None:
    model, race = begun()
    loss_of(model, minibatches(1)[0]).backward()
    before = everything(model, race)
    for call in (race.step, race.observe):
        with pytest.raises(LossError) as caught:
            call(loss)
        assert one_sentence(caught.value)
    assert everything(model, race) == before
    with pytest.raises(LossError):
        race.observe(None)  # type: ignore[arg-type]
    race.step(torch.ones(1, 1))  # one number is one number


def test_a_turn_without_a_loss() -> None:
    model, race = begun(steps=0)
    length = race._contest.length
    batches = minibatches(length + 1)
    for batch in batches[: length - 1]:
        loss_of(model, batch).backward()
        race.step()
        race.zero_grad()
    loss = loss_of(model, batches[-1])
    loss.backward()
    before = everything(model, race)
    with pytest.raises(LossError, match=rf"AdamW 0.01 has trained for {length} steps without a loss") as caught:
        race.step()
    assert one_sentence(caught.value)
    assert everything(model, race) == before
    race.step(loss)  # and with its loss the same step can be taken
    assert race._contest.here is not race._contest.lanes[0]


def test_a_race_with_a_judge_needs_no_losses() -> None:
    model, race = begun(steps=0, judge=lambda model: float(next(model.parameters()).norm()))
    for batch in minibatches(240):
        loss_of(model, batch).backward()
        race.step()
        race.zero_grad()
    assert race.winner is not None


def test_more_steps_than_there_are() -> None:
    model, race = begun(steps=240)
    before = everything(model, race)
    called = []
    for loss in (1.0, lambda: called.append(1)):
        with pytest.raises(SettingError, match="has taken all of its 240 steps") as caught:
            race.step(loss)
        assert one_sentence(caught.value)
    assert not called
    assert everything(model, race) == before


def test_too_few_steps_to_race() -> None:
    _, race = begun(total_steps=30)
    assert race.winner is race.leader is race._contest.lanes[0]
    table = str(race.standings())
    assert re.search(r"AdamW +0.01 +5 +trains alone", table)
    assert table.count("the run is too short to race it") == 2


def test_total_steps_can_be_set_until_the_first_step() -> None:
    model = made(perceptron)
    race = hotswap.Race(model, three(model), share=0.5)
    race.total_steps = 240
    for batch in minibatches(240):
        step(model, race, batch)
    other, set_at_once = begun(steps=240)
    assert everything(model, race) == everything(other, set_at_once)
    before = everything(model, race)
    with pytest.raises(SettingError, match=r"until the first step; call finish\(steps\)"):
        race.total_steps = 300
    for steps in (0, -3, 1.5, True, None, "7"):
        with pytest.raises(SettingError, match="at least 1"):
            race.finish(steps)  # type: ignore[arg-type]
    assert everything(model, race) == before


def test_total_steps_are_checked_when_they_are_set() -> None:
    race = hotswap.Race(made(perceptron))
    for total in (0, -1, 1.5, "9", True):
        with pytest.raises(SettingError, match="epochs"):
            race.total_steps = total  # type: ignore[assignment]
    assert race.total_steps is None


def test_two_races_over_the_same_parameters() -> None:
    model, race = begun()
    before = everything(model, race)
    first, *others = model.parameters()
    with pytest.raises(UnsupportedError, match="Another race trains these parameters") as caught:
        hotswap.Race(model, SGD([{"params": others[::-1]}, {"params": [first]}], lr=0.1), total_steps=240)
    assert one_sentence(caught.value)
    assert everything(model, race) == before


def test_two_races_that_have_both_not_begun() -> None:
    model = made(perceptron)
    one, other = (hotswap.Race(model, order(model), total_steps=240) for order in (two, lambda m: two(m, turned=True)))
    step(model, one, minibatches(1)[0])
    before = everything(model, one)
    loss = loss_of(model, minibatches(1)[0])
    loss.backward()
    with pytest.raises(UnsupportedError, match="Another race"):
        other.step(loss)
    assert everything(model, one) == before
    gone = weakref.ref(one._contest)
    del one
    gc.collect()
    assert gone() is None
    other.step(loss)


def test_a_race_after_a_race() -> None:
    model, race = begun(steps=240)
    after = hotswap.Race(model, two(model), total_steps=240)
    step(model, after, minibatches(1)[0])
    race.finish(10)
    with pytest.raises(UnsupportedError, match="Another race"):
        race.step(1.0)


def test_names_of_before() -> None:
    race = hotswap.Race(made(perceptron))
    for name in GONE_NAMES:
        with pytest.raises(AttributeError, match=f"Race has no {name} any more; ") as caught:
            getattr(race, name)
        assert str(caught.value).endswith(".")
    with pytest.raises(AttributeError, match="'Race' object has no attribute 'nothing'"):
        race.nothing  # noqa: B018
    with pytest.raises(UnsupportedError, match=r"call optimizer.eval\(\) first"):
        race.calibrate([])


def wider() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4))


OLD = {"state": {}, "param_groups": [{"params": [0, 1, 2, 3], "lr": 0.1, "race": {"version": 1}}]}


def race_of(build: Callable[[], nn.Module], lanes: Callable[[nn.Module], Any] = three, **settings: Any) -> Any:
    model = made(build)
    race = hotswap.Race(model, lanes(model), **{"total_steps": 240, **settings})
    for batch in minibatches(3):
        step(model, race, batch)
    return race.state_dict()


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "widths": (lambda: race_of(wider), "is of another model"),
    "buffers": (lambda: race_of(with_dropout_and_norm), "are not as many|of another model|other names"),
    "lanes": (lambda: race_of(perceptron, two), "is of a race of AdamW 0.01, SGD 0.1, and this race is of"),
    "average": (lambda: race_of(perceptron, average=False), "has an average or none"),
    "schedule": (lambda: race_of(perceptron, schedule=lambda o: LambdaLR(o, float)), "another kind of schedule"),
    "further tensors": (lambda: race_of(perceptron, also=[torch.ones(2)]), "further tensors"),
    "an optimizer": (AdamW(PARAMETERS).state_dict, "is not of a race"),
    "an earlier version": (lambda: OLD, "of an earlier version.*begin a new race"),
    "nothing": (lambda: None, "is not of a race"),
    "no race": (lambda: {**race_of(perceptron), "race": 3}, "it is no dictionary"),
    "no groups": (lambda: {**race_of(perceptron), "param_groups": 3}, "other groups"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_something_else(name: str) -> None:
    build, said = OTHERS[name]
    model, race = begun()
    before = everything(model, race)
    with pytest.raises(CheckpointError, match=said) as caught:
        race.load_state_dict(build())
    assert one_sentence(caught.value)
    assert everything(model, race) == before


NO_NUMBERS = [None, torch.ones(2), "good", "0.5", b"1", [1.0], 1j, torch.tensor(1j), NotImplemented]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=str)
def test_a_judge_that_returns_no_number(value: Any) -> None:
    """The step itself has been taken; the lane that took it keeps the model, and a better judge goes on from there."""
    said: list[Any] = [value]
    model, race = begun(steps=0, judge=lambda _: said[0])
    contest, batches, taken = race._contest, minibatches(240), 0
    while contest.slot + 1 < len(contest.slots) or contest.turn_step + 1 < contest.length:
        step(model, race, batches[taken])
        taken += 1
    here = contest.here
    with pytest.raises(SettingError, match="judge returned") as caught:
        step(model, race, batches[taken])
    taken += 1
    assert one_sentence(caught.value)
    assert contest.here is here
    assert (contest.step, contest.round) == (taken, 0)
    assert equal([p.detach() for p in model.parameters()], here.parked["model"]["weights"])
    assert sum(lane.steps for lane in contest.lanes) == taken
    said[0] = 1.0
    race.zero_grad()
    for batch in minibatches(240 - taken):
        step(model, race, batch)
    assert race.winner is race._contest.lanes[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_a_lane_that_the_judge_finds_no_number_for_is_last(bad: Any) -> None:
    order: list[Any] = [bad, 3.0, 2.0]
    model, race = begun(steps=0, judge=lambda _: order.pop(0) if order else 1.0, share=0.9)
    for batch in minibatches(240):
        step(model, race, batch)
    assert race.winner is race._contest.lanes[2]
    assert "no finite loss" in str(race.standings())


def test_parameters_that_cannot_be_added() -> None:
    model, race = begun()
    before = everything(model, race)
    for group in ({"params": [nn.Parameter(torch.ones(2))]}, {"params": nn.Parameter(torch.ones(2)), "lr": 0.1}):
        with pytest.raises(SettingError, match="1 parameters are not the model's"):
            race.add_param_group(group)
    with pytest.raises(ValueError, match="some parameters appear in more than one parameter group"):
        race.add_param_group({"params": list(model.parameters())[:1]})
    assert everything(model, race) == before
    assert [len(lane.optimizer.param_groups) for lane in race._contest.lanes] == [1, 1, 1]
    step(model, race, minibatches(1)[0])
    race.load_state_dict(through_a_file(race.state_dict()))

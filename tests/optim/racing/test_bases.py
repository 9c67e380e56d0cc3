"""Lanes of several optimizers: each is the run that would have been trained alone, bit for bit."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer

import hotswap
from hotswap.optim import HotSwapWarning
from hotswap.races import Schedule
from tests.optim.racing.helpers import STEPS, alone, contents, minibatches, network, same, train
from tests.optim.racing.test_diverging import until_it_begins_again, until_it_goes_back
from tests.optim.racing.test_lanes import Counting
from tests.optim.racing.test_resume import saved
from tests.optim.racing.test_together import Always

Make = Callable[..., Optimizer]


class Late(Optimizer):
    """Has a counter of steps in its groups from the first step on, and steps by it."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] / group["k"] ** 0.5)


class Beating(Optimizer):
    """Counts steps in its state, under a name of its own, from the constructor on."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})
        self.state["beat"] = {"count": 1}

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] / self.state["beat"]["count"] ** 0.5)
        self.state["beat"]["count"] += 1


adamw = partial(AdamW, weight_decay=0.1)
sgd = partial(SGD, lr=0.1, momentum=0.9, nesterov=True)
ADAM_RATES, SGD_RATES, SLOW = (1e-2, 1e-3), (0.3, 0.1, 0.03), (1e-4, 1e-5)
LANES: dict[str, list[tuple[Make, tuple[float, ...]]]] = {
    "SGD wins": [(adamw, SLOW), (sgd, SGD_RATES)],
    "AdamW wins": [(adamw, (0.1, 0.03)), (sgd, SLOW)],
    "SGD comes first": [(sgd, SGD_RATES), (adamw, ADAM_RATES)],
    "groups are written to": [(Counting, (1.0, 0.1)), (adamw, ADAM_RATES), (Late, (0.3, 0.03))],
    "the late one wins": [(adamw, SLOW), (Late, (0.3, 0.1)), (Counting, SLOW)],
    "state has more than parameters'": [(Beating, (0.3, 0.1)), (adamw, SLOW), (partial(Beating, lr=1.0), (0.2,))],
}


def race(model: nn.Module, lanes: list[tuple[Make, tuple[float, ...]]] = LANES["SGD wins"], **given: Any) -> Any:
    arms = [{"lr": rates} for _, rates in lanes]
    settings = {"total_steps": STEPS, "rounds": ((12, 3), (24, 1)), "least": 5, "module": model} | given
    return hotswap.Race([make(list(model.parameters())) for make, _ in lanes], settings.pop("arms", arms), **settings)


def runs(lanes: list[tuple[Make, tuple[float, ...]]]) -> list[tuple[Make, float]]:
    """What each lane is, by its number."""
    return [(make, rate) for make, rates in lanes for rate in rates]


@pytest.mark.parametrize("lanes", LANES.values(), ids=LANES)
@pytest.mark.parametrize("offload", [False, True])
def test_each_lane_is_a_run_of_its_own(lanes: list[tuple[Make, tuple[float, ...]]], offload: bool) -> None:
    model = network()
    optimizer = race(model, lanes, offload=offload)
    losses = train(optimizer, model, minibatches())
    assert [len(step) for step in losses] == [len(runs(lanes))] * 12 + [3] * 12 + [1] * 16
    winner = next(row for row in optimizer.standings() if row.reason == "won")
    for number, (make, rate) in enumerate(runs(lanes)):
        other = network()
        base = make(list(other.parameters()))
        expected = alone(other, base, rate, Schedule(STEPS), minibatches())
        seen = [step[number] for step in losses if number in step]
        assert seen == expected[: len(seen)]
        if number == winner.lane:
            assert len(seen) == STEPS
            assert same(contents(model), contents(other))
            assert type(optimizer.base) is type(base)
            assert winner.optimizer.partition(" ")[0] == type(base).__name__
            for mine, theirs in zip(optimizer.param_groups, base.param_groups, strict=True):
                rest = mine.keys() - {"params", "lr"}
                assert rest == theirs.keys() - {"params", "lr"}
                assert {name: mine[name] for name in rest} == {name: theirs[name] for name in rest}


@pytest.mark.parametrize(
    ("name", "winner"), [("SGD wins", "SGD"), ("AdamW wins", "AdamW"), ("the late one wins", "Late")]
)
def test_the_winners_are_those_that_the_tests_are_named_for(name: str, winner: str) -> None:
    model = network()
    optimizer = race(model, LANES[name])
    train(optimizer, model, minibatches())
    assert type(optimizer.base).__name__ == winner


def test_one_base_in_a_list_is_one_base() -> None:
    model, other = network(), network()
    one = race(model, [(adamw, (0.1, 0.01, 0.001))], rounds=((12, 2), (24, 1)))
    two = hotswap.Race(adamw(other.parameters()), {"lr": (0.1, 0.01, 0.001)}, STEPS, rounds=((12, 2), (24, 1)), least=5)
    assert train(one, model, minibatches()) == train(two, other, minibatches())
    assert str(one.standings()) == str(two.standings())
    assert repr(one) == repr(two)
    assert one.state_dict()["param_groups"][0]["race"].keys() == two.state_dict()["param_groups"][0]["race"].keys()


def test_the_default_lanes() -> None:
    """Of AdamW its six rates, of SGD beside it the three that were measured."""
    for own, rates in ({}, (1.0, 0.3, 0.1)), ({"lr": 0.1}, (1.0, 0.3, 0.1)), ({"lr": 0.02}, (0.2, 0.06, 0.02)):
        model = network()
        bases = [AdamW(model.parameters()), SGD(model.parameters(), momentum=0.9, **own)]
        optimizer = hotswap.Race(bases, total_steps=1000)
        assert len(optimizer.arms) == 9
        values = [row.values["lr"] for row in optimizer.standings()]
        assert values[:6] == list(hotswap.log_grid(3e-2, 1e-4, 6))
        assert values[6:] == pytest.approx(rates)
        assert optimizer.standings().leader == 3  # AdamW's own rate
        assert [one.keep for one in optimizer.rounds] == [4, 2, 1]
        mixed = hotswap.Race([AdamW(model.parameters()), SGD(model.parameters())], [None, {"momentum": [0.9, 0.0]}])
        assert mixed.arms.values(6) == {"momentum": 0.9}
        assert len(mixed.arms) == 8


def test_a_base_without_raced_rates_has_its_own() -> None:
    model, other = network(), network()
    optimizer = race(model, arms=[{"lr": SLOW}, {"momentum": [0.9, 0.5]}], rounds=((12, 2), (24, 1)))
    losses = train(optimizer, model, minibatches())
    expected = alone(other, sgd(other.parameters()), 0.1, Schedule(STEPS), minibatches())
    assert [step[2] for step in losses[:12]] == expected[:12]
    assert optimizer.winner in ({"momentum": 0.9}, {"momentum": 0.5})


def test_standings_say_which_optimizer_a_lane_is_of() -> None:
    model = network()
    optimizer = race(model, arms=[{"lr": SLOW}, {"lr": SGD_RATES, "momentum": [0.9]}])
    assert [row.optimizer for row in optimizer.standings()] == ["AdamW"] * 2 + ["SGD"] * 3
    head, first, *_, last = str(optimizer.standings()).splitlines()
    assert head.split() == ["lane", "optimizer", "lr", "momentum", "loss"]
    assert first.split() == ["0", "AdamW", "0.0001", "<-", "leads"]
    assert last.split() == ["4", "SGD", "0.03", "0.9", "racing"]
    train(optimizer, model, minibatches(1))
    assert optimizer.last_step.optimizers == {0: "AdamW", 1: "AdamW", 2: "SGD", 3: "SGD", 4: "SGD"}
    train(optimizer, model, minibatches(STEPS - 1))
    assert optimizer.last_step.optimizers == {optimizer.last_step.leader: "SGD"}
    assert "AdamW, lanes: 2 lr; SGD, lanes: 1 momentum x 3 lr" in repr(optimizer)
    twice = hotswap.Race([SGD(model.parameters()), SGD(model.parameters(), momentum=0.9)])
    assert [row.optimizer for row in twice.standings()] == ["SGD 1"] * 3 + ["SGD 2"] * 3


def test_between_steps_groups_and_state_are_the_leaders() -> None:
    model = network()
    optimizer = race(model)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    groups = optimizer.param_groups
    assert "betas" in groups[0]
    seen = []
    for x, y in minibatches():
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        scheduler.step()
        leads = optimizer.standings()[optimizer.standings().leader].optimizer
        seen.append(leads)
        assert type(optimizer.base).__name__ == leads
        assert optimizer.param_groups[0] is groups[0]
        assert ("betas" in groups[0]) == ("exp_avg" in optimizer.state[model[0].weight]) == (leads == "AdamW")
        assert ("momentum" in groups[0]) == ("momentum_buffer" in optimizer.state[model[0].weight]) == (leads == "SGD")
        assert groups[0]["weight_decay"] == (0.1 if leads == "AdamW" else 0.0)
        assert (groups[0]["lr"], groups[0]["initial_lr"]) == (1e-3, 1e-3)
    assert set(seen) == {"AdamW", "SGD"}


def test_what_is_set_in_the_groups_is_set_for_the_leaders_optimizer() -> None:
    model, one, two = network(), network(), network()
    optimizer = race(model)
    optimizer.param_groups[0]["weight_decay"] = 0.5
    losses = train(optimizer, model, minibatches(12))
    expected = alone(one, AdamW(one.parameters(), weight_decay=0.5), 1e-4, Schedule(STEPS), minibatches())
    assert [step[0] for step in losses] == expected[:12]
    expected = alone(two, sgd(two.parameters()), 0.3, Schedule(STEPS), minibatches())
    assert [step[2] for step in losses] == expected[:12]


def test_groups_keep_the_ratio_that_each_optimizer_gives_them() -> None:
    def groups(model: nn.Sequential, *rates: float) -> list[dict[str, Any]]:
        return [
            {"params": list(model[place].parameters()), "lr": rate} for place, rate in zip((0, 6), rates, strict=True)
        ]

    model, other = network(), network()
    bases = [AdamW(groups(model, 1e-3, 1e-4)), SGD(groups(model, 0.1, 0.05), momentum=0.9)]
    arms = [{"lr": SLOW}, {"lr": SGD_RATES}]
    optimizer = hotswap.Race(bases, arms, STEPS, rounds=((24, 1),), least=5, warmup=None, decay=None, module=model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    torch.manual_seed(7)
    for step, (x, y) in enumerate(minibatches()):
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
        for number, values in optimizer.last_step.values.items():
            assert values["lr"] == pytest.approx((*SLOW, *SGD_RATES)[number] / (1 + step))
        scheduler.step()
    assert type(optimizer.base) is SGD
    base = SGD(groups(other, 0.1, 0.05), momentum=0.9)
    torch.manual_seed(7)
    for step, (x, y) in enumerate(minibatches()):
        for group, share in zip(base.param_groups, (1, 0.5), strict=True):
            group["lr"] = optimizer.winner["lr"] * share / (1 + step)  # type: ignore[index, operator]
        base.zero_grad()
        cross_entropy(other(x), y).backward()
        base.step()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("when", [5, 15, 30])
def test_groups_that_are_added_on_the_way(when: int) -> None:
    """While lanes of both race, and when the leader, or the winner, is of the second base."""
    model, extra = network(), nn.Linear(3, 3)
    optimizer = race(model)
    train(optimizer, model, minibatches(when))
    optimizer.add_param_group({"params": extra.parameters(), "weight_decay": 0.3})
    before = extra.weight.clone()
    for x, y in minibatches(STEPS - when):
        optimizer.step(lambda x=x, y=y: cross_entropy(extra(model(x)), y))
    added = optimizer.param_groups[1]
    assert type(optimizer.base) is SGD
    assert (added["lr"], added["weight_decay"], added["momentum"]) == (1e-3, 0.3, 0.9)
    assert "betas" not in added
    assert not torch.equal(before, extra.weight)
    assert optimizer._probe.move.scale(added) == 1.0  # the first group's rate


@pytest.mark.parametrize("lanes", LANES.values(), ids=LANES)
@pytest.mark.parametrize("when", [0, 1, 7, 12, 18, 24, 33])
def test_it_goes_on_exactly(when: int, lanes: list[tuple[Make, tuple[float, ...]]]) -> None:
    straight, model, again = network(), network(), network(seed=5)
    optimizer, first, second = race(straight, lanes), race(model, lanes), race(again, lanes)
    expected, batches = train(optimizer, straight, minibatches()), list(minibatches())
    losses = train(first, model, batches[:when])
    file = saved({"model": model.state_dict(), "optimizer": first.state_dict(), "numbers": torch.get_rng_state()})
    train(second, again, batches[:3])  # wherever it is, it goes on from there
    again.load_state_dict(file["model"])
    second.load_state_dict(file["optimizer"])
    if when:
        torch.set_rng_state(file["numbers"])
    losses += train(second, again, batches[when:], seed=None if when else 7)
    assert losses == expected
    assert same(contents(straight), contents(again))
    assert str(second.standings()) == str(optimizer.standings())
    assert (second.winner, second.cost) == (optimizer.winner, optimizer.cost)


@pytest.mark.parametrize("lanes", LANES.values(), ids=LANES)
@pytest.mark.parametrize("when", [0, 7, 18, 33])
def test_a_deep_copy_goes_on_by_itself(when: int, lanes: list[tuple[Make, tuple[float, ...]]]) -> None:
    model, batches = network(), list(minibatches())
    optimizer = race(model, lanes)
    train(optimizer, model, batches[:when])
    twin_model, twin = copy.deepcopy((model, optimizer))
    assert train(optimizer, model, batches[when:]) == train(twin, twin_model, batches[when:])
    assert same(contents(model), contents(twin_model))
    assert str(optimizer.standings()) == str(twin.standings())


def test_a_schedule_of_ones_own_goes_on_exactly() -> None:
    """Also where the one that leads is not the one in whose units rates are written."""
    model, again, batches = network(), network(), list(minibatches())
    first, second = (race(net, warmup=None, decay=None) for net in (model, again))
    one, two = (torch.optim.lr_scheduler.ExponentialLR(race, 0.9) for race in (first, second))

    def go(optimizer: Any, net: nn.Module, scheduler: Any, some: Any) -> list[Any]:
        found = []
        for batch in some:
            found += train(optimizer, net, [batch], seed=None)
            scheduler.step()
        return found

    go(first, model, one, batches[:18])
    assert type(first.base) is SGD
    file = saved({"model": model.state_dict(), "race": first.state_dict(), "schedule": one.state_dict()})
    numbers = torch.get_rng_state()
    expected = go(first, model, one, batches[18:])
    again.load_state_dict(file["model"])
    second.load_state_dict(file["race"])
    two.load_state_dict(file["schedule"])
    torch.set_rng_state(numbers)
    assert go(second, again, two, batches[18:]) == expected
    assert first.param_groups[0]["lr"] == second.param_groups[0]["lr"] == pytest.approx(1e-3 * 0.9**STEPS)


def test_weights_in_bfloat16_go_on_exactly() -> None:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).bfloat16()

    def go(optimizer: Any, model: nn.Module, batches: Any) -> list[Any]:
        found = []
        for x, y in batches:
            optimizer.step(lambda x=x, y=y: cross_entropy(model(x.bfloat16()).float(), y))
            found.append(optimizer.last_step.losses)
        return found

    batches, model, again, single = list(minibatches()), made(), made(), made()
    optimizer, second = race(model), race(again)
    losses = go(optimizer, model, batches[:7])
    file = saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again.load_state_dict(file["model"])
    second.load_state_dict(file["optimizer"])
    rest = go(optimizer, model, batches[7:])
    assert rest == go(second, again, batches[7:])
    of_sgd = hotswap.Race(sgd(single.parameters()), {"lr": SGD_RATES}, STEPS, rounds=((24, 1),), least=5, module=single)
    for mine, theirs in zip((losses + rest)[:12], go(of_sgd, single, batches)[:12], strict=True):
        assert [mine[number] for number in (2, 3, 4)] == [theirs[number] for number in (0, 1, 2)]


def test_lanes_that_are_out_leave_nothing() -> None:
    model = network()
    optimizer = race(model)
    batches = iter(minibatches())
    train(optimizer, model, [next(batches) for _ in range(5)])
    held = [weakref.ref(tensor) for lane in optimizer._course.lanes for tensor in lane.state[model[0].weight].values()]
    held += [weakref.ref(lane.weights[model[0].weight]) for lane in optimizer._course.lanes]
    won = optimizer._course.lanes[2:]
    train(optimizer, model, [next(batches) for _ in range(25)])
    assert optimizer._course.lanes[0] in won
    del won
    gc.collect()
    assert sum(tensor() is not None for tensor in held) == 1  # the winner's momentum


def test_where_all_diverge_the_race_begins_again_a_decade_lower() -> None:
    """Plain descent on a square diverges for rates above 1; so does the one that divides its rate by what it wrote."""

    def made(*rates: tuple[float, ...]) -> tuple[nn.Parameter, hotswap.Race]:
        parameter = nn.Parameter(torch.ones(3))
        bases = [SGD([parameter], lr=1.0), Late([parameter]), SGD([parameter], lr=1.0, momentum=0.5)]
        settings: dict[str, Any] = {"warmup": None, "decay": None, "least": 5, "rounds": ((30, 1),)}
        return parameter, hotswap.Race(bases, [{"lr": some} for some in rates], 200, **settings)

    parameter, optimizer = made((4.0, 2.0), (80.0, 40.0), (5.0,))
    with pytest.warns(HotSwapWarning, match="began again with rates ten times smaller"):
        until_it_begins_again(optimizer, parameter)
    assert torch.equal(parameter, torch.ones(3))
    assert not optimizer.state
    assert optimizer.base is optimizer._bases.drivers[0].base
    assert "k" not in optimizer.param_groups[0]
    twin, other = made((0.4, 0.2), (8.0, 4.0), (0.5,))
    for _ in range(40):
        optimizer.step(lambda: parameter.square().sum())
        other.step(lambda: twin.square().sum())
        mine, theirs = optimizer.last_step, other.last_step
        assert mine is not None
        assert theirs is not None
        assert mine.losses == pytest.approx(theirs.losses, rel=1e-3, abs=1e-12)
    assert optimizer.winner == pytest.approx(other.winner)


def test_a_winner_that_diverges_goes_back_with_half_its_rate() -> None:
    model = network()
    optimizer = race(model, LANES["the late one wins"])
    batches = list(minibatches())
    train(optimizer, model, batches[:25])
    kept, steps = optimizer._course.kept, optimizer.param_groups[0]["k"]
    assert (type(optimizer.base), steps) == (Late, 25)
    with torch.no_grad():
        model[6].weight.fill_(torch.nan)
    x, y = batches[0]
    with pytest.warns(HotSwapWarning, match="went back to its snapshot"):
        until_it_goes_back(optimizer, lambda: cross_entropy(model(x), y))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), kept.parameters, strict=True))
    assert optimizer.param_groups[0]["k"] == kept.groups[0]["k"] <= steps


def test_a_closure_that_fails_leaves_the_leader_as_it_was() -> None:
    model = network()
    optimizer = race(model)
    train(optimizer, model, minibatches(3))
    before, calls = contents(model), 0
    moments = copy.deepcopy(optimizer.state[model[0].weight])

    def closure() -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 3:  # in a lane of the other optimizer
            raise OSError("no such minibatch")
        x, y = next(minibatches(1))
        return cross_entropy(model(x), y)

    with pytest.raises(OSError, match="no such minibatch"):
        optimizer.step(closure)
    assert same(before, contents(model))
    assert type(optimizer.base) is AdamW
    assert "betas" in optimizer.param_groups[0]
    assert all(torch.equal(moments[name], value) for name, value in optimizer.state[model[0].weight].items())


def test_lanes_of_several_optimizers_as_one_program() -> None:
    """The gradient passes of all lanes are one; the steps are each optimizer's."""
    found = []
    for together in (False, True):
        model = network().double()
        optimizer = race(model)
        losses = []
        torch.manual_seed(7)
        for number, (x, y) in enumerate(minibatches()):
            if together and number == 1:
                optimizer._course.trying = Always(model)
            optimizer.step(lambda x=x, y=y, model=model: cross_entropy(model(x.double()), y))
            losses.append(optimizer.last_step.losses)
        found.append(losses)
    assert optimizer._course.trying.choice is not None  # it has not given up
    for these, those in zip(*found, strict=True):
        assert these == pytest.approx(those, rel=1e-9)


def test_an_average_of_the_winners_weights() -> None:
    model = network()
    optimizer = race(model, total_steps=None)
    train(optimizer, model, minibatches())
    now = contents(model)
    with optimizer.average():
        assert not same(contents(model), now)
    assert same(contents(model), now)
    assert type(optimizer.base) is SGD

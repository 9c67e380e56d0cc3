"""The guard of an optimizer: back to the snapshot, bit for bit."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hotswap import DiscountedUCB, Guard, HotSwap, HotSwapSGD, HotSwapWarning, LossError, NoSearch, SettingError
from tests.optim.helpers import (
    batches,
    loss_of,
    masters_of,
    model,
    noisy,
    own_entry,
    same,
    through_a_file,
    train,
    weights,
)

QUICK = Guard(factor=1.5, steps=2, every=4, memory=0.0)
PATIENT = Guard(factor=10.0, every=4)
pytestmark = pytest.mark.filterwarnings("ignore:The loss is .* and the guard has gone back")


def spoiled(net: nn.Module, batch: Any, by: float = math.nan) -> Callable[[], Tensor]:
    """A closure whose loss is not a number, or much too large."""
    return lambda: loss_of(net, batch)() * by


BUILDS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "sgd": lambda net: HotSwapSGD(net, [0.1, 0.01], momentum=0.9, search=NoSearch(), guard=PATIENT),
    "adam": lambda net: HotSwap(
        torch.optim.Adam(net.parameters(), amsgrad=True), {"lr": [0.1, 0.01]}, search=NoSearch(), guard=PATIENT
    ),
    "exact": lambda net: HotSwap(
        torch.optim.Adafactor(net.parameters()), {"lr": [0.1, 0.01]}, search=NoSearch(), guard=PATIENT
    ),
    "with a search": lambda net: HotSwapSGD(net, [0.1, 0.01], momentum=0.9, guard=PATIENT),
    "every third": lambda net: HotSwapSGD(net, [0.1, 0.01], momentum=0.9, guard=PATIENT, search_every=3),
}


def everything(net: nn.Module, optimizer: HotSwap) -> list[Tensor]:
    """Parameters, buffers and the base's state."""
    state = [v.clone() for p in net.parameters() for _, v in sorted(optimizer.state.get(p, {}).items())]
    return [*weights(net), *(buffer.clone() for buffer in net.buffers()), *state]


@pytest.mark.parametrize("build", BUILDS)
def test_everything_is_again_as_it_was_at_the_snapshot(build: str) -> None:
    net, data = noisy(), batches(8)
    optimizer = BUILDS[build](net)
    train(net, optimizer, data[:4])
    seen: list[list[Tensor]] = []

    def closure() -> Tensor:
        return loss_of(net, data[4])()

    optimizer.register_step_pre_hook(lambda *_: seen.append(everything(net, optimizer)))
    optimizer.step(closure)  # the fifth step takes a snapshot, after its gradient pass
    kept = optimizer._guarding.snapshot  # type: ignore[union-attr]
    assert kept is not None
    assert same(kept.parameters, seen[0][: len(kept.parameters)])
    buffers = [buffer.clone() for buffer in net.buffers()]
    train(net, optimizer, data[5:7])
    before = everything(net, optimizer)
    optimizer.step(spoiled(net, data[7]))
    record = optimizer.last_step
    assert record is not None
    assert record.rolled_back
    assert record.arm is None
    assert record.values == {"lr": 0.0}
    assert math.isnan(record.loss_before)
    assert optimizer.rollbacks == 1
    now = everything(net, optimizer)
    assert not same(now, before)
    assert same(weights(net), kept.parameters)
    assert same(list(net.buffers()), buffers)
    states = [v for place in sorted(kept.state) for _, v in sorted(kept.state[place].items())]
    assert same(now[-len(states) :], states)
    tracked = net.get_buffer("1.num_batches_tracked")
    assert tracked == 5  # the gradient pass of the snapshot is the last that counts
    optimizer.step(closure)
    assert not optimizer.last_step.rolled_back  # type: ignore[union-attr]


def test_the_loss_may_rise_but_not_for_too_long_nor_too_far() -> None:
    net, batch = model(), batches(1)[0]
    optimizer = HotSwapSGD(net, [1e-6], search=NoSearch(), guard=QUICK)
    marks = []
    for by in (1.0, 1.4, 1.6, 1.0, 1.6, 1.6, 1.0):
        optimizer.step(spoiled(net, batch, by))
        marks.append(optimizer.last_step.rolled_back)  # type: ignore[union-attr]
    assert marks == [False, False, False, False, False, True, False]


def test_the_guilty_arm_is_told_of_and_no_rate_as_large_is_taken_until_the_next_snapshot() -> None:
    net, data = model(), batches(12)
    bandit = DiscountedUCB(discount=1.0, exploration=0.0)
    optimizer = HotSwapSGD(net, [0.3, 0.2, 0.1], bandit=bandit, search=NoSearch(), guard=QUICK)
    optimizer.step(loss_of(net, data[0]))  # takes arm 0
    assert optimizer.last_step.arm == 0  # type: ignore[union-attr]
    optimizer.step(spoiled(net, data[1]))
    rows = optimizer.statistics()
    assert (rows[0].count, rows[0].mean) == (1.0, -100.0)
    assert own_entry(optimizer)["untried"] is None  # what waited for its reward has got this one
    arms = [record.arm for record in train(net, optimizer, data[2:6])]
    assert arms[0] == 1  # the sweep goes on, from arm 1
    assert 0 not in arms[:3]
    assert own_entry(optimizer)["guard"]["state"][-1] == 0  # after the snapshot any arm may be taken
    optimizer.step(spoiled(net, data[6]))
    lowest = own_entry(optimizer)["guard"]["state"][-1]
    assert lowest == min(arms[-1] + 1, 2)


def test_a_search_may_begin_above_but_takes_no_rate_as_large() -> None:
    net, data = model(), batches(12)
    optimizer = HotSwapSGD(net, [0.3, 0.2, 0.1], guard=Guard(every=100))
    records = train(net, optimizer, data[:5])
    optimizer.step(spoiled(net, data[5]))
    ceiling = min(records[-1].arm + 1, 2)
    later = train(net, optimizer, data[6:])
    assert all(record.arm is None or record.arm >= ceiling for record in later)
    assert any(record.trials for record in later)


def test_values_in_force_are_lowered_too() -> None:
    net, data = model(), batches(6)
    optimizer = HotSwapSGD(net, [0.3, 0.2, 0.1], search_every=100, guard=Guard(every=100))
    taken = train(net, optimizer, data[:2])[-1].arm
    optimizer.step(spoiled(net, data[2]))
    assert [record.arm for record in train(net, optimizer, data[3:])] == [min(taken + 1, 2)] * 3


def test_before_the_first_snapshot_there_is_no_way_back() -> None:
    net = model()
    optimizer = HotSwapSGD(net, [0.1], search=NoSearch(), guard=QUICK)
    before = weights(net)
    with pytest.raises(LossError, match="is nan"):
        optimizer.step(spoiled(net, batches(1)[0]))
    assert same(weights(net), before)
    train(net, optimizer, batches(2))
    optimizer.step(spoiled(net, batches(1)[0]))
    assert optimizer.rollbacks == 1


def test_a_negative_loss_is_refused_with_or_without_a_guard() -> None:
    net = model()
    optimizer = HotSwapSGD(net, [0.1], search=NoSearch(), guard=QUICK)
    train(net, optimizer, batches(2))
    with pytest.raises(LossError, match="RelativeReduction"):
        optimizer.step(spoiled(net, batches(1)[0], -1.0))


@pytest.mark.filterwarnings("default")
def test_it_is_warned_of_once() -> None:
    net = model()
    optimizer = HotSwapSGD(net, [0.1], search=NoSearch(), guard=QUICK)
    train(net, optimizer, batches(2))
    with pytest.warns(HotSwapWarning, match=r"gone back to its snapshot\. What was taken last was lr=0\.1") as caught:
        optimizer.step(spoiled(net, batches(1)[0]))
    optimizer.step(spoiled(net, batches(1)[0]))
    assert len(caught) == 1
    assert optimizer.rollbacks == 2


def test_a_step_that_destroys_the_weights_is_undone() -> None:
    """Without a search nothing else saves a run from a rate that is much too large."""
    net = model()
    bandit = DiscountedUCB(exploration=0.0)
    optimizer = HotSwapSGD(net, [1e30, 0.3, 0.1], bandit=bandit, search=NoSearch(), guard=Guard(every=10, steps=3))
    losses = [record.loss_before for record in train(net, optimizer, batches(150))]
    assert optimizer.rollbacks >= 1
    assert all(torch.isfinite(parameter).all() for parameter in net.parameters())
    assert sum(losses[-20:]) / 20 < 0.9


def test_master_weights_go_back() -> None:
    net = model(dtype=torch.bfloat16)
    data = [(x.bfloat16(), y) for x, y in batches(6)]
    optimizer = HotSwapSGD(net, [1e-4], search=NoSearch(), guard=Guard(every=100))
    start = [parameter.float() for parameter in weights(net)]
    train(net, optimizer, data[:4])
    assert not same(masters_of(optimizer), start)
    optimizer.step(spoiled(net, data[4]))
    assert same(masters_of(optimizer), start)
    assert same([value.float() for value in weights(net)], start)


class CountsInItsGroup(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        self.param_groups[0]["k"] += 1
        return super().step(closure)


def test_what_the_base_writes_into_its_groups_goes_back_and_a_scheduler_does_not() -> None:
    net, data = model(), batches(9)
    base = CountsInItsGroup(net.parameters(), lr=1.0)
    base.param_groups[0]["k"] = 0
    optimizer = HotSwap(base, {"lr": [0.1]}, search=NoSearch(), guard=Guard(every=4))
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for batch in data[:7]:
        optimizer.step(loss_of(net, batch))
        schedule.step()
    assert base.param_groups[0]["k"] == 7
    optimizer.step(spoiled(net, data[7]))
    assert base.param_groups[0]["k"] == 4  # at the snapshot of the fifth step
    assert base.param_groups[0]["lr"] == 0.5**7


def test_parameters_that_came_later_stay() -> None:
    net, late = model(), nn.Parameter(torch.ones(3))
    optimizer = HotSwapSGD(net.parameters(), [0.1], momentum=0.5, search=NoSearch(), guard=Guard(every=100))
    train(net, optimizer, batches(1))
    optimizer.add_param_group({"params": [late]})
    optimizer.step(lambda: loss_of(net, batches(1)[0])() + late.square().sum())
    moved = late.detach().clone()
    optimizer.step(spoiled(net, batches(1)[0]))
    assert torch.equal(late, moved)
    assert late in optimizer.state


def test_the_modules_are_found_without_being_named() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters(), [0.1], search=NoSearch(), guard=Guard(every=100))
    train(net, optimizer, batches(1))
    kept = [buffer.clone() for buffer in net.buffers()]
    train(net, optimizer, batches(3))
    optimizer.step(spoiled(net, batches(1)[0]))
    assert same(list(net.buffers()), kept)


# --- stopping and going on --------------------------------------------------------------------------------------------


def guarded_run(net: nn.Module, optimizer: HotSwap, data: list[Any], bad: set[int], first: int = 0) -> list[Any]:
    records = []
    for number, batch in enumerate(data, start=first):
        optimizer.step(spoiled(net, batch) if number in bad else loss_of(net, batch))
        records.append(optimizer.last_step)
    return records


@pytest.mark.parametrize("after", [1, 7, 12])
@pytest.mark.parametrize("build", BUILDS)
def test_resumes_exactly(build: str, after: int) -> None:
    data, bad, net = batches(20), {6, 9, 15}, noisy()
    optimizer = BUILDS[build](net)
    guarded_run(net, optimizer, data[:after], bad)
    saved = through_a_file({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "r": torch.get_rng_state()})
    expected = guarded_run(net, optimizer, data[after:], bad, after)
    again = noisy()
    resumed = BUILDS[build](again)
    train(again, resumed, batches(3, seed=5))
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["r"])
    assert repr(guarded_run(again, resumed, data[after:], bad, after)) == repr(expected)
    assert same(everything(again, resumed), everything(net, optimizer))
    assert resumed.rollbacks == optimizer.rollbacks


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deep", "pickle"]
)
@pytest.mark.parametrize("build", BUILDS)
def test_copies_go_back_on_their_own(build: str, copied: Callable[[Any], Any]) -> None:
    data, net = batches(14), noisy()
    optimizer = BUILDS[build](net)
    guarded_run(net, optimizer, data[:6], set())
    twin_net, twin = copied((net, optimizer))
    state, before = torch.get_rng_state(), everything(twin_net, twin)
    expected = guarded_run(net, optimizer, data[6:], {8}, 6)
    assert same(everything(twin_net, twin), before)
    torch.set_rng_state(state)
    assert repr(guarded_run(twin_net, twin, data[6:], {8}, 6)) == repr(expected)
    assert same(everything(twin_net, twin), everything(net, optimizer))


def test_a_checkpoint_without_a_guard_begins_with_a_snapshot() -> None:
    net = model()
    plain = HotSwapSGD(net, [0.1, 0.01])
    train(net, plain, batches(3))
    optimizer = HotSwapSGD(net, [0.1, 0.01], guard=QUICK)
    train(net, optimizer, batches(2))
    optimizer.load_state_dict(plain.state_dict())
    with pytest.raises(LossError, match="is nan"):  # the old snapshot is of another run
        optimizer.step(spoiled(net, batches(1)[0]))
    optimizer.step(loss_of(net, batches(1)[0]))
    optimizer.step(spoiled(net, batches(1)[0]))
    assert optimizer.rollbacks == 1
    plain.load_state_dict(optimizer.state_dict())  # and the other way round


def test_a_guard_that_is_none() -> None:
    with pytest.raises(SettingError, match=r"guard must be a hotswap\.Guard object, or None"):
        HotSwapSGD(model(), guard=3)  # type: ignore[arg-type]

"""Steps without trials: what they take, what they learn, and what they leave out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hotswap import (
    DiscountedUCB,
    HotSwap,
    HotSwapSGD,
    HotSwapWarning,
    LossError,
    NoSearch,
    RelativeReduction,
    SettingError,
    UnsupportedError,
    accumulate,
)
from hotswap.optim.moves import Move
from hotswap.optim.surroundings import BufferSnapshot, RandomState
from tests.optim.helpers import (
    batches,
    loss_of,
    model,
    noisy,
    own_entry,
    same,
    train,
    weights,
)

RATES = [1.0, 0.3, 0.1, 0.03]

BUILDS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "every third": lambda net: HotSwapSGD(net, RATES, search_every=3),
    "every third, momentum": lambda net: HotSwapSGD(net, RATES, momentum=0.9, search_every=3),
    "adam": lambda net: HotSwap(torch.optim.Adam(net.parameters()), {"lr": [0.1, 0.01]}, search_every=4, module=net),
    "risen": lambda net: HotSwapSGD(net, RATES, search_when="risen"),
    "unsure": lambda net: HotSwapSGD(net, RATES, bandit=DiscountedUCB(exploration=1e-3), search_when="unsure"),
    "either": lambda net: HotSwapSGD(net, RATES, search_every=5, search_when="risen"),
    "none": lambda net: HotSwapSGD(net, RATES, search=NoSearch()),
    "none, every third": lambda net: HotSwapSGD(net, RATES, search=NoSearch(), search_every=3),
    "none, relative": lambda net: HotSwapSGD(net, RATES, search=NoSearch(), reward=RelativeReduction()),
    "product": lambda net: HotSwap(
        torch.optim.Adam(net.parameters()), {"lr": [0.1, 0.01], "betas": [(0.9, 0.99), (0.5, 0.9)]}, search_every=3
    ),
}


def searched(records: list[Any]) -> list[bool]:
    return [bool(record.trials) for record in records]


# --- which steps search -----------------------------------------------------------------------------------------------


def test_every_third_step_searches_and_the_others_apply_what_it_chose() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, search_every=3)
    records = train(net, optimizer, batches(30))
    assert searched(records) == [number % 3 == 0 for number in range(30)]
    for number, record in enumerate(records):
        if number % 3:
            latest = [earlier.arm for earlier in records[:number] if earlier.arm is not None][-1]
            assert record.arm == record.start == latest
            assert record.values == {"lr": RATES[latest]}
            assert record.trials == record.rewards == ()
            assert math.isnan(record.loss_after)
            assert record.loss_before > 0


def test_it_searches_while_the_bandit_is_unsure_and_no_longer() -> None:
    net = model()
    sure = DiscountedUCB(discount=1.0, exploration=0.0)  # arms do not overlap once all were tried
    optimizer = HotSwapSGD(net, [0.3, 0.1], bandit=sure, search_when="unsure")
    marks = searched(train(net, optimizer, batches(12)))
    assert marks[0]
    assert not any(marks[4:])


def test_it_searches_when_the_loss_has_risen() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = HotSwapSGD([parameter], [0.1], search_when="risen")
    offset = [1.0, 1.0, 1.0, 30.0, 1.0, 1.0]
    marks = []
    for value in offset:
        optimizer.step(lambda value=value: parameter.square().sum() + value)
        marks.append(bool(optimizer.last_step.trials))
    assert marks == [True, False, False, True, False, False]


def test_a_search_without_trials_takes_what_the_bandit_proposes() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, search=NoSearch())
    records = train(net, optimizer, batches(3))
    assert [record.arm for record in records] == [0, 1, 2]  # the sweep
    assert all(math.isnan(record.loss_after) for record in records)


def test_between_proposals_a_search_without_trials_keeps_what_is_in_force() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, search=NoSearch(), search_every=3)
    arms = [record.arm for record in train(net, optimizer, batches(30))]
    assert all(len(set(arms[first : first + 3])) == 1 for first in range(0, 30, 3))
    assert len(set(arms)) > 1


# --- what is taken ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["sgd", "adam", "adafactor"])
def test_a_step_without_trials_is_the_bases_step(base: str) -> None:
    net, twin = noisy(), noisy()
    plain, inner = (
        {
            "sgd": lambda n: torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01),
            "adam": lambda n: torch.optim.AdamW(n.parameters(), lr=0.1, weight_decay=0.1),
            "adafactor": lambda n: torch.optim.Adafactor(n.parameters(), lr=0.1),
        }[base](n)
        for n in (twin, net)
    )
    optimizer = HotSwap(inner, {"lr": [0.1]}, search=NoSearch(), module=net)
    for batch in batches(8):
        state = torch.get_rng_state()
        loss = optimizer.step(loss_of(net, batch))
        torch.set_rng_state(state)
        plain.zero_grad()
        expected = loss_of(twin, batch)()
        expected.backward()
        plain.step()
        assert loss.item() == expected.item()
        assert same(weights(net), weights(twin))
        assert same(list(net.buffers()), list(twin.buffers()))


def test_nothing_is_copied_and_no_random_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    net = noisy()
    between = HotSwapSGD(net, RATES, search_every=100)
    between.step(loss_of(net, batches(1)[0]))
    untried = HotSwapSGD(net, RATES, search=NoSearch())
    for owner, name in ((Move, "prepare"), (RandomState, "read"), (RandomState, "write"), (BufferSnapshot, "read")):
        monkeypatch.setattr(owner, name, refuse)
    evaluations: list[int] = []

    def closure() -> torch.Tensor:
        evaluations.append(1)
        return loss_of(net, batches(1)[0])()

    between.step(closure)
    untried.step(closure)
    with between.gradient_pass():
        closure().backward()
    assert len(evaluations) == 3


def test_clipping_and_groups_and_schedulers_hold() -> None:
    first, second = (nn.Parameter(torch.tensor([3.0, 4.0])) for _ in range(2))
    groups = [{"params": [first], "lr": 1.0}, {"params": [second], "lr": 0.1}]
    optimizer = HotSwapSGD(groups, [0.5], search=NoSearch(), clip_norm=math.sqrt(2.0))
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=1)
    optimizer.step(lambda: 0.5 * (first.square().sum() + second.square().sum()))
    assert optimizer.last_step.values == {"lr": 0.25}
    torch.testing.assert_close(first.data, torch.tensor([3.0, 4.0]) * (1 - 0.25 / 5), rtol=1e-5, atol=0)
    torch.testing.assert_close(second.data, torch.tensor([3.0, 4.0]) * (1 - 0.025 / 5), rtol=1e-5, atol=0)
    schedule.step()


def test_a_scale_of_zero_moves_nothing_and_waits_for_no_reward() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, momentum=0.9, search=NoSearch())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: float(t > 0))
    before = weights(net)
    optimizer.step(loss_of(net, batches(1)[0]))
    assert same(weights(net), before)
    assert len(optimizer.state) == 4  # the momentum has seen the gradient all the same
    assert optimizer.last_step.arm is None
    assert own_entry(optimizer)["untried"] is None
    schedule.step()
    optimizer.step(loss_of(net, batches(1)[0]))
    assert optimizer.last_step.arm == 0


def test_an_overflow_leaves_the_step_out() -> None:
    parameter = nn.Parameter(torch.tensor([1.0]))
    optimizer = HotSwapSGD([parameter], RATES, search=NoSearch(), loss_scale=2.0**127)
    optimizer.step(lambda: (parameter * 100).square().sum())
    assert parameter.item() == 1.0
    assert optimizer.last_step.arm is None
    assert own_entry(optimizer)["untried"] is None


def test_sparse_gradients() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    before = table.weight.detach().clone()
    optimizer = HotSwapSGD(table, [0.5], search=NoSearch())
    optimizer.step(lambda: table(torch.tensor([1])).square().sum())
    torch.testing.assert_close(table.weight.detach()[1], before[1] * 0.0)
    assert torch.equal(table.weight.detach()[0], before[0])
    clipped = HotSwapSGD(table, [0.5], search=NoSearch(), clip_norm=1.0)
    with pytest.raises(UnsupportedError, match="sparse gradient cannot be clipped"):
        clipped.step(lambda: table(torch.tensor([1])).square().sum())


# --- what is learned --------------------------------------------------------------------------------------------------


def test_an_untried_arm_is_rewarded_with_the_loss_of_the_next_step() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, bandit=DiscountedUCB(discount=0.5), search=NoSearch())
    losses = [optimizer.step(loss_of(net, batch)).item() for batch in batches(5)]
    rows = optimizer.statistics()
    # arms 0, 1, 2 in the sweep; the fourth proposal is arm 3, which nobody has tried, and halves what was known
    assert [row.count for row in rows][:3] == [0.25, 0.25, 0.25]
    for arm in range(3):
        assert rows[arm].mean == pytest.approx(math.log(losses[arm]) - math.log(losses[arm + 1]), rel=1e-9)
    assert rows[3].count == 0.5
    assert own_entry(optimizer)["untried"] == [optimizer.last_step.arm, losses[4]]


def test_the_scale_of_a_relative_reward_is_that_of_the_step_that_took_the_arm() -> None:
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = HotSwapSGD([parameter], [0.1, 0.05], search=NoSearch(), reward=RelativeReduction(memory=0.5))
    offsets = [-3.0, -5.0, -4.0]
    losses = [optimizer.step(lambda offset=offset: parameter.square().sum() + offset).item() for offset in offsets]
    first, second = abs(losses[0]), 0.5 * abs(losses[0]) + 0.5 * abs(losses[1])
    means = [row.mean for row in optimizer.statistics()]
    assert means[0] == pytest.approx((losses[0] - losses[1]) / first)
    assert means[1] == pytest.approx((losses[1] - losses[2]) / second)


def test_between_searches_time_passes_for_the_bandit_and_it_learns_from_each_step() -> None:
    """Whatever is put off until the next search, the bandit ends where it would have been step by step."""
    net = model()
    bandit = DiscountedUCB(discount=0.9)
    optimizer, data = HotSwapSGD(net, RATES, bandit=bandit, search_every=4), batches(14)
    records = train(net, optimizer, data)
    state, waiting = bandit.begin(1, 4), None
    for record in records:
        if waiting is not None:
            reward = math.log(waiting[1] + 1e-15) - math.log(record.loss_before + 1e-15)
            state = bandit.observe(state, [[waiting[0]]], [[reward]])
            waiting = None
        arm, state = bandit.propose(state)
        if record.trials:
            assert record.start == arm.item()
            state = bandit.observe(state, [[tried for tried, _ in record.trials]], [list(record.rewards)])
        else:
            waiting = record.arm, record.loss_before
    assert torch.equal(own_entry(optimizer)["bandit"]["counts"], torch.from_numpy(state.counts))
    torch.testing.assert_close(own_entry(optimizer)["bandit"]["rewards"], torch.from_numpy(state.rewards))
    assert own_entry(optimizer)["bandit"]["step"] == 14


def test_a_reward_that_is_put_off_has_the_scale_of_its_own_step() -> None:
    parameter = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    reward, bandit = RelativeReduction(memory=0.5), DiscountedUCB(discount=1.0)
    optimizer = HotSwapSGD([parameter], [0.1], bandit=bandit, reward=reward, search_every=100)
    losses, tried = [], []
    for offset in [3.0, -5.0, 4.0, -2.0, 7.0]:
        losses.append(optimizer.step(lambda offset=offset: parameter.square().sum() + offset).item())
        tried += optimizer.last_step.rewards
    assert len(tried) == 1  # in the first step, the only search
    scale, untried = 0.0, []
    for before, after in pairwise(losses):
        scale = reward.follow(scale, before)
        untried.append((before - after) / scale)
    row = optimizer.statistics()[0]
    assert row.count == 4
    assert row.mean == pytest.approx((tried[0] + sum(untried[1:])) / 4)


def test_a_step_without_a_loss_between_leaves_the_reward_out() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, search=NoSearch())
    train(net, optimizer, batches(2))
    counts = sum(row.count for row in optimizer.statistics())
    with pytest.warns(HotSwapWarning, match="without a closure"):
        optimizer.step()
    optimizer.step(loss_of(net, batches(1)[0]))
    assert sum(row.count for row in optimizer.statistics()) == counts


# --- other ways to give a loss ----------------------------------------------------------------------------------------


def test_gradients_of_ones_own_bring_their_loss() -> None:
    net, twin, data = noisy(), noisy(), batches(9)
    optimizer, other = (HotSwapSGD(n, RATES, search_every=3, check_closure=False) for n in (net, twin))
    for batch in data:
        state = torch.get_rng_state()
        optimizer.zero_grad()
        with optimizer.gradient_pass():
            loss = loss_of(net, batch)()
            loss.backward()
        optimizer.step(trial_closure=loss_of(net, batch), loss=loss)
        torch.set_rng_state(state)
        other.step(loss_of(twin, batch))
        assert optimizer.last_step == other.last_step
    assert same(weights(net), weights(twin))
    assert same(list(net.buffers()), list(twin.buffers()))


def test_between_searches_a_trial_closure_is_not_evaluated() -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, search_every=2)
    judged: list[int] = []

    def other() -> torch.Tensor:
        judged.append(1)
        return loss_of(net, batches(2)[1])()

    optimizer.step(loss_of(net, batches(1)[0]), trial_closure=other)
    known = len(judged)
    assert known > 1
    loss = optimizer.step(loss_of(net, batches(1)[0]), trial_closure=other)
    assert len(judged) == known
    assert optimizer.last_step.loss_before == loss.item()


def test_accumulation_and_pairs_and_own_backwards_work_without_trials() -> None:
    net, twin, third, data = model(), model(), model(), batches(2)
    nets = (net, twin, third)
    optimizers = [HotSwapSGD(n, [0.1], search=NoSearch()) for n in nets]

    def own() -> torch.Tensor:
        optimizers[2].zero_grad()
        loss = 0.5 * loss_of(third, data[0])() + 0.5 * loss_of(third, data[1])()
        loss.backward()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a closure's own backward costs nothing here
        optimizers[0].step(accumulate(lambda part: cross_entropy(net(part[0]), part[1]), data))
        optimizers[1].step(lambda: (0.5 * loss_of(twin, data[0])() + 0.5 * loss_of(twin, data[1])(), "aux"))
        optimizers[2].step(own)
    assert optimizers[1].last_step.aux == "aux"
    for other in (twin, third):
        for a, b in zip(weights(net), weights(other), strict=True):
            torch.testing.assert_close(a, b)


def test_gradients_from_before_are_still_noticed() -> None:
    net = model()
    optimizer = HotSwapSGD(net, [0.1], search=NoSearch())
    closure = loss_of(net, batches(1)[0])
    for again in range(2):  # the second time it is warned of
        closure().backward()
        with pytest.warns(HotSwapWarning, match="they are discarded") if again else nullcontext():
            optimizer.step(closure)


# --- losses that cannot be judged -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "message"), [(math.nan, "is nan"), (-1.0, "is -1")])
def test_a_loss_that_cannot_be_judged_is_refused_and_nothing_moves(loss: float, message: str) -> None:
    net = model()
    optimizer = HotSwapSGD(net, RATES, momentum=0.9, search=NoSearch())
    train(net, optimizer, batches(2))
    before, known = weights(net), own_entry(optimizer)
    buffers = [state["momentum_buffer"].clone() for state in optimizer.state.values()]
    with pytest.raises(LossError, match=message):
        optimizer.step(lambda: loss_of(net, batches(1)[0])() * 0 + loss)
    assert same(weights(net), before)
    assert same([state["momentum_buffer"] for state in optimizer.state.values()], buffers)
    now = own_entry(optimizer)
    assert now["untried"] == known["untried"]
    assert torch.equal(now["bandit"]["counts"], known["bandit"]["counts"])


# --- stopping and going on --------------------------------------------------------------------------------------------


def test_a_checkpoint_of_searches_in_every_step_goes_on_with_fewer() -> None:
    net = model()
    optimizer, other = HotSwapSGD(net, RATES), HotSwapSGD(net, RATES, search_every=3)
    train(net, optimizer, batches(10))
    assert own_entry(optimizer)["pace"] is None
    other.load_state_dict(optimizer.state_dict())
    assert searched(train(net, other, batches(4))) == [True, False, False, True]
    fresh = HotSwapSGD(net, RATES)
    fresh.load_state_dict(other.state_dict())
    assert searched(train(net, fresh, batches(2))) == [True, True]


def test_another_pace_is_warned_of_and_begins_with_a_search() -> None:
    net = model()
    optimizer, other = HotSwapSGD(net, RATES, search_every=3), HotSwapSGD(net, RATES, search_when="risen")
    train(net, optimizer, batches(5))
    with pytest.warns(HotSwapWarning, match=r"written with pace=Pace\(every=3"):
        other.load_state_dict(optimizer.state_dict())
    assert searched(train(net, other, batches(1) * 3)) == [True, False, False]  # the mean begins where the loss is


# --- bad values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"search_every": 0},
            r"HotSwapSGD\(search_every=0\): search_every must be a whole number of at least 1, or None",
        ),
        ({"search_every": True}, "search_every must be a whole number"),
        ({"search_every": 2.0}, "search_every must be a whole number"),
        ({"search_when": "often"}, r"search_when='often'\): search_when must be one of 'unsure', 'risen', or None"),
    ],
)
def test_bad_values(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        HotSwapSGD(model(), **arguments)


@pytest.mark.parametrize("build", BUILDS)
def test_it_learns(build: str) -> None:
    net = model()
    optimizer = BUILDS[build](net)
    losses = [record.loss_before for record in train(net, optimizer, batches(120))]
    assert sum(losses[-20:]) < 0.9 * sum(losses[:20])

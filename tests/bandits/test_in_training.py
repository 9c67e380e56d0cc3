"""Every bandit where it is used: in an optimizer, in an ensemble of many runs, and traced as one graph."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from hotswap import (
    UCB1,
    Arms,
    Backtracking,
    Bandit,
    DiscountedUCB,
    EpsilonGreedy,
    Exp3S,
    FactoredBandit,
    FirstDecrease,
    FixedArm,
    HotSwap,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
    log_grid,
)
from hotswap.bandits import BANDITS
from hotswap.ensemble import HotSwapped, Mlp, Variant
from hotswap.states import arrays_of
from tests.ensemble.helpers import SIZES, D
from tests.ensemble.helpers import train as train_all
from tests.optim.helpers import batches, loss_of, model, through_a_file

ALL: list[Bandit] = [
    DiscountedUCB(),
    UCB1(),
    SlidingWindowUCB(window=60),
    SmoothedUCB(),
    EpsilonGreedy(),
    ThompsonSampling(),
    Exp3S(),
    FixedArm(rate=1.0),
]
RATES = log_grid(10, 1e-3, 17)
DEVICE = torch.device("cpu")


def test_all_of_them_are_here() -> None:
    assert {type(bandit) for bandit in ALL} == set(BANDITS.values())


def trained(optimizer: HotSwap, net: nn.Module, data: list[Any]) -> list[int]:
    starts = []
    for batch in data:
        optimizer.step(loss_of(net, batch))
        assert optimizer.last_step is not None
        starts.append(optimizer.last_step.start)
    return starts


@torch.no_grad()
def total_loss(net: nn.Module, data: list[Any]) -> float:
    return sum(float(loss_of(net, batch)()) for batch in data)


SWAPPED: dict[str, dict[str, Any]] = {"lr": {"lr": RATES}, "two": {"lr": RATES, "momentum": [0.9, 0.5, 0.0]}}
PAIRS = [(bandit, "lr") for bandit in ALL] + [
    (bandit, "two")
    for bandit in (
        *ALL[:-1],
        FactoredBandit(DiscountedUCB()),
        FactoredBandit((ThompsonSampling(), Exp3S())),
        FactoredBandit((UCB1(), FixedArm(rate=0.1))),
    )
]


def built(bandit: Bandit, swapped: str, seed: int = 3) -> tuple[nn.Module, HotSwap]:
    net, choices = model(), SWAPPED[swapped]
    base = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    return net, HotSwap(base, choices, bandit=bandit.knowing(Arms.of(choices)), seed=seed)


@pytest.mark.parametrize(("bandit", "swapped"), PAIRS, ids=repr)
def test_in_an_optimizer(bandit: Bandit, swapped: str) -> None:
    data = batches(90)
    net, optimizer = built(bandit, swapped)
    before = total_loss(net, data)
    trained(optimizer, net, data[:60])
    assert total_loss(net, data) < 0.8 * before
    rows = optimizer.statistics()
    assert len(str(rows).splitlines()) == 1 + len(optimizer.arms)
    assert sum(row.count for row in rows) > 1
    again, resumed = built(bandit, swapped, seed=8)
    again.load_state_dict(copy.deepcopy(net.state_dict()))
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    assert trained(resumed, again, data[60:]) == trained(optimizer, net, data[60:])


def test_a_fixed_rate_is_where_every_step_starts() -> None:
    net, optimizer = built(FixedArm(rate=0.1), "lr")
    assert set(trained(optimizer, net, batches(10))) == {8}
    assert optimizer.arms.values(8)["lr"] == pytest.approx(0.1)


def ensemble(bandit: Bandit, seeds: list[int], **options: Any) -> HotSwapped:
    network = Mlp(SIZES)
    search = FirstDecrease(headroom=1) if isinstance(bandit, Exp3S) else Backtracking()
    variant = Variant(Arms.of({"lr": RATES}), bandit, search)
    return HotSwapped(network, network.initial(seeds).to(D), [(variant, len(seeds))], seeds, **options)


@pytest.mark.parametrize("bandit", [*ALL, FactoredBandit(UCB1())], ids=repr)
def test_in_an_ensemble(bandit: Bandit) -> None:
    """Runs take the decisions that they take alone, whatever the blocks in which trials are evaluated."""
    together = ensemble(bandit, [3, 1])
    train_all(together, count=400)
    alone = ensemble(bandit, [1], block=(1, 3))
    train_all(alone, count=400)
    assert torch.equal(alone.tally.arms[0], together.tally.arms[1])
    assert torch.equal(alone.tally.sums["trials"][0], together.tally.sums["trials"][1])
    assert together.tally.arms.sum() > 40  # of 80 steps
    for name, tensor in arrays_of(together.learned).items():
        torch.testing.assert_close(arrays_of(alone.learned)[name][0], tensor[1], rtol=1e-9, atol=1e-12, msg=name)


TRACED: list[Bandit] = [
    *ALL[:-1],
    FixedArm(arm=1),
    FactoredBandit((FactoredBandit(EpsilonGreedy(), (1, 2)), DiscountedUCB()), (2, 3)),
]


@pytest.mark.parametrize("bandit", TRACED, ids=repr)
def test_every_method_compiles_without_a_break(bandit: Bandit) -> None:
    """What breaks a graph would read a value back from the device, or leave a CUDA graph."""
    torch._dynamo.reset()

    def step(state: Any, reward: Any, tried: Any) -> Any:
        arm, proposed = bandit.propose(state)
        after = bandit.observe(proposed, torch.stack([arm, (arm + 1) % 6], dim=1), reward, tried)
        return arm, after, bandit.index(after), bandit.counts(after), bandit.means(after), bandit.unsure(after)

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    one = other = bandit.begin(3, 6, DEVICE, [1, 2, 3])
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        reward = torch.randn(3, 2, generator=generator, dtype=D)
        tried = torch.rand(3, 2, generator=generator) < 0.8
        (arm, one, *tables), (again, other, *others) = step(one, reward, tried), compiled(other, reward, tried)
        assert torch.equal(arm, again)
        states = zip(arrays_of(one).values(), arrays_of(other).values(), strict=True)
        for table, same in (*zip(tables, others, strict=True), *states):
            assert torch.equal(table, same)
    torch._dynamo.reset()

"""What a program keeps beside its race, each by the rule that the documentation states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.nn.functional import mse_loss, one_hot
from torch.optim import SGD, Adam, AdamW
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import hotswap
from tests.integrations.racing import (
    BAD,
    GOOD,
    STEPS,
    batches,
    check_equal,
    check_winner,
    data,
    lanes,
    loss_of,
    network,
    race,
    weights,
)

Step = Callable[[Tensor], Any]


def trained(net: nn.Module, optimizer: Any, batch: Any) -> None:
    loss = loss_of(net, batch)
    loss.backward()
    optimizer.step(loss)
    optimizer.zero_grad()


def validated(net: nn.Module) -> float:
    net.eval()
    with torch.no_grad():
        loss = float(loss_of(net, data(500, seed=9).tensors))
    net.train()
    return loss


# Averages of one's own


def test_an_average_restarts_at_the_winner() -> None:
    """One from the beginning has the weights of other lanes in it, such as those of a rate that is far too large."""
    net = network()
    optimizer = hotswap.Race(net, [AdamW(net.parameters(), lr=10.0), *lanes(net)[1:]], total_steps=STEPS)

    def begun() -> AveragedModel:
        return AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.98), use_buffers=True)

    from_the_start, own = begun(), None
    for batch in batches(0, 80):
        trained(net, optimizer, batch)
        from_the_start.update_parameters(net)
        if optimizer.winner is not None:
            own = own or begun()
            own.update_parameters(net)
    assert own is not None
    check_winner(optimizer)
    assert validated(own.module) < 1.1
    assert not validated(from_the_start.module) < 2 * validated(own.module)


# Tensors that belong to a lane


def check_lane_is_whole(make: Callable[[], nn.Module], also: Callable[[nn.Module], Any], step: Any) -> None:
    """The winner is, bit for bit, its optimizer alone on the minibatches of its turns.

    Args:
        make: makes the network.
        also: the further tensors of a lane.
        step: trains the network on a minibatch, with a function that takes a step.
    """
    net = make()
    optimizer = race(net, also=also(net), schedule=None)
    everything, his = list(batches(0, 90)), []
    for number, batch in enumerate(everything):
        if optimizer.current.rates == [GOOD]:
            his.append(number)
        step(net, batch, optimizer.step)
    check_winner(optimizer)
    assert 30 < len(his) < 80
    alone = make()
    single = lanes(alone)[1]
    for number in his:
        step(alone, everything[number], lambda _: single.step())
    check_equal(weights(net), weights(alone))


def test_a_target_network_that_is_named_belongs_to_its_lane() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        net, target = nn.Linear(6, 3), nn.Linear(6, 3)
        target.load_state_dict(net.state_dict())
        target.requires_grad_(False)
        return nn.ModuleList([net, target])

    def step(both: Any, batch: Any, take: Step) -> None:
        net, target = both
        loss = mse_loss(net(batch[0]), (one_hot(batch[1], 3) + target(batch[0])) / 2)
        net.zero_grad()
        loss.backward()
        take(loss)
        with torch.no_grad():
            for mine, theirs in zip(target.parameters(), net.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)

    check_lane_is_whole(make, lambda both: both[1].parameters(), step)


class Reader(nn.Module):
    """A recurrent network whose hidden state goes on from one minibatch to the next, in a buffer."""

    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head = nn.RNNCell(6, 8), nn.Linear(8, 3)
        self.hidden = torch.zeros(16, 8)
        if kept:
            self.register_buffer("hidden", self.__dict__.pop("hidden"))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.cell(x, self.hidden.clone())
        self.hidden.copy_(hidden.detach())
        return self.head(hidden)


@pytest.mark.parametrize("way", ["a buffer", "named in also"])
def test_a_hidden_state_that_goes_on_belongs_to_its_lane(way: str) -> None:
    def step(net: nn.Module, batch: Any, take: Step) -> None:
        loss = loss_of(net, batch)
        net.zero_grad()
        loss.backward()
        take(loss)

    buffered = way == "a buffer"
    check_lane_is_whole(lambda: Reader(kept=buffered), lambda net: [] if buffered else [net.hidden], step)


def test_a_hidden_state_is_reset_at_a_swap() -> None:
    net, optimizer = Reader(kept=False), None
    optimizer = race(net)
    lane, resets = optimizer.current, 0
    for batch in batches(0, 90):
        if optimizer.current is not lane:
            lane, resets = optimizer.current, resets + 1
            net.hidden.zero_()
        before = net.hidden.clone()
        trained(net, optimizer, batch)
        assert not torch.equal(before, net.hidden)
    check_winner(optimizer)
    assert resets in (1, 2)


# Stopping, and keeping the best


def test_the_best_checkpoint_is_written_between_eval_and_train() -> None:
    """It has the weights that were validated, and the run goes on as if nobody had looked."""
    undisturbed, net = network(), network()
    torch.manual_seed(2)
    other = race(undisturbed)
    for batch in batches(0, 100):
        trained(undisturbed, other, batch)
    torch.manual_seed(2)
    optimizer = race(net)
    best, kept = float("inf"), {}
    for number, batch in enumerate(batches(0, 100)):
        trained(net, optimizer, batch)
        if number % 9 == 0:
            optimizer.eval()
            loss = validated(net)
            if loss < best:
                best, kept = loss, weights(net)
            optimizer.train()
    check_equal(weights(net), weights(undisturbed))
    again = network()
    again.load_state_dict(kept)
    assert validated(again) == best


def test_a_run_that_stops_early_hands_over_the_leader() -> None:
    """Also in the middle of the turn of a lane that has diverged."""
    net = network()
    optimizer = hotswap.Race(net, [*lanes(net)[1:], AdamW(net.parameters(), lr=30.0)], total_steps=STEPS)
    for batch in batches(0, 31):
        trained(net, optimizer, batch)
    assert optimizer.current is not optimizer.leader
    raw = validated(net)
    optimizer.eval()
    assert validated(net) < 1.1 < raw


def test_a_run_that_stops_early_may_finish_with_a_few_more_steps() -> None:
    net = network()
    optimizer = hotswap.Race(net, [SGD(net.parameters(), lr=rate) for rate in (BAD, GOOD)])
    for batch in batches(0, 120):
        trained(net, optimizer, batch)
    optimizer.finish(20)
    for batch in batches(0, 20):
        trained(net, optimizer, batch)
    assert optimizer.winner is not None
    assert validated(net) < 1.1


# Data


def test_sorted_data_mislead_losses_and_no_judge() -> None:
    """From hard to easy, lanes that come later look better; shuffled data and a judge are safe."""
    numbers = torch.Generator().manual_seed(0)
    x = torch.randn(STEPS * 16, 6, generator=numbers)
    noise = torch.randn(len(x), 1, generator=numbers) * torch.linspace(1, 0, len(x))[:, None] ** 8 * 10
    y = x.sum(1, keepdim=True) + noise

    def winner(rows: Tensor, judge: Any = None) -> list[float | None]:
        torch.manual_seed(0)
        net = nn.Linear(6, 1)
        optimizer = hotswap.Race(
            net, [SGD(net.parameters(), lr=0.05), AdamW(net.parameters(), lr=BAD)], total_steps=STEPS, judge=judge
        )
        for part in rows.split(16):
            loss = mse_loss(net(x[part]), y[part])
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
        assert optimizer.winner is not None
        return optimizer.winner.rates

    in_order, shuffled = torch.arange(len(x)), torch.randperm(len(x), generator=numbers)
    clean = slice(-500, None)
    assert winner(in_order) == [BAD]
    assert winner(shuffled) == [0.05]
    assert winner(in_order, lambda net: mse_loss(net(x[clean]), y[clean])) == [0.05]


def returns(policy: nn.Module) -> float:
    return -float(policy(torch.eye(6)).detach().softmax(1).diagonal().mean())


def racing_policies(total: int) -> tuple[nn.Module, hotswap.Race]:
    torch.manual_seed(0)
    policy = nn.Linear(6, 6)
    racing = [Adam(policy.parameters(), lr=BAD), Adam(policy.parameters(), lr=0.05)]
    return policy, hotswap.Race(policy, racing, total_steps=total, judge=returns)


def test_a_replay_buffer_is_shared_by_all_lanes() -> None:
    """It suits methods that learn from what other policies did: here, the value of each action."""
    values, optimizer = racing_policies(300)
    buffer: list[tuple[int, int]] = []
    for _ in range(300):
        situation = int(torch.randint(6, ()))
        greedy = int(values(torch.eye(6)[situation]).argmax())
        buffer.append((situation, greedy if torch.rand(()) < 0.5 else int(torch.randint(6, ()))))
        seen = [buffer[int(place)] for place in torch.randint(len(buffer), (32,))]
        situations, actions = torch.tensor(seen).unbind(1)
        predicted = values(torch.eye(6)[situations]).gather(1, actions[:, None])[:, 0]
        loss = mse_loss(predicted, 4.0 * (situations == actions))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(loss)
    assert optimizer.winner is not None
    assert optimizer.winner.rates == [0.05]
    assert returns(values) < -0.6


def test_a_rollout_is_dropped_at_a_swap() -> None:
    """Methods that learn from their own policy alone, such as PPO, collect anew when another lane has the model."""
    policy, optimizer = racing_policies(300)
    steps, dropped = 0, 0
    while steps < 300:
        lane = optimizer.current
        situations = torch.randint(6, (64,))
        with torch.no_grad():
            chances = Categorical(logits=policy(torch.eye(6)[situations]))
        actions, rewards = chances.sample(), None
        before, rewards = chances.log_prob(actions), (actions == situations).float()
        for number, rows in enumerate(torch.randperm(64).split(16)):
            if optimizer.current is not lane or steps == 300:
                dropped += 1
                break
            after = Categorical(logits=policy(torch.eye(6)[situations[rows]])).log_prob(actions[rows])
            ratio = (after - before[rows]).exp()
            if number == 0:
                torch.testing.assert_close(ratio, torch.ones(16))
            gain = rewards[rows] - rewards.mean()
            loss = -torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step(loss)
            steps += 1
    assert dropped > 0
    assert optimizer.winner is not None
    assert optimizer.winner.rates == [0.05]

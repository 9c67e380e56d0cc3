"""Hyperparameters that are not the optimizer's: a function sets them, and a trial leaves no trace of them."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hotswap import Armijo, HotSwap, NoSearch, SettingError
from hotswap.optim.moves import GradientMove, LinearMove
from tests.optim.helpers import batches, loss_of, model, move_of, own_entry, same, through_a_file, train, weights


class Network(nn.Module):
    """A network with dropout that can be set, and a record of how often it was."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.drop, self.last = nn.Linear(5, 16), nn.Dropout(0.9), nn.Linear(16, 3)
        self.calls: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.last(self.drop(torch.relu(self.first(x))))
        return scores

    def set_dropout(self, p: float) -> None:
        self.calls.append(p)
        self.drop.p = p


ARMS = {"lr": [0.3, 0.1, 0.03], "dropout": [0.5, 0.2, 0.0]}


def swapped(net: Network, **settings: Any) -> HotSwap:
    return HotSwap(
        torch.optim.SGD(net.parameters(), lr=1.0), ARMS, setters={"dropout": net.set_dropout}, module=net, **settings
    )


def test_at_construction_the_smallest_arm_is_set() -> None:
    net = Network()
    swapped(net)
    assert net.calls == [0.0]


def test_an_optimizer_that_cannot_be_constructed_sets_nothing() -> None:
    net = Network()
    with pytest.raises(SettingError, match="process_group"):
        swapped(net, process_group="mine")
    assert net.calls == []


def test_the_values_of_the_arm_that_is_taken_stay() -> None:
    net = Network()
    optimizer = swapped(net)
    taken = {0.0}
    for batch in batches(40):
        optimizer.step(loss_of(net, batch))
        assert optimizer.last_step.values["dropout"] == net.drop.p
        taken.add(net.drop.p)
    assert taken == {0.5, 0.2, 0.0}


def test_what_is_evaluated_with_which_value() -> None:
    net = Network()
    optimizer = swapped(net, check_closure=False)
    seen: list[tuple[float, bool]] = []
    batch = batches(1)[0]

    def closure() -> Tensor:
        seen.append((net.drop.p, torch.is_grad_enabled()))
        return loss_of(net, batch)()

    optimizer.step(closure)  # the sweep begins in the row of dropout 0.5; in force is 0.0
    record = optimizer.last_step
    assert seen[0] == (0.0, True)  # the gradient pass has the values in force
    assert seen[1:] == [(0.5, False)] * (1 + len(record.trials))  # the start point once more, and the trials
    assert record.start_evaluations == 1
    optimizer.step(closure)  # in the same row
    expected = 0 if record.arm is not None else 1
    assert optimizer.last_step.start_evaluations == expected


def test_trials_are_compared_with_the_start_point_under_their_own_value() -> None:
    """A setter that changes the loss by itself is no merit of the rate."""
    parameter, offset = nn.Parameter(torch.tensor([1.0])), [0.0]
    optimizer = HotSwap(
        torch.optim.SGD([parameter], lr=1.0),
        {"lr": [0.1], "offset": [5.0, 1.0]},
        setters={"offset": lambda value: offset.__setitem__(0, value)},
    )
    loss = optimizer.step(lambda: parameter.square().sum() + offset[0])
    record = optimizer.last_step
    assert loss.item() == 2.0  # with the offset in force
    assert record.loss_before == 6.0
    assert record.loss_after == pytest.approx(0.64 + 5.0)
    assert record.arm == 0  # it lowers the loss, though from a higher place
    assert record.rewards[0] == pytest.approx(math.log(6.0 / 5.64))
    assert offset == [5.0]


def test_where_nothing_is_taken_the_values_are_set_back() -> None:
    parameter, value = nn.Parameter(torch.tensor([1.0])), [0.0]
    optimizer = HotSwap(
        torch.optim.SGD([parameter], lr=1.0),
        {"lr": [1e6], "extra": [2.0, 1.0]},
        setters={"extra": lambda number: value.__setitem__(0, number)},
    )
    optimizer.step(lambda: parameter.square().sum() + value[0])
    assert optimizer.last_step.arm is None
    assert optimizer.last_step.values == {"lr": 0.0, "extra": 1.0}
    assert value == [1.0]


@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adafactor])
def test_a_closure_that_raises_in_a_trial_leaves_no_trace(base: Any) -> None:
    net = Network()
    optimizer = HotSwap(
        base(net.parameters(), lr=1.0), ARMS, setters={"dropout": net.set_dropout}, check_closure=False, module=net
    )
    before, calls = weights(net), [0]

    def closure() -> Tensor:
        calls[0] += 1
        if calls[0] == 3:
            raise InterruptedError
        return loss_of(net, batches(1)[0])()

    with pytest.raises(InterruptedError):
        optimizer.step(closure)
    assert same(weights(net), before)
    assert net.drop.p == 0.0


def test_a_setter_that_raises_leaves_everything_as_it_was() -> None:
    net, state = Network(), {"width": 0.0}

    def refuse(value: float) -> None:
        if value == 3.0:
            raise ValueError("no such width")
        state["width"] = value

    optimizer = HotSwap(
        torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9),
        {"lr": [0.1], "dropout": [0.5, 0.0], "width": [3.0, 1.0]},
        setters={"dropout": net.set_dropout, "width": refuse},
        module=net,
    )
    before, buffers = weights(net), torch.get_rng_state()
    with pytest.raises(ValueError, match="no such width"):
        optimizer.step(loss_of(net, batches(1)[0]))
    assert same(weights(net), before)
    assert net.drop.p == 0.0  # it was set to 0.5 for the trial
    assert state["width"] == 1.0
    assert not optimizer.state
    assert not torch.equal(torch.get_rng_state(), torch.zeros_like(buffers))
    assert optimizer.last_step is None


def test_a_setter_is_called_only_when_its_value_changes() -> None:
    net = Network()
    optimizer = swapped(net)
    train(net, optimizer, batches(40))
    assert all(a != b for a, b in zip(net.calls, net.calls[1:], strict=False))


@pytest.mark.parametrize(
    ("base", "kind"),
    [
        (torch.optim.SGD, GradientMove),
        (torch.optim.Adam, LinearMove),
    ],
)
def test_the_direction_is_shared_by_all_rows(base: Any, kind: type) -> None:
    net, twin, batch = Network(), Network(), batches(1)[0]
    optimizer = HotSwap(base(net.parameters(), lr=1.0), ARMS, setters={"dropout": net.set_dropout})
    optimizer.check_closure = False
    assert type(move_of(optimizer)) is kind
    losses = iter([1.0, 0.9, 0.8, 0.85])  # at the start point, then of arms 0, 1 and 2
    optimizer.step(loss_of(net, batch), trial_closure=lambda: torch.tensor(next(losses)))
    assert optimizer.last_step.values == {"dropout": 0.5, "lr": 0.1}
    twin.drop.p = 0.0  # which was in force when the gradient was computed
    plain = base(twin.parameters(), lr=0.1)
    loss_of(twin, batch)().backward()
    plain.step()
    for ours, theirs in zip(weights(net), weights(twin), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_in_a_step_without_trials_the_value_is_set_and_the_reward_waits_for_a_fair_comparison() -> None:
    net = Network()
    optimizer = swapped(net, search=NoSearch())
    train(net, optimizer, batches(1))  # from dropout 0.0 to 0.5
    assert net.drop.p == 0.5
    assert own_entry(optimizer)["untried"] is None
    train(net, optimizer, batches(1))  # within the row
    assert own_entry(optimizer)["untried"][0] == 1


# --- stopping and going on --------------------------------------------------------------------------------------------


def test_a_checkpoint_sets_what_was_in_force() -> None:
    net, data = Network(), batches(40)
    optimizer = swapped(net)
    train(net, optimizer, data[:20])
    saved = through_a_file(
        {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    )
    in_force = net.drop.p
    expected = train(net, optimizer, data[20:])
    again = Network()
    resumed = swapped(again)
    again.load_state_dict(saved["model"])
    resumed.load_state_dict(saved["optimizer"])
    assert again.drop.p == in_force
    torch.set_rng_state(saved["random"])
    assert train(again, resumed, data[20:]) == expected
    assert same(weights(again), weights(net))


def test_a_copy_sets_its_own_model() -> None:
    net, data = Network(), batches(20)
    optimizer = swapped(net)
    train(net, optimizer, data[:10])
    twin_net, twin = copy.deepcopy((net, optimizer))
    state, known = torch.get_rng_state(), list(net.calls)
    expected = train(twin_net, twin, data[10:])
    assert net.calls == known
    torch.set_rng_state(state)
    assert train(net, optimizer, data[10:]) == expected


# --- bad values -------------------------------------------------------------------------------------------------------


def nothing(_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("arms", "setters", "message"),
    [
        ({"lr": [1.0], "dropout": [0.1]}, None, r"SGD has no hyperparameter 'dropout' to swap; it has dampening, lr,"),
        ({"lr": [1.0], "dropout": [0.1]}, None, r"needs a function that sets it: setters=\{'dropout': function\}"),
        ({"lr": [1.0], "x": [1.0], "y": [1.0]}, {"x": nothing}, "and there are setters for x. What is not"),
        ({"lr": [1.0]}, {"dropout": nothing}, r"no values for it to choose from; name them, as in arms=\{'lr'"),
        ({"lr": [1.0], "momentum": [0.1]}, {"momentum": nothing}, "SGD has 'momentum' itself, which needs no setter"),
        ({"lr": [1.0], "nesterov": [0.1]}, {"nesterov": nothing}, "SGD has 'nesterov' itself"),
        ({"lr": [1.0], "x": [0.1]}, {"x": 3}, "a setter must be a function of one value, but it is of type int"),
        ({"x": [0.1]}, {"x": nothing}, "a search would walk along 'x', where the loss at the start point is another"),
        ({"momentum": [0.5], "x": [0.1]}, {"x": nothing}, "or name it last"),
        ({"lr": [1.0]}, [nothing], r"setters must be functions by name, as in setters=\{'dropout': function\}"),
    ],
)
def test_bad_values(arms: dict[str, Any], setters: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        HotSwap(torch.optim.SGD(model().parameters(), lr=1.0), arms, setters=setters)


def test_another_hyperparameter_of_the_base_may_be_walked_along() -> None:
    net = Network()
    optimizer = HotSwap(
        torch.optim.SGD(net.parameters(), lr=0.1),
        {"dropout": [0.5, 0.0], "momentum": [0.9, 0.0]},
        setters={"dropout": net.set_dropout},
    )
    assert all(record.values.keys() == {"dropout", "momentum"} for record in train(net, optimizer, batches(10)))


def test_a_search_is_told_the_slope_of_the_rate_beside_other_values() -> None:
    """On a loss that is linear every step lowers it by what its slope says, so the first trial is enough."""
    parameter = nn.Parameter(torch.ones(3))
    optimizer = HotSwap(
        torch.optim.SGD([parameter], lr=1.0),
        {"lr": [0.5, 0.1], "other": [2000.0, 1000.0]},
        search=Armijo(),
        setters={"other": lambda _: None},
    )
    for _ in range(4):
        optimizer.step(lambda: 100.0 + parameter.sum())
        assert len(optimizer.last_step.trials) == 1
        assert optimizer.last_step.arm == optimizer.last_step.start

"""Lanes that diverge, races that begin again, winners that go back."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.errors import LossError
from hotswap.optim import HotSwapWarning
from tests.optim.racing.helpers import STEPS, contents, minibatches, network, race, same, train


def quadratic(parameter: nn.Parameter) -> Callable[[], Tensor]:
    """Plain gradient descent diverges on it for rates above 1."""
    return lambda: parameter.square().sum()


def descent(rates: tuple[float, ...], **settings: object) -> tuple[nn.Parameter, hotswap.Race]:
    parameter = nn.Parameter(torch.ones(3))
    base = torch.optim.SGD([parameter], lr=1.0)
    settings = {"warmup": None, "decay": None, "least": 5, "rounds": ((30, 1),), "total_steps": 200} | settings
    return parameter, hotswap.Race(base, {"lr": rates}, **settings)  # type: ignore[arg-type]


def likelihood(parameter: nn.Parameter) -> Callable[[], Tensor]:
    """As `quadratic`, but it raises where that would not be finite, as the checks of torch's distributions do."""

    def closure() -> Tensor:
        loss = parameter.square().sum()
        if not loss.isfinite():
            raise ValueError("Expected parameter scale to be positive")
        return loss

    return closure


Loss = Callable[[nn.Parameter], Callable[[], Tensor]]


def steps(optimizer: hotswap.Race, parameter: nn.Parameter, count: int, loss: Loss = quadratic) -> None:
    for _ in range(count):
        optimizer.step(loss(parameter))


def until_it_begins_again(optimizer: hotswap.Race, *parameters: nn.Parameter) -> None:
    while optimizer._course.restarts == 0:
        optimizer.step(lambda: torch.cat(parameters).square().sum())


def until_it_goes_back(optimizer: hotswap.Race, closure: Callable[[], Tensor]) -> None:
    optimizer.step(closure)
    while not optimizer.last_step.rolled_back:  # type: ignore[union-attr]
        optimizer.step(closure)


def test_a_lane_that_diverges_is_out() -> None:
    parameter, optimizer = descent((1e30, 0.3, 0.1))
    for _ in range(5):
        optimizer.step(quadratic(parameter))
    first = optimizer.standings()[0]
    assert not first.racing
    assert first.reason == "out: its loss was not finite"
    assert first.step is not None
    assert first.step <= 3
    assert "its loss was not finite" in str(optimizer.standings())
    assert len(optimizer.last_step.losses) == 2  # type: ignore[union-attr]


def test_the_last_that_is_left_wins_at_the_end_of_the_round() -> None:
    """Not before: it may be about to diverge, too."""
    parameter, optimizer = descent((1e30, 1e25, 0.1), rounds=((10, 2), (20, 1)))
    for _ in range(9):
        optimizer.step(quadratic(parameter))
    assert optimizer.winner is None
    optimizer.step(quadratic(parameter))
    assert optimizer.winner == {"lr": 0.1}


def test_a_lane_far_above_the_first_losses_is_out_though_it_is_finite() -> None:
    parameter, optimizer = descent((1.1, 0.3), rounds=((10, 1),))
    steps(optimizer, parameter, 10)
    assert optimizer.winner == {"lr": 0.3}
    assert optimizer.standings()[0].reason == "out: its loss was far above that of the first steps"


def test_a_leader_that_diverges_is_followed_by_the_best() -> None:
    parameter, optimizer = descent((1e30, 0.3, 0.1))
    optimizer._course.leader = 0
    for _ in range(5):
        optimizer.step(quadratic(parameter))
    assert optimizer.last_step is not None
    assert optimizer.last_step.leader == 1
    assert parameter.isfinite().all()


def test_where_all_diverge_the_race_begins_again_a_decade_lower() -> None:
    """A rate of 4 and one of 2 diverge; of 0.4 and 0.2 none does."""
    parameter, optimizer = descent((4.0, 2.0))
    with pytest.warns(HotSwapWarning, match="began again with rates ten times smaller"):
        until_it_begins_again(optimizer, parameter)
    began = optimizer.cost.plain
    assert torch.equal(parameter, torch.ones(3))  # the state at the start
    assert not optimizer.state
    assert [row.values["lr"] for row in optimizer.standings()] == pytest.approx([0.4, 0.2])
    assert "began again" in str(optimizer.standings())
    for _ in range(40):
        optimizer.step(quadratic(parameter))
    twin, other = descent((0.4, 0.2))
    for _ in range(40):
        other.step(quadratic(twin))
    assert torch.allclose(parameter, twin)
    assert optimizer.winner == pytest.approx({"lr": 0.4})
    assert optimizer.standings()[0].step == began + 30


def test_a_first_minibatch_without_a_finite_loss_is_not_the_rates_doing() -> None:
    model, twin = network(), network()
    optimizer, other = race(model), race(twin)
    before = contents(model)
    x, y = next(minibatches(1))
    with pytest.raises(LossError, match="first minibatch is nan at the weights that the model has"):
        optimizer.step(lambda: cross_entropy(model(x), y) * math.nan)
    assert same(before, contents(model))
    assert (optimizer._course.restarts, optimizer.winner) == (0, None)
    train(optimizer, model, minibatches(10))
    train(other, twin, minibatches(10))
    assert [row.values for row in optimizer.standings()] == [row.values for row in other.standings()]
    assert all(row.racing for row in optimizer.standings())


def test_groups_that_were_added_go_back_to_the_start_too() -> None:
    parameter, optimizer = descent((4.0, 2.0))
    optimizer.step(quadratic(parameter))
    added = nn.Parameter(torch.ones(2))
    optimizer.add_param_group({"params": [added]})
    with pytest.warns(HotSwapWarning, match="began again"):
        until_it_begins_again(optimizer, parameter, added)
    assert torch.equal(parameter, torch.ones(3))
    assert torch.equal(added, torch.ones(2))


def test_after_three_times_it_gives_up() -> None:
    parameter, optimizer = descent((4e9, 2e9))
    with pytest.warns(HotSwapWarning), pytest.raises(LossError, match="diverged, 4 times"):
        steps(optimizer, parameter, 100)


@pytest.mark.parametrize("bad", [math.nan, 1e12])
def test_a_winner_that_diverges_goes_back_with_half_its_rate(bad: float) -> None:
    model = network()
    optimizer = race(model)
    batches = iter(minibatches(400))
    for x, y in (next(batches) for _ in range(30)):
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
    assert optimizer.winner is not None
    kept = optimizer._course.kept
    assert kept is not None
    x, y = next(batches)
    with torch.no_grad():
        model[6].weight.mul_(bad)
    with pytest.warns(HotSwapWarning, match="went back to its snapshot, with half its rate"):
        until_it_goes_back(optimizer, lambda: cross_entropy(model(x), y))
    assert optimizer.cost.plain <= 30 + 10 + 1
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), kept.parameters, strict=True))
    rate = optimizer.winner["lr"]
    optimizer.step(lambda: cross_entropy(model(x), y))
    assert optimizer.last_step is not None
    assert not optimizer.last_step.rolled_back
    factor = 0.5 * optimizer.schedule.factor(optimizer.last_step.step)
    assert optimizer.last_step.factor == factor
    assert optimizer.last_step.values[optimizer.last_step.leader]["lr"] == pytest.approx(rate * factor)  # type: ignore[operator]
    assert "went back" in str(optimizer.standings())


def test_a_lane_whose_closure_raises_is_out() -> None:
    parameter, optimizer = descent((1e30, 0.3, 0.1))
    said = r"raised ValueError\('Expected parameter scale .* in the lane with lr=1e\+30"
    with pytest.warns(HotSwapWarning, match=said):
        steps(optimizer, parameter, 5, likelihood)
    first = optimizer.standings()[0]
    assert (first.racing, first.reason) == (False, "out: its loss was not finite")
    twin, other = descent((0.3, 0.1))
    steps(other, twin, 5, likelihood)
    assert torch.equal(parameter, twin)


def test_a_leader_whose_closure_raises_is_followed_by_the_best() -> None:
    parameter, optimizer = descent((1e30, 0.3, 0.1))
    optimizer._course.leader = 0
    with pytest.warns(HotSwapWarning, match="in the lane with"):
        steps(optimizer, parameter, 5, likelihood)
    assert optimizer.last_step is not None
    assert optimizer.last_step.leader == 1
    assert parameter.isfinite().all()


def test_lanes_that_all_raise_with_weights_that_are_no_numbers_begin_again() -> None:
    parameter, optimizer = descent((3e38, 2e38))
    with pytest.warns(HotSwapWarning) as said:
        steps(optimizer, parameter, 3, likelihood)
    assert sum("began again" in str(warning.message) for warning in said) == 1
    assert optimizer._course.restarts == 1


@pytest.mark.parametrize("when", [0, 3, 35])
def test_what_raises_in_every_lane_ends_the_step(when: int) -> None:
    """In the first step, while lanes race, and when the winner runs on: the weights are fine, the minibatch is not."""
    parameter, optimizer = descent((0.3, 0.1))
    steps(optimizer, parameter, when)
    before = parameter.detach().clone()

    def closure() -> Tensor:
        raise ValueError("a bad minibatch")

    with pytest.raises(ValueError, match="a bad minibatch"):
        optimizer.step(closure)
    assert torch.equal(parameter, before)
    steps(optimizer, parameter, 1)
    assert optimizer.cost.plain == when + 1


def test_a_winner_whose_closure_raises_goes_back() -> None:
    parameter, optimizer = descent((0.3, 0.1), rounds=((10, 1),))
    steps(optimizer, parameter, 13, likelihood)
    assert optimizer.winner is not None
    with torch.no_grad():
        parameter.fill_(math.nan)
    with pytest.warns(HotSwapWarning, match="went back to its snapshot"):
        optimizer.step(likelihood(parameter))
    assert parameter.isfinite().all()
    assert optimizer.last_step is not None
    assert optimizer.last_step.rolled_back


def test_a_network_that_does_not_learn_is_no_divergence() -> None:
    """On labels that mean nothing the loss stays where it is."""
    model = network()
    optimizer = race(model, total_steps=400)
    numbers = torch.Generator().manual_seed(3)
    for _ in range(400):
        x, y = torch.randn(16, 6, generator=numbers), torch.randint(3, (16,), generator=numbers)
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x), y))
    assert optimizer._course.halvings == 0


def test_snapshots_of_the_winner_follow_it() -> None:
    model = network()
    optimizer = race(model, total_steps=500)
    losses = train(optimizer, model, minibatches(24))
    first = optimizer._course.kept
    train(optimizer, model, minibatches(201))
    assert len(losses) == 24
    assert optimizer._course.kept is not first


def test_steps_beyond_the_last_one_are_warned_of() -> None:
    model = network()
    optimizer = race(model)
    train(optimizer, model, minibatches(STEPS))
    before = contents(model)
    with pytest.warns(HotSwapWarning, match="nothing moves any more"):
        train(optimizer, model, minibatches(1))
    changed = {name for name, value in contents(model).items() if not torch.equal(value, before[name])}
    assert all("running" in name or "num_batches" in name for name in changed)
    assert not same(before, contents(model))  # batch norm's statistics go on

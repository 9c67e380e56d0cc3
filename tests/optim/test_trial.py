"""Trials on their own, as another optimizer or search would use it."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hotswap import ClosureError
from hotswap.arms import Arms
from hotswap.optim.closures import Request, request_of
from hotswap.optim.gradients import Clipping
from hotswap.optim.moves import move_for
from hotswap.optim.processes import Agreement
from hotswap.optim.setters import Setters
from hotswap.optim.surroundings import Surroundings
from hotswap.optim.trial import ClosureChecks, Trials
from tests.optim.helpers import batches, noisy, same, weights


def trials_of(net: nn.Module, base: torch.optim.Optimizer | None = None) -> Trials:
    base = torch.optim.SGD(net.parameters(), lr=1.0) if base is None else base
    arms = Arms.of({"lr": [1.0, 0.1, 0.01]})
    move = move_for(base, arms, 1.0, None, Agreement(None, base))
    parts = {"clipping": Clipping(), "loss_scale": None, "checks": ClosureChecks(), "setters": Setters({}, arms)}
    return Trials(base, move, Surroundings(net), **parts)  # type: ignore[arg-type]


def request(net: nn.Module) -> Request:
    (x, y), *_ = batches(1)
    return request_of(lambda: cross_entropy(net(x), y), None, None)


@torch.no_grad()
def test_trials_leave_no_trace_until_an_arm_is_taken() -> None:
    net, twin = noisy(), noisy()
    trials, start = trials_of(net), weights(net)
    torch.manual_seed(1)
    with trials:
        found = trials.gradient_pass(request(net))
        trials.save()
        losses = [trials.loss_at(arm) for arm in (0, 1, 2, 1)]
    assert losses[1] == losses[3]
    assert trials.made == list(zip((0, 1, 2, 1), losses, strict=True))
    assert same(weights(net), start)  # nothing was taken
    after = torch.get_rng_state()
    torch.manual_seed(1)
    (x, y), *_ = batches(1)
    assert found.seen == cross_entropy(twin(x), y).item()  # one ordinary forward
    assert torch.equal(after, torch.get_rng_state())
    assert same(list(net.buffers()), list(twin.buffers()))


@torch.no_grad()
def test_the_arm_that_is_taken_need_not_be_the_last_one_tried() -> None:
    net = noisy()
    trials, start = trials_of(net), weights(net)
    with trials:
        trials.gradient_pass(request(net))
        trials.save()
        trials.loss_at(1)
        trials.loss_at(2)
        trials.take(1)
    for now, before, parameter in zip(weights(net), start, net.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(now, before - 0.1 * parameter.grad)


@torch.no_grad()
def test_the_state_of_the_base_advances_once_also_without_a_step() -> None:
    net = noisy()
    base = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    trials, start = trials_of(net, base), weights(net)
    with trials:
        trials.gradient_pass(request(net))
        trials.save()
        trials.loss_at(0)
        trials.take(None)
    assert same(weights(net), start)
    for parameter in net.parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(base.state[parameter]["momentum_buffer"], parameter.grad)


@torch.no_grad()
def test_an_exception_between_trials_restores_everything() -> None:
    net = noisy()
    base = torch.optim.SGD(net.parameters(), lr=1.0, momentum=0.9)
    trials, start = trials_of(net, base), weights(net)

    def interrupted() -> None:
        with trials:
            trials.gradient_pass(request(net))
            trials.save()
            trials.loss_at(0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert same(weights(net), start)
    assert not base.state
    assert not trials.is_open


def test_there_is_nothing_to_evaluate_before_the_gradient_pass() -> None:
    trials = trials_of(noisy())
    with pytest.raises(ClosureError, match=r"call gradient_pass\(\) before"), trials:
        trials.loss_at(0)
    with trials, pytest.raises(ClosureError, match="from inside of its own closure"), trials:
        pass

"""Random numbers and buffers: shared by all evaluations of a step, and left as one forward leaves them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap import HotSwap, HotSwapSGD
from hotswap.optim import modules
from tests.optim.helpers import DEVICES, batches, noisy


def optimizers(net: nn.Module) -> dict[str, HotSwap]:
    return {
        "sgd": HotSwapSGD(net.parameters()),
        "adam": HotSwap(torch.optim.Adam(net.parameters())),
        "exact": HotSwap(torch.optim.SGD(net.parameters(), lr=1.0), {"lr": [1.0, 0.1, 0.01], "momentum": [0.0, 0.9]}),
    }


class Masks(nn.Module):
    """Remembers the masks that dropout drew."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.nn.functional.dropout(torch.ones_like(x))
        self.seen.append(mask.detach().clone())
        return x * mask


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", ["sgd", "adam", "exact"])
def test_all_evaluations_of_a_step_see_the_same_masks(base: str, device: str) -> None:
    torch.manual_seed(0)
    masks = Masks()
    net = nn.Sequential(nn.Linear(5, 16), masks, nn.Linear(16, 3)).to(device)
    optimizer = optimizers(net)[base]
    steps = []
    for x, y in batches(4):
        masks.seen.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x.to(device)), y.to(device)))
        assert len(masks.seen) > 1
        assert all(torch.equal(mask, masks.seen[0]) for mask in masks.seen)
        steps.append(masks.seen[0])
    assert not any(torch.equal(a, b) for a, b in pairwise(steps))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("base", ["sgd", "adam", "exact"])
def test_generators_and_buffers_end_where_one_forward_leaves_them(base: str, device: str) -> None:
    net, twin = noisy(device), noisy(device)
    optimizer = optimizers(net)[base]
    torch.manual_seed(7)
    for x, y in [(x.to(device), y.to(device)) for x, y in batches(5)]:
        twin.load_state_dict(net.state_dict())
        state = torch.get_rng_state(), torch.cuda.get_rng_state() if device == "cuda" else None
        twin(x)  # one ordinary forward, at the start point
        expected = torch.rand(3), torch.rand(3, device=device)
        torch.set_rng_state(state[0])
        if state[1] is not None:
            torch.cuda.set_rng_state(state[1])
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert optimizer.last_step.trials
        for (name, ours), theirs in zip(net.named_buffers(), twin.buffers(), strict=True):
            assert torch.equal(ours, theirs), name
        assert torch.equal(torch.rand(3), expected[0])
        assert torch.equal(torch.rand(3, device=device), expected[1])
    assert net.training


def test_a_trial_closure_is_guarded_too() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), (other_x, other_y) = batches(2)
    optimizer.step(lambda: cross_entropy(net(x), y), trial_closure=lambda: cross_entropy(net(other_x), other_y))
    assert net[1].num_batches_tracked == 1
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    random_state = torch.get_rng_state()
    optimizer.step(trial_closure=lambda: cross_entropy(net(x), y), loss=loss)
    assert net[1].num_batches_tracked == 2
    assert torch.equal(torch.get_rng_state(), random_state)


def test_an_exception_in_a_trial_leaves_what_one_forward_leaves() -> None:
    net = noisy()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    calls = 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        loss = cross_entropy(net(x), y)
        if calls == 3:
            raise KeyboardInterrupt
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert net[1].num_batches_tracked == 1


def test_a_closure_that_sets_a_hidden_state_is_noticed() -> None:
    torch.manual_seed(0)
    lstm, head = nn.LSTM(5, 16, batch_first=True), nn.Linear(16, 3)
    optimizer, hidden = HotSwapSGD(nn.ModuleList([lstm, head])), None
    said: list[str] = []

    def closure(x: Tensor, y: Tensor) -> Tensor:
        nonlocal hidden
        out, hidden = lstm(x[:, None], None if hidden is None else tuple(part.detach() for part in hidden))
        return cross_entropy(head(out[:, 0]), y)

    for x, y in batches(100):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            optimizer.step(lambda x=x, y=y: closure(x, y))
        said += [str(warning.message) for warning in seen]
    assert len(said) == 1
    assert "return a hidden state that goes on beside the loss instead of setting it" in said[0]


def test_a_hidden_state_beside_the_loss_goes_on_once_a_step() -> None:
    torch.manual_seed(0)
    lstm, head = nn.LSTM(5, 16, batch_first=True), nn.Linear(16, 3)
    optimizer, hidden = HotSwapSGD(nn.ModuleList([lstm, head])), None
    for x, y in batches(12):  # warnings are errors

        def closure(x: Tensor = x, y: Tensor = y, before: Any = hidden) -> tuple[Tensor, Any]:
            out, after = lstm(x[:, None], before)
            return cross_entropy(head(out[:, 0]), y), after

        with torch.no_grad():
            expected = closure()[1]
        optimizer.step(closure)
        hidden = optimizer.last_step.aux
        assert all(map(torch.equal, hidden, expected))
        assert not any(part.requires_grad for part in hidden)


LOADER = iter(batches(200))


@pytest.mark.parametrize(
    "drawn",
    [random.random, lambda: torch.rand((), generator=GENERATOR).item(), lambda: next(LOADER)[0].mean().item()],
    ids=["random", "own", "loader"],
)
def test_a_loss_that_changes_by_itself_is_noticed_once(drawn: Callable[[], float]) -> None:
    random.seed(0)
    net = nn.Linear(5, 3)
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)

    def step() -> None:
        optimizer.step(lambda: cross_entropy(net(x), y) * (1 + drawn()))

    with pytest.warns(hotswap.HotSwapWarning, match="at the same parameters.*load and augment the minibatch outside"):
        step()
    step()  # where a second warning would be an error


GENERATOR = torch.Generator().manual_seed(0)


def test_a_gradient_pass_that_came_to_nothing_is_forgotten() -> None:
    masks = Masks()
    net = nn.Sequential(nn.Linear(5, 16), masks, nn.Linear(16, 3))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), (other_x, other_y) = batches(2)
    with optimizer.gradient_pass():
        cross_entropy(net(x), y).backward()
    optimizer.zero_grad()  # this minibatch is left out
    masks.seen.clear()
    with optimizer.gradient_pass():
        loss = cross_entropy(net(other_x), other_y)
        loss.backward()
    drawn = torch.rand(3)  # somebody else's numbers in between
    optimizer.step(trial_closure=lambda: cross_entropy(net(other_x), other_y), loss=loss)
    assert all(torch.equal(mask, masks.seen[0]) for mask in masks.seen)
    assert not torch.equal(torch.rand(3), drawn)


class Recurrent(nn.Module):
    """Two layers with dropout in between; remembers what came out of each evaluation, and how."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.head = nn.LSTM(5, 16, num_layers=2, dropout=0.5), nn.Linear(16, 3)
        self.outputs: list[Tensor] = []
        self.cudnn: list[tuple[bool, bool]] = []

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(x.unsqueeze(0))[0].squeeze(0))
        self.outputs.append(scores.detach().clone())
        self.cudnn.append((hotswap.in_trial(), torch.backends.cudnn.enabled))
        return scores


@pytest.mark.gpu
def test_recurrent_dropout_on_a_gpu_is_the_same_in_all_evaluations_of_a_step() -> None:
    """At a rate that moves nothing, a trial's output is the gradient pass's, mask by mask."""
    net = Recurrent().to("cuda")
    optimizer = HotSwapSGD(net.parameters(), lr=[1e-30])
    steps = []
    for x, y in [(x.cuda(), y.cuda()) for x, y in batches(4)]:
        net.outputs.clear()
        optimizer.step(lambda x=x, y=y: cross_entropy(net(x), y))
        assert len(net.outputs) > 1
        for output in net.outputs[1:]:
            torch.testing.assert_close(output, net.outputs[0], rtol=1e-4, atol=1e-5)
        assert torch.backends.cudnn.enabled
        steps.append(net(x))
        assert not torch.allclose(steps[-1], net.outputs[0], rtol=1e-4, atol=1e-5)  # other masks, so there are some


@pytest.mark.parametrize("own", [False, True], ids=["closure", "own backward"])
def test_cudnn_is_left_out_in_gradient_pass_and_trials(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_draws_privately", lambda module: module.training)  # as if it were on a GPU
    net = Recurrent()
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    enabled = torch.backends.cudnn.enabled

    def closure() -> Tensor:
        return cross_entropy(net(x), y)

    if own:
        with optimizer.gradient_pass():
            loss = closure()
            loss.backward()
        optimizer.step(trial_closure=closure, loss=loss)
    else:
        optimizer.step(closure)
    assert set(net.cudnn) == {(False, False), (True, False)}
    assert torch.backends.cudnn.enabled == enabled
    net.cudnn.clear()
    net.eval()  # nothing is drawn
    optimizer.step(closure)
    assert set(net.cudnn) == {(False, enabled), (True, enabled)}


@pytest.mark.filterwarnings("ignore:step\\(\\) was called without a closure")
def test_a_gradient_pass_before_a_step_with_a_closure_is_forgotten() -> None:
    """Also where the gradients were not cleared through the optimizer."""
    masks = Masks()
    net = nn.Sequential(nn.Linear(5, 16), masks, nn.Linear(16, 3))
    optimizer = HotSwapSGD(net.parameters())
    (x, y), *_ = batches(1)
    optimizer.step(lambda: cross_entropy(net(x), y))
    for interlude in (net.zero_grad, optimizer.step):
        with optimizer.gradient_pass():
            cross_entropy(net(x), y).backward()
        interlude()
        masks.seen.clear()
        optimizer.step(lambda: cross_entropy(net(x), y))
        assert all(torch.equal(mask, masks.seen[0]) for mask in masks.seen)

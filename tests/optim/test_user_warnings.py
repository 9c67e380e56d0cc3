"""What people do in a hurry: each gets one sentence, and only where it is deserved."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LinearLR

import hotswap
from hotswap import CheckpointError, ClosureError, HotSwap, HotSwapSGD, HotSwapWarning, SettingError
from hotswap.optim.trial import CHECKED_SEARCHES
from tests.optim.helpers import batches, loss_of, model, train


def told(work: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        work()
    assert all(warning.filename == __file__ for warning in seen)  # the user's line, not one of torch's or ours
    return [str(warning.message) for warning in seen]


def test_accumulating_by_hand_before_a_closure_is_warned_of_once() -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())

    def loop() -> None:
        for batch in batches(4):
            optimizer.zero_grad()
            loss_of(net, batch)().backward()
            optimizer.step(loss_of(net, batch))

    (said,) = told(loop)
    assert "gradients in .grad before this step, and they are discarded" in said
    assert "hotswap.accumulate" in said


def test_gradients_left_by_another_optimizer_or_cleared_are_not_worth_a_word() -> None:
    net = model()
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in batches(2):
        plain.zero_grad()
        loss_of(net, batch)().backward()
        plain.step()
    optimizer = HotSwapSGD(net.parameters())

    def loop() -> None:
        for batch in batches(3):
            optimizer.step(loss_of(net, batch))
            loss_of(net, batch)().backward()  # somebody else's, and cleared
            optimizer.zero_grad()

    assert told(loop) == []


def test_another_optimizer_that_does_not_step_excuses_nothing() -> None:
    net, other = model(), torch.optim.Adam(model().parameters())
    optimizer = HotSwapSGD(net.parameters())

    def loop() -> None:
        for batch in batches(3):
            loss_of(net, batch)().backward()
            optimizer.step(loss_of(net, batch))

    (said,) = told(loop)
    assert "they are discarded" in said
    assert not other.state


@pytest.mark.parametrize("clear", ["never", "to none", "in place"])
def test_own_backwards_that_pile_up_are_warned_of_once(clear: str) -> None:
    net = model()
    optimizer = HotSwapSGD(net.parameters())

    def loop() -> None:
        for batch in batches(4):
            if clear != "never":
                optimizer.zero_grad(set_to_none=clear == "to none")
            with optimizer.gradient_pass():
                loss = loss_of(net, batch)()
                loss.backward()
            optimizer.step(trial_closure=loss_of(net, batch), loss=loss)

    said = told(loop)
    assert len(said) == (clear == "never")
    assert all("call optimizer.zero_grad() before each backward" in text for text in said)


@pytest.mark.parametrize("later", [0, 5, 50])
def test_a_closure_that_gives_another_loss_is_noticed_then_or_at_the_next_look(later: int) -> None:
    net, evaluations = model(), 0
    optimizer = HotSwapSGD(net.parameters())
    found = 0

    def closure(loss: Callable[[], Tensor], step: int) -> Tensor:
        nonlocal evaluations
        evaluations += 1
        return loss() * (1 + 0.01 * (evaluations % 7) * (step >= later))

    for step, batch in enumerate(batches(101), start=1):
        said = told(lambda step=step, batch=batch: optimizer.step(lambda: closure(loss_of(net, batch), step)))
        found += len(said)
        if said:
            assert step == min(number for number in CHECKED_SEARCHES if number >= later)
            assert "leave model.train() and model.eval() to the loop" in said[0]
    assert found == 1


def test_looking_again_changes_nothing() -> None:
    """A step before which the closure is checked is the step that it would have been."""
    results = []
    for looked_at in (True, False):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3))
        optimizer = HotSwapSGD(net.parameters(), momentum=0.9, check_closure=looked_at)
        train(net, optimizer, batches(12))
        results.append([*net.state_dict().values(), torch.get_rng_state()])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("rate", [[0.1, 0.01], None, "1e-3", True])
def test_the_rate_of_a_group_is_one_number(rate: Any) -> None:
    groups = [{"params": [nn.Parameter(torch.ones(2))]}, {"params": [nn.Parameter(torch.ones(2))], "lr": rate}]
    for order in (groups, groups[::-1]):
        with pytest.raises(SettingError, match=r"a parameter group has lr=.*; it must be one number, a scale"):
            HotSwapSGD(order)
    optimizer = HotSwapSGD(groups[:1])
    with pytest.raises(SettingError, match="it must be one number"):
        optimizer.add_param_group(groups[1])
    assert len(optimizer.param_groups) == 1


def test_a_scheduler_from_before_goes_on_scaling() -> None:
    net = model()
    base = torch.optim.SGD(net.parameters(), lr=0.3)
    scheduler = LinearLR(base, 1 / 30, total_iters=2)
    with pytest.warns(HotSwapWarning, match=r"lr to 0\.01, from 0\.3, so all rates are scaled by 0\.0333") as warned:
        optimizer = HotSwap(base, {"lr": [0.1]})
    assert warned[0].filename == __file__
    applied = []
    for batch in batches(3):
        optimizer.step(loss_of(net, batch))
        scheduler.step()
        applied.append(optimizer.last_step.values["lr"])
    assert applied == pytest.approx([0.1 / 30, 0.1 * (1 / 30 + 29 / 60), 0.1])


def test_a_loss_that_has_had_its_backward() -> None:
    net, (batch,) = model(), batches(1)
    loss = loss_of(net, batch)()
    loss.backward()
    with pytest.raises(ClosureError, match=r"has had its backward already; compute it inside of the closure"):
        HotSwapSGD(net.parameters()).step(lambda: loss)


def test_a_pair_the_wrong_way_round() -> None:
    net, ((x, y),) = model(), batches(1)

    def closure() -> tuple[Tensor, Tensor]:
        scores = net(x)
        return scores, nn.functional.cross_entropy(scores, y)

    with pytest.raises(ClosureError, match=r"a tensor of shape \(16, 3\) and one of a single number; the loss comes"):
        HotSwapSGD(net.parameters()).step(closure)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("run/last.pt", "a str"),
        ({"model": {}, "optimizer": {}}, "a dict with 'model', 'optimizer'"),
        ({}, "a dict with nothing"),
    ],
)
def test_what_is_no_state_at_all(given: Any, found: str) -> None:
    with pytest.raises(CheckpointError, match=rf"given {found}.*no 'param_groups'. Load the file first"):
        HotSwapSGD(model().parameters()).load_state_dict(given)


def test_the_loop_needs_records() -> None:
    net = model()
    plain: Any = torch.optim.SGD(net.parameters())
    with pytest.raises(SettingError, match="of type SGD and keeps no record of its steps"):
        next(hotswap.train_until(hotswap.convergence.epochs(1), plain, lambda _: torch.zeros(()), [0]))

"""Trials judged on two minibatches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hotswap import ClosureError, HotSwapSGD, SettingError, mixture
from tests.optim.helpers import batches, loss_of, model, noisy, same


@pytest.mark.parametrize(("weight", "expected"), [(0, 2.0), (0.25, 4.0), (0.5, 6.0), (1, 10.0)])
def test_the_loss_is_the_weighted_mean_and_what_counts_nothing_is_not_evaluated(weight: float, expected: float) -> None:
    asked: list[str] = []

    def same_loss() -> Tensor:
        asked.append("same")
        return torch.tensor(2.0)

    def other_loss() -> tuple[Tensor, str]:
        asked.append("other")
        return torch.tensor(10.0), "aux"

    assert mixture(same_loss, other_loss, weight)().item() == expected
    assert asked == {0: ["same"], 1: ["other"]}.get(weight, ["same", "other"])


def test_a_step_is_judged_by_it() -> None:
    net, (first, second) = model(), batches(2)
    optimizer = HotSwapSGD(net, [0.1])
    closure, following = loss_of(net, first), loss_of(net, second)
    with torch.no_grad():
        before = 0.75 * closure() + 0.25 * following()
    optimizer.step(closure, trial_closure=mixture(closure, following, weight=0.25))
    with torch.no_grad():
        after = 0.75 * closure() + 0.25 * following()
    assert optimizer.last_step is not None
    assert optimizer.last_step.loss_before == pytest.approx(before.item())
    assert optimizer.last_step.trials[0][1] == pytest.approx(after.item())


def test_buffers_and_random_numbers_advance_as_without_it() -> None:
    net, twin, (first, second) = noisy(), noisy(), batches(2)
    optimizer = HotSwapSGD(net)
    state = torch.get_rng_state()
    closure = loss_of(net, first)
    optimizer.step(closure, trial_closure=mixture(closure, loss_of(net, second)))
    after = torch.get_rng_state()
    torch.set_rng_state(state)
    twin(first[0])
    assert torch.equal(torch.get_rng_state(), after)
    assert same(list(net.buffers()), list(twin.buffers()))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weight": 1.5}, SettingError, r"mixture\(weight=1\.5\): weight must be a number from 0 to 1"),
        ({"weight": "half"}, SettingError, "weight must be a number"),
        ({"weight": float("nan")}, SettingError, "weight must be a number"),
        ({"weight": True}, SettingError, "weight must be a number"),
        ({"same": nn.Parameter(torch.ones(()))}, ClosureError, r"mixture\(same=\.\.\.\) must be a function"),
        ({"other": 3}, ClosureError, r"mixture\(other=\.\.\.\) must be a function that computes a loss.* type int"),
    ],
)
def test_bad_values(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"same": lambda: torch.ones(()), "other": lambda: torch.ones(())}
    with pytest.raises(error, match=message):
        mixture(**(good | arguments))

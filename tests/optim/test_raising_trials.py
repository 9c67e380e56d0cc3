"""A trial whose closure raises is a trial that was not finite; what is not the rate's doing still ends the step."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import hotswap
from hotswap import HotSwap, HotSwapSGD, HotSwapWarning
from tests.optim.helpers import same, weights

RATES = [1e30, 1e-2, 1e-3]


def autoencoder() -> nn.Sequential:
    torch.manual_seed(0)
    parts = [nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 6), nn.Sigmoid()]
    return nn.Sequential(*parts)


def images(seed: int = 1) -> Tensor:
    return torch.rand(12, 6, generator=torch.Generator().manual_seed(seed))


def overflowing(net: nn.Module, x: Tensor) -> Callable[[], Tensor]:
    """NaN at huge weights, which `binary_cross_entropy` refuses, as in PyTorch's VAE example.

    The NaN is put there: a sum of products that overflow is NaN or infinite, which depends on how a processor adds.
    """

    def closure() -> Tensor:
        seen = net(x)
        huge = max(float(p.detach().abs().max()) for p in net.parameters()) > 1e9
        return F.binary_cross_entropy(seen * (math.nan if huge else 1.0), x)

    return closure


def arm_of_step(optimizer: HotSwap, closure: Callable[[], Tensor]) -> int | None:
    optimizer.step(closure)
    return optimizer.last_step.arm


def optimizers(net: nn.Module) -> dict[str, HotSwap]:
    parameters = list(net.parameters())
    return {
        "sgd": HotSwapSGD(net, RATES),
        "adam": HotSwap(torch.optim.Adam(parameters), {"lr": RATES}, module=net),
        "exact": HotSwap(torch.optim.Adam(parameters), {"lr": RATES, "eps": [1e-8]}, module=net),
        "armijo": HotSwap(torch.optim.Adam(parameters), {"lr": RATES}, search=hotswap.Armijo(), module=net),
    }


@pytest.mark.parametrize("name", ["sgd", "adam", "exact", "armijo"])
def test_the_step_goes_on_with_a_smaller_rate(name: str) -> None:
    net, x = autoencoder(), images()
    optimizer = optimizers(net)[name]
    with pytest.warns(HotSwapWarning) as said:
        taken = [arm_of_step(optimizer, overflowing(net, x)) for _ in range(4)]
    assert 0 not in taken
    assert all(p.isfinite().all() for p in net.parameters())
    (warning,) = said  # though it has raised more than once
    text = str(warning.message)
    assert "raised RuntimeError('all elements of input should be between 0 and 1" in text
    assert "lr=1e+30" in text
    assert warning.filename == __file__


def test_it_counts_as_an_infinite_loss_and_teaches_the_bandit() -> None:
    net, x = autoencoder(), images()
    optimizer = HotSwapSGD(net, RATES)
    with pytest.warns(HotSwapWarning, match="at a trial with lr"):
        optimizer.step(overflowing(net, x))
    record = optimizer.last_step
    assert record.trials[0] == (0, math.inf)
    assert record.rewards[0] == -100.0
    assert optimizer.statistics()[0].mean == -100.0


def test_it_leaves_random_numbers_buffers_and_weights_as_other_trials_do() -> None:
    """The same training with closures that give infinity in place of the exception."""
    ends = []
    for raising in (True, False):
        net = autoencoder()
        optimizer = HotSwapSGD(net, RATES)
        torch.manual_seed(3)

        def closure(x: Tensor, net: nn.Module = net, raising: bool = raising) -> Tensor:
            try:
                return overflowing(net, x)()
            except RuntimeError:
                if raising:
                    raise
                return torch.tensor(math.inf)

        with pytest.warns(HotSwapWarning) if raising else torch.no_grad():
            for step in range(5):
                optimizer.step(lambda step=step: closure(images(step)))
        buffers = [value.double() for value in net.buffers()]
        ends.append([*weights(net), *buffers, torch.get_rng_state().double()])
    assert same(*ends)


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        MemoryError("no more"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: device-side assert triggered"),
        dist.DistBackendError("NCCL error"),
        RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer"),
        ConnectionResetError("reset by peer"),
        hotswap.ClosureError("ours"),
    ],
    ids=lambda error: f"{type(error).__name__}-{str(error)[:12]}",
)
def test_what_is_not_the_rates_doing_ends_the_step(error: BaseException) -> None:
    net, x = autoencoder(), images()
    optimizer = HotSwapSGD(net, RATES, check_closure=False)
    before = weights(net)

    def closure() -> Tensor:
        if hotswap.in_trial():
            raise error
        return net(x).square().mean()

    with pytest.raises(type(error)):
        optimizer.step(closure)
    assert same(weights(net), before)
    assert optimizer.last_step is None


@pytest.mark.parametrize("check", [True, False])
def test_a_closure_that_raises_at_every_second_call_ends_the_step(check: bool) -> None:
    """It raises at the start point, too, so no rate is to blame."""
    net, once = autoencoder(), [images()]
    optimizer = HotSwapSGD(net, RATES, check_closure=check)
    before = weights(net)

    said = nullcontext() if check else pytest.warns(HotSwapWarning, match="raised IndexError")
    with said, pytest.raises(IndexError):
        optimizer.step(lambda: net(once.pop()).square().mean())
    assert same(weights(net), before)


def test_a_loader_that_has_run_out_ends_the_step_at_once() -> None:
    net, once = autoencoder(), iter([images()])
    optimizer = HotSwapSGD(net, RATES, check_closure=False)
    before = weights(net)
    with pytest.raises(StopIteration):
        optimizer.step(lambda: net(next(once)).square().mean())
    assert same(weights(net), before)


def test_where_all_trials_raise_and_the_start_point_does_not_nothing_is_taken() -> None:
    net, x = autoencoder(), images()
    optimizer = HotSwapSGD(net, [1e30, 1e29], check_closure=False)
    before = weights(net)
    with pytest.warns(HotSwapWarning, match="raised RuntimeError"):
        optimizer.step(overflowing(net, x))
    record: Any = optimizer.last_step
    assert record.arm is None
    assert [loss for _, loss in record.trials] == [math.inf, math.inf]
    assert same(weights(net), before)


def test_a_closure_with_its_own_backward() -> None:
    net, x = autoencoder(), images()
    optimizer = HotSwapSGD(net, RATES)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = overflowing(net, x)()
        loss.backward()
        return loss

    with pytest.warns(HotSwapWarning) as said:
        taken = [arm_of_step(optimizer, closure) for _ in range(3)]
    assert set(taken) <= {1, 2}
    assert [("calls backward() itself" in str(w.message), "at a trial" in str(w.message)) for w in said] == [
        (True, False),
        (False, True),
    ]

"""Reading a loss while the device is busy."""

from __future__ import annotations

import pytest
import torch

from hotswap import HotSwapSGD, NoSearch
from hotswap.optim.closures import LossReader
from tests.optim.helpers import DEVICES, batches, loss_of, noisy, weights


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (1,)])
def test_a_loss_is_read_exactly(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    reader, loss = LossReader(), torch.full(shape, 1 / 3, dtype=dtype, device=device, requires_grad=True)
    for _ in range(2):
        reader.note(loss * 1.0)
        assert reader.read(loss) == loss.item()
    assert reader.read(loss) == loss.item()  # one that was not noted


@pytest.mark.gpu
def test_on_a_gpu_it_is_the_loss_that_was_noted() -> None:
    reader, loss = LossReader(), torch.full((), 2.0, device="cuda")
    reader.note(loss)
    loss.fill_(3.0)
    assert reader.read(loss) == 2.0
    assert reader.read(loss) == 3.0
    reader.note(loss)
    reader.forget()
    assert reader.read(torch.full((), 4.0, device="cuda")) == 4.0


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_without_trials_on_a_device(device: str) -> None:
    net, twin = noisy(device), noisy(device)
    optimizer = HotSwapSGD(net, [0.1], search=NoSearch())
    plain = torch.optim.SGD(twin.parameters(), lr=0.1)
    for x, y in batches(5):
        batch = x.to(device), y.to(device)
        torch.manual_seed(1)
        optimizer.step(loss_of(net, batch))
        torch.manual_seed(1)
        plain.zero_grad()
        loss = loss_of(twin, batch)()
        loss.backward()
        plain.step()
        assert optimizer.last_step.loss_before == pytest.approx(loss.item(), rel=1e-5)
    for ours, theirs in zip(weights(net), weights(twin), strict=True):
        torch.testing.assert_close(ours, theirs)

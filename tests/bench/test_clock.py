"""Every forward and every backward is counted, whoever asks for it."""

from __future__ import annotations

import pytest
import torch

from hotswap.bench.methods.base import Clock


def test_a_forward_is_a_third_and_a_backward_two() -> None:
    weight = torch.ones(3, requires_grad=True)
    batch = (torch.ones(3), torch.ones(3))
    clock = Clock()
    loss = clock.counted(lambda batch: (weight * batch[0]).sum())
    loss(batch).backward()
    assert clock.cost == 1
    with torch.no_grad():
        loss(batch)
    assert clock.cost == pytest.approx(4 / 3)
    (2 * loss(batch)).backward()  # scaled, as for half precision
    assert clock.cost == pytest.approx(7 / 3)
    assert torch.equal(weight.grad, torch.full((3,), 3.0))  # counting changes nothing

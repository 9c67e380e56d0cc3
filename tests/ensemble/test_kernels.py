"""What is compiled on a GPU is compiled once, whatever the sizes."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from hotswap.ensemble import kernels


def test_one_compilation_serves_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_has_compiler", lambda device: True)
    torch._dynamo.reset()
    slopes, trials = CompileCounter(), CompileCounter()
    slope_of = torch.compile(kernels.loss_and_slope, backend=slopes)
    loss_of = torch.compile(kernels.moved_loss, backend=trials)
    for runs, batch, arms in ((3, 64, 4), (3, 64, 8), (3, 128, 4), (12, 32, 8)):
        stay, shift = torch.randn(2, runs, arms, batch, 12)
        scores, rate, y = stay[:, 0], torch.rand(runs, arms, 1, 1), torch.randint(10, (batch,))
        kernels.of_any_size(scores, stay, rate, shift, y)
        loss, slope = slope_of(scores, y, 10)
        moved = loss_of(stay, rate, shift, y, 10)
        torch.testing.assert_close((loss, slope), kernels.loss_and_slope(scores, y, 10))
        torch.testing.assert_close(moved, kernels.moved_loss(stay, rate, shift, y, 10))
    assert (slopes.frame_count, trials.frame_count) == (1, 1)
    torch._dynamo.reset()

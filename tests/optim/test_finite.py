"""Gradients that are not finite are found, wherever they are, and finite ones are left as they are."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from hotswap.optim.gradients import FiniteCheck
from tests.optim.helpers import DEVICES


def asked(check: FiniteCheck, *gradients: Tensor) -> bool:
    check.ask(list(gradients))
    return check.answer()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_among_many(bad: float, device: str) -> None:
    check = FiniteCheck()
    gradients = [torch.randn(3, 4, device=device), torch.randn(5, device=device, dtype=torch.float64)]
    before = [gradient.clone() for gradient in gradients]
    assert asked(check, *gradients)
    for gradient in gradients:
        saved = gradient.view(-1)[2].clone()
        gradient.view(-1)[2] = bad
        assert not asked(check, *gradients)
        gradient.view(-1)[2] = saved
        assert asked(check, *gradients)  # what was found is forgotten
    assert all(torch.equal(gradient, old) for gradient, old in zip(gradients, before, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_gradients_that_are_all_alike(bad: float, device: str) -> None:
    check = FiniteCheck()
    gradients = [torch.randn(3, 4, device=device), torch.randn(5, device=device)]
    for gradient in gradients:
        assert asked(check, *gradients)
        gradient.view(-1)[2] = bad
        assert not asked(check, *gradients)
        gradient.view(-1)[2] = 1
    gradients[0][0] = bad
    check.ask(gradients)  # and then the step is broken off
    gradients[0][0] = 1
    assert asked(check, *gradients)


@pytest.mark.parametrize("device", DEVICES)
def test_a_norm_that_overflows_is_not_a_bad_gradient(device: str) -> None:
    check = FiniteCheck()
    assert asked(check, torch.full((4,), 3e38, device=device))
    assert asked(check, torch.empty(0, device=device))
    assert asked(check)


@pytest.mark.parametrize("device", DEVICES)
def test_an_expanded_gradient_is_only_read(device: str) -> None:
    check = FiniteCheck()
    one = torch.ones(1, device=device)
    assert asked(check, one.expand(5))
    assert not asked(check, torch.randn(3, device=device), (one * math.nan).expand(5))


@pytest.mark.gpu
def test_gradients_on_two_devices() -> None:
    check = FiniteCheck()
    here, there = torch.ones(3), torch.ones(3, device="cuda")
    for gradients in ([here, there], [there, here]):
        assert asked(check, *gradients)
        for bad in gradients:
            bad[1] = math.nan
            assert not asked(check, *gradients)
            bad[1] = 1

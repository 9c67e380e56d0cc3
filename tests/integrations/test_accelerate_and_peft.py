"""Accelerate, and adapters by peft, with the real packages."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import hotswap
from tests.integrations.racing import STEPS, batches, check_loop, check_winner, loss_of, network, race
from tests.integrations.test_loops import plain

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from accelerate import Accelerator
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.state import AcceleratorState, GradientState
    from peft import LoraConfig, get_peft_model

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Accelerate keeps its settings in the process."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def accumulating(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer = accelerator.prepare(net, race)
    for x, y in batches(begin, end):
        for part in (slice(0, 8), slice(8, None)):
            with accelerator.accumulate(model):
                loss = loss_of(model, (x[part], y[part]))
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step(loss)
                optimizer.zero_grad()


def test_accelerate_with_its_accumulation() -> None:
    check_loop(accumulating)


def test_accelerate_with_a_scaler_whose_skipped_steps_cost_no_turn() -> None:
    Accelerator(cpu=True)
    net = network()
    racing = race(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
    optimizer, skipped = AcceleratedOptimizer(racing, scaler=scaler), 0
    for batch in batches(0, 2 * STEPS):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_of(net, batch)
        scaler.scale(loss).backward()
        optimizer.step(loss)
        optimizer.zero_grad()
        skipped += optimizer.step_was_skipped
        if racing.steps == STEPS:
            break
    check_winner(racing)
    assert skipped > 3


def test_accelerates_own_checkpoint_resumes(tmp_path: Any) -> None:
    def trained(*parts: tuple[int, int]) -> nn.Module:
        for begin, end in parts:
            net = network()
            accelerator = Accelerator(cpu=True)
            model, optimizer = accelerator.prepare(net, race(net))
            torch.manual_seed(2)
            if begin:
                accelerator.load_state(str(tmp_path))
            for batch in batches(begin, end):
                loss = loss_of(model, batch)
                accelerator.backward(loss)
                optimizer.step(loss)
                optimizer.zero_grad()
            accelerator.save_state(str(tmp_path))
        return net

    whole, parts = trained((0, 100)), trained((0, 31), (31, 100))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), parts.parameters(), strict=True))


def adapted() -> nn.Module:
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(6, 500), nn.BatchNorm1d(500), nn.ReLU(), nn.Linear(500, 500), nn.Linear(500, 3))
    return get_peft_model(base, LoraConfig(r=4, target_modules=["0", "3", "4"], lora_dropout=0.1))


def test_peft() -> None:
    check_loop(plain, adapted)


def test_frozen_weights_are_in_no_lane_and_in_no_checkpoint() -> None:
    net = adapted()
    optimizer = race(net)
    plain(net, optimizer, 0, 30)
    adapters = sum(p.numel() for name, p in net.named_parameters() if "lora" in name)
    assert sum(p.numel() for group in optimizer.param_groups for p in group["params"]) == adapters
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    frozen = sum(p.nbytes for p in net.parameters() if not p.requires_grad)
    assert len(file.getvalue()) < frozen / 4

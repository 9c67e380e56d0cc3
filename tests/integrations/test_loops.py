"""Loops of one's own: each races, resumes exactly, and finds the right lane."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hotswap
from tests.integrations.racing import batches, check_loop, loss_of, network


def plain(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
    for batch in batches(begin, end):
        loss = loss_of(net, batch)
        loss.backward()
        race.step(loss)
        race.zero_grad()


def with_a_closure(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
    for batch in batches(begin, end):
        race.step(lambda batch=batch: loss_of(net, batch))


def accumulating(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
    for x, y in batches(begin, end):
        for part in (slice(0, 10), slice(10, None)):
            loss = loss_of(net, (x[part], y[part]))
            (loss / 2).backward()
            race.observe(loss)
        race.step()
        race.zero_grad()


def clipping(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
    for batch in batches(begin, end):
        loss = loss_of(net, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        race.step(loss)
        race.zero_grad()


def in_bfloat16(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
    for batch in batches(begin, end):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(net, batch)
        loss.backward()
        race.step(loss)
        race.zero_grad()


@pytest.mark.parametrize("loop", [plain, with_a_closure, accumulating, clipping, in_bfloat16])
def test_a_loop(loop: Any) -> None:
    check_loop(loop)


def test_a_compiled_model_has_one_graph_for_all_lanes() -> None:
    graphs = 0

    def count(graph: Any, _: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph

    def make() -> nn.Module:
        torch._dynamo.reset()
        return torch.compile(network(), backend=count)  # type: ignore[return-value]

    check_loop(plain, make)
    assert graphs == 5  # one for the whole run, and one for each of the four models of the run in parts


def test_float16_with_a_scaler_whose_skipped_steps_cost_no_turn() -> None:
    saved: dict[int, Any] = {0: (None, 0)}
    skipped = 0

    def scaled(net: nn.Module, race: hotswap.Race, begin: int, end: int) -> None:
        nonlocal skipped
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=30)
        state, seen = saved[begin]
        scaler.load_state_dict(state or scaler.state_dict())
        while sum(lane.steps for lane in race.standings()) < end:
            (batch,), seen = batches(seen, seen + 1), seen + 1
            with torch.autocast("cpu", dtype=torch.float16):
                loss = loss_of(net, batch)
            scaler.scale(loss).backward()
            before = race.current.steps
            scaler.step(race, loss)
            skipped += race.current.steps == before
            scaler.update()
            race.zero_grad()
        saved[end] = scaler.state_dict(), seen

    check_loop(scaled)
    assert skipped > 3

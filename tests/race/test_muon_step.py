"""A step of Muon is few calls whatever the number of matrices, and on a GPU one graph with the same bits."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import hotswap
from hotswap.race import orthogonal
from hotswap.race.orthogonal import Batch, Orthogonalizer, Shape
from tests.race.helpers import MODELS, loss_of, made, minibatches


class Calls(TorchDispatchMode):
    """Counts calls into torch, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def deep(layers: int) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), *(nn.Linear(8, 8) for _ in range(layers)), nn.Linear(8, 4))


def calls(layers: int) -> Counter[str]:
    model = made(lambda: deep(layers))
    optimizer = hotswap.Muon(model, lr=0.01)
    for batch in minibatches(2):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        with Calls() as counted:
            optimizer.step()
    return counted.counts


def test_more_matrices_of_a_shape_are_no_more_calls() -> None:
    few, many = calls(2), calls(9)
    kinds = [name for name in many if name.startswith("_foreach") or "bmm" in name or name in ("cat", "div")]
    assert len(kinds) > 5
    assert {name: few[name] for name in kinds} == {name: many[name] for name in kinds}


@pytest.mark.parametrize("kind", MODELS)
def test_what_a_step_remembers_changes_no_bit(kind: str) -> None:
    """Gradients come and go; one optimizer remembers the last step, the other is a copy."""
    model = made(MODELS[kind])
    twin = copy.deepcopy(model)
    optimizer, other = hotswap.Muon(model, lr=0.01), hotswap.Muon(twin, lr=0.01)
    for number, batch in enumerate(minibatches(9)):
        twin, other = copy.deepcopy((twin, other))
        for one, its in ((model, optimizer), (twin, other)):
            torch.manual_seed(number)
            loss_of(one, batch).backward()
            for place, p in enumerate(one.parameters()):
                if number % 3 == 1 and place % 2:
                    p.grad = None
            its.step()
            its.zero_grad()
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


BATCH = Batch((Shape(1, 4, 3), Shape(2, 3, 4)), (torch.Size([4, 3]), torch.Size([6, 4])))


def updates() -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(size) for size in BATCH.sizes]


class Raising:
    def __init__(self, *_: object) -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


class Wrong:
    def __init__(self, given: Sequence[Tensor], batches: Sequence[Batch]) -> None:
        self.outputs = [torch.zeros_like(one) for one in given]

    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        return self.outputs


class Right(Wrong):
    def __call__(self, given: Sequence[Tensor]) -> list[Tensor]:
        return orthogonal._all(given, [BATCH])


def test_a_graph_that_cannot_be_captured_or_has_other_bits_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Orthogonalizer(graph=False)(updates(), [BATCH])
    assert [one.shape for one in expected] == list(BATCH.sizes)
    for kind, used in ((Raising, False), (Wrong, False), (Right, True)):
        monkeypatch.setattr(orthogonal, "_Graph", kind)
        graph = orthogonal._captured(updates(), [BATCH], expected)
        assert (graph is not None) == used


def needs_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def stepped(optimizer: hotswap.Muon, number: int) -> None:
    torch.manual_seed(number)
    for group in optimizer.param_groups:
        group["lr"] = 0.01 / (number + 1)
        for p in group["params"]:
            p.grad = torch.randn_like(p)
    optimizer.step()
    optimizer.zero_grad()


def graphs(optimizer: hotswap.Muon) -> list[object]:
    return [one.graph for one in optimizer._orthogonalizers.values() if one.graph is not None]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_captured_graph_has_the_bits_of_single_launches(dtype: torch.dtype) -> None:
    needs_a_gpu()
    model = made(lambda: deep(3)).to("cuda", dtype)
    twin = copy.deepcopy(model)
    optimizer, other = hotswap.Muon(model, lr=0.01), hotswap.Muon(twin, lr=0.01, graph=False)
    for number in range(12):
        stepped(optimizer, number)
        stepped(other, number)
    assert len(graphs(optimizer)) == 1
    assert graphs(other) == []
    assert all(map(torch.equal, model.parameters(), twin.parameters()))


@pytest.mark.gpu
def test_lanes_share_a_graph_and_other_gradients_get_another_one() -> None:
    needs_a_gpu()
    model = made(lambda: deep(3)).cuda()
    first, second = hotswap.Muon(model, lr=0.01), hotswap.Muon(model, lr=0.02)
    for number in range(5):
        stepped(first, number)
    stepped(second, 0)
    assert graphs(first) == graphs(second)
    before = graphs(first)
    model[0].weight.requires_grad_(False)
    for _ in range(5):
        for p in model.parameters():
            p.grad = torch.randn_like(p) if p.requires_grad else None
        first.step()
    assert len(graphs(first)) == 1
    assert graphs(first) != before


@pytest.mark.gpu
def test_a_step_is_captured_in_a_graph_of_the_user_s() -> None:
    needs_a_gpu()
    model = made(lambda: deep(3)).cuda()
    optimizer = hotswap.Muon(model, lr=0.01)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    for _ in range(5):
        optimizer.step()
    twin = copy.deepcopy((model, optimizer))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizer.step()
    graph.replay()
    for p, other in zip(model.parameters(), twin[0].parameters(), strict=True):
        other.grad = p.grad
    twin[1].step()
    assert all(map(torch.equal, model.parameters(), twin[0].parameters()))


@pytest.mark.gpu
def test_a_race_of_muon_on_a_gpu_has_the_winner_that_trains_alone() -> None:
    needs_a_gpu()
    model = made(lambda: deep(3)).cuda()
    alone = copy.deepcopy(model)
    rates = (0.01, 0.03)
    race = hotswap.Race(model, [hotswap.Muon(model, lr=lr) for lr in rates], total_steps=2000, schedule=None)
    seen = []
    for batch in [(x.cuda(), y.cuda()) for x, y in minibatches(200)]:
        seen.append((race.current, batch))
        loss = loss_of(model, batch)
        loss.backward()
        race.step(loss)
        race.zero_grad()
    assert race.winner is not None
    optimizer = hotswap.Muon(alone, lr=rates[race._contest.lanes.index(race.winner)], graph=False)
    for lane, batch in seen:
        if lane is race.winner:
            loss_of(alone, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert all(map(torch.equal, model.parameters(), alone.parameters()))

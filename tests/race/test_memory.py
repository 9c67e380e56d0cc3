"""Parked lanes: in few pinned blocks, only as many as the host has room for, and never what is frozen."""

from __future__ import annotations

import copy
import io
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW

import hotswap
from hotswap.race import memory
from hotswap.race.memory import Blocks, Room, free_memory
from tests.race.helpers import loss_of, made, minibatches, perceptron, step, through_a_file

MIB = 2**20


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       900 kB\nMemFree:        10 kB\nMemAvailable:   500 kB\n"
TOLD: dict[str, tuple[dict[str, str], int | None]] = {
    "nothing": ({}, None),
    "the system": ({"proc/meminfo": MEMINFO}, 500 * 1024),
    "no limit": (
        {"proc/meminfo": MEMINFO, "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max\n"},
        500 * 1024,
    ),
    "a container": (
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/here\n",
            "sys/fs/cgroup/here/memory.max": "100000\n",
            "sys/fs/cgroup/here/memory.current": "60000\n",
            "sys/fs/cgroup/here/memory.stat": "anon 1000\ninactive_file 5000\nactive_file 2000\n",
        },
        47000,
    ),
    "a container around it": (
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/memory.max": "100000",
            "sys/fs/cgroup/outer/memory.current": "99000",
            "sys/fs/cgroup/outer/inner/memory.max": "90000",
            "sys/fs/cgroup/outer/inner/memory.current": "10000",
        },
        1000,
    ),
    "an old container": (
        {
            "proc/self/cgroup": "3:cpu:/x\n4:memory:/x\n",
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "70000",
            "sys/fs/cgroup/memory/x/memory.usage_in_bytes": "80000",
            "sys/fs/cgroup/memory/x/memory.stat": "total_inactive_file 500",
        },
        0,
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_free_memory_is_the_least_that_anything_tells(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    files, free = TOLD[name]
    assert free_memory(written(tmp_path, files)) == free
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert free_memory(tmp_path) == (None if free is None else free // 2)


def test_this_machine_has_free_memory() -> None:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < (free_memory() or 0) < total


@pytest.mark.parametrize(("free", "fits"), [(None, 3), (100, 3), (30, 2), (0, 1)])
def test_lanes_have_room_from_the_front_of_the_list(
    free: int | None, fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    votes = Room([10, 10, 10]).votes()
    assert (Room.fewest(votes), sum(votes)) == (fits, 1)
    others = [1.0, 0.0, 0.0]
    assert Room.fewest([one + other for one, other in zip(votes, others, strict=True)]) == 1
    assert Room.fewest(Room([]).votes()) == 0


def three(model: nn.Module) -> list[torch.optim.Optimizer]:
    return [SGD(model.parameters(), lr=0.1), AdamW(model.parameters()), AdamW(model.parameters(), lr=0.01)]


@pytest.mark.parametrize(("room", "racing"), [(10**9, 3), (3400, 2), (0, 1)])
def test_a_race_drops_lanes_for_which_the_host_has_no_room(
    room: int, racing: int, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: room)
    model = made(perceptron)
    race = hotswap.Race(model, three(model), total_steps=240, share=0.5)
    for batch in minibatches(240):
        step(model, race, batch)
    taken = [lane.steps for lane in race._contest.lanes]
    assert [steps > 0 for steps in taken] == [True] * racing + [False] * (3 - racing)
    assert race.winner is not None
    said = [str(one.message) for one in recwarn.list]
    told = [one.why for one in race.standings() if "has no room to park it" in one.why]
    assert len(told) == 3 - racing
    if racing < 3:
        assert len(said) == 1
        assert "A race drops " in said[0]
        assert said[0].endswith("GiB are free.")
        assert "AdamW 0.01" in said[0]
    else:
        assert not said


def test_lanes_that_are_dropped_give_up_their_memory_at_once() -> None:
    model = made(perceptron)
    lanes = [SGD(model.parameters(), lr=lr, momentum=0.9) for lr in (0.1, 0.01, 0.001, 0.0001)]
    race = hotswap.Race(model, lanes, total_steps=2000, share=0.5)
    for batch in minibatches(500):
        step(model, race, batch)
        for lane in race._contest.lanes:
            if lane.dropped_at is not None:
                assert lane.parked is None
                assert not lane.optimizer.state
    assert sum(lane.dropped_at is not None for lane in race._contest.lanes) == 3


def test_frozen_parameters_are_not_parked() -> None:
    model = nn.Sequential(nn.Linear(6, 100), nn.Tanh(), nn.Linear(100, 4))
    model[0].requires_grad_(False)
    trained = list(model[2].parameters())
    race = hotswap.Race(model, [SGD(trained, lr=0.1), AdamW(trained)], total_steps=240, share=0.5)
    for batch in minibatches(50):
        step(model, race, batch)
    saved = race.state_dict()["race"]
    parked = [lane["parked"]["model"] for lane in saved["lanes"] if lane["parked"] and lane["parked"]["model"]]
    shapes = {tuple(one.shape) for model in parked for one in model["weights"]}
    assert shapes == {(4, 100), (4,)}
    assert {tuple(one.shape) for one in saved["model"]["weights"]} == shapes


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("count", "size"), [(100, 3), (30, 2**18 + 1), (3, 2**24 + 2**22)])
def test_blocks_waste_little(count: int, size: int, known: bool) -> None:
    lengths: list[int] = []

    def counted(length: int) -> torch.Tensor:
        lengths.append(length)
        return torch.empty(length, dtype=torch.uint8)

    blocks = Blocks(counted, max(64, 4 * size) * count if known else 0)
    given = [torch.empty(size, device="meta") for _ in range(count)]
    parts = [blocks.take(one) for one in given]
    assert all(length & (length - 1) == 0 for length in lengths)
    alone = sum(1 << (4 * size - 1).bit_length() for _ in range(count))
    assert sum(lengths) <= max(alone, 2 * 64 * count)
    assert len(lengths) <= (min(count, 20) if known else count)
    addresses = sorted((part.data_ptr(), part.numel() * 4) for part in parts)
    assert all(begin + length <= after for (begin, length), (after, _) in pairwise(addresses))


def test_parts_of_blocks_are_laid_out_as_their_tensors_are() -> None:
    blocks = Blocks()
    kinds: list[Any] = [
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.randn(4, 3).mT,
        torch.randn(3, dtype=torch.complex64),
        torch.randint(9, (5,), dtype=torch.uint8),
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.randn(7, dtype=torch.float64),
    ]
    copies = [blocks.take(one).copy_(one) for one in kinds]
    for one, other in zip(kinds, copies, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
        assert one.dtype == other.dtype


def test_memory_that_cannot_be_pinned_is_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.empty

    def refusing(*args: Any, **settings: Any) -> torch.Tensor:
        if settings.get("pin_memory"):
            raise RuntimeError("CUDA error: out of memory")
        return real(*args, **settings)

    monkeypatch.setattr(torch, "empty", refusing)
    part = Blocks().take(torch.ones(3))
    assert not part.is_pinned()
    assert torch.equal(part.fill_(2.0), torch.full((3,), 2.0))


def test_a_checkpoint_has_no_more_than_its_tensors_and_copies_have_blocks_of_their_own() -> None:
    model = made(perceptron)
    race = hotswap.Race(model, three(model), total_steps=240, share=0.5)
    for batch in minibatches(30):
        step(model, race, batch)
    lane = race._contest.lanes[0]
    assert lane.parked is not None
    values = lane.parked["model"]["weights"]
    for number, value in enumerate(values):  # as on a GPU
        values[number] = lane.blocks.take(value).copy_(value)
    sizes = []
    for state in (race.state_dict(), through_a_file(race.state_dict())):
        file = io.BytesIO()
        torch.save(state, file)
        sizes.append(file.tell())
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)
    twin, other = copy.deepcopy((model, race))
    assert other._contest.lanes[0].blocks.blocks == []
    for batch in minibatches(40):
        step(model, race, batch)
        step(twin, other, batch)
    assert loss_of(model, minibatches(1)[0]) == loss_of(twin, minibatches(1)[0])


def gpu_race(total: int) -> tuple[nn.Module, hotswap.Race]:
    model = made(perceptron).cuda()
    lanes = [AdamW(model.parameters(), lr=lr, fused=True) for lr in (0.01, 0.03)]
    return model, hotswap.Race(model, lanes, total_steps=total)


def gpu_step(model: nn.Module, race: hotswap.Race, batch: Any) -> None:
    step(model, race, (batch[0].cuda(), batch[1].cuda()))


@pytest.mark.gpu
def test_lanes_wait_in_pinned_memory_and_come_back_exactly() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model, race = gpu_race(2000)
    held, left, came_back = [], {}, 0
    for batch in minibatches(150):
        before, values = race.current, [p.clone() for p in model.parameters()]
        if before in left:  # its turn has begun again
            came_back += 1
            assert all(map(torch.equal, left.pop(before), values))
        gpu_step(model, race, batch)
        if race.current is not before and before.dropped_at is None:
            torch.cuda.synchronize()
            parked = before.parked
            assert parked is not None
            assert all(one.is_pinned() for one in parked["model"]["weights"])
            assert not before.optimizer.state
            left[before] = [one.cuda() for one in parked["model"]["weights"]]
        held.append(torch.cuda.memory_allocated())
    assert came_back
    assert max(held[100:]) <= max(held[:100])


@pytest.mark.gpu
@pytest.mark.parametrize("stop", [10, 50, 400])
def test_a_race_on_a_gpu_resumes_exactly_with_counters_on_the_device(stop: int) -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    model, race = gpu_race(500)
    for batch in minibatches(stop):
        gpu_step(model, race, batch)
    again, other = gpu_race(500)
    other.load_state_dict(through_a_file(race.state_dict()))
    for batch in minibatches(60, seed=4):
        gpu_step(model, race, batch)
        gpu_step(again, other, batch)
    assert all(map(torch.equal, model.parameters(), again.parameters()))

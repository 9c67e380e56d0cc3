"""Bandits with a state of their own: learned, saved and resumed in the optimizer, whatever fields it has."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from hotswap import Bandit, CheckpointError, DiscountedUCB, HotSwap, HotSwapSGD
from hotswap.arrays import Array, Device
from hotswap.generators import generators, uniform
from tests.optim.helpers import batches, model, own_entry, same, through_a_file, train, weights


class Longest(NamedTuple):
    """The sums of a greedy bandit, and one field more: the step at which each arm was last tried."""

    rewards: Array
    counts: Array
    step: Array
    last_tried: Array


class Oldest(Bandit):
    """Proposes the arm that was not tried for the longest time."""

    def start(self, runs: int, arms: int, device: Device = None) -> Any:
        zeros = [np.zeros((runs, arms)) for _ in range(3)]
        return Longest(zeros[0], zeros[1], np.zeros(runs, dtype=np.int64), zeros[2])

    def propose(self, state: Any) -> tuple[Array, Any]:
        return state.last_tried.argmin(axis=1), state._replace(step=state.step + 1)

    def index(self, state: Any) -> Array:
        return -state.last_tried

    def observe(self, state: Any, arm: Array, reward: Array, tried: Array | None = None) -> Any:
        last_tried, counts = state.last_tried.copy(), state.counts.copy()
        for run, arms in enumerate(arm):
            last_tried[run, arms] = state.step[run]
            counts[run, arms] += 1
        return state._replace(last_tried=last_tried, counts=counts)

    def counts(self, state: Any) -> Array:
        return state.counts

    def means(self, state: Any) -> Array:
        return np.full_like(state.counts, np.nan)


@dataclass(frozen=True)
class Drawn:
    """A dataclass of arrays, with a generator."""

    tries: Array
    generator: Array


class Random(Bandit):
    """Proposes any arm."""

    def start(self, runs: int, arms: int, device: Device = None) -> Any:
        return Drawn(np.zeros((runs, arms)), generators([0] * runs, device))

    def propose(self, state: Any) -> tuple[Array, Any]:
        values, generator = uniform(state.generator, state.tries.shape[1])
        return values.argmax(axis=1), Drawn(state.tries, generator)

    def index(self, state: Any) -> Array:
        return np.zeros_like(state.tries)

    def observe(self, state: Any, arm: Array, reward: Array, tried: Array | None = None) -> Any:
        tries = state.tries.copy()
        for run, arms in enumerate(arm):
            tries[run, arms] += 1
        return Drawn(tries, state.generator)

    def counts(self, state: Any) -> Array:
        return state.tries

    def means(self, state: Any) -> Array:
        return np.full_like(state.tries, np.nan)


BANDITS: dict[str, type[Bandit]] = {"one field more": Oldest, "random": Random}


def build(bandit: type[Bandit], seed: int = 0) -> tuple[nn.Module, HotSwap]:
    net = model()
    return net, HotSwapSGD(net.parameters(), momentum=0.5, bandit=bandit(), seed=seed)


def loaded(pair: tuple[nn.Module, HotSwap], kind: type[Bandit], _: Path) -> tuple[nn.Module, HotSwap]:
    net, optimizer = build(kind, seed=9)
    optimizer.load_state_dict(through_a_file(pair[1].state_dict()))
    net.load_state_dict(pair[0].state_dict())
    return net, optimizer


def from_a_distributed_checkpoint(
    pair: tuple[nn.Module, HotSwap], kind: type[Bandit], folder: Path
) -> tuple[nn.Module, HotSwap]:
    dcp.save({"net": pair[0].state_dict(), "optimizer": pair[1].state_dict()}, checkpoint_id=folder)
    net, optimizer = build(kind, seed=9)
    train(net, optimizer, batches(1, seed=5))  # a distributed checkpoint loads into tensors that are there
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return net, optimizer


WAYS: dict[str, Callable[..., tuple[nn.Module, HotSwap]]] = {
    "file": loaded,
    "distributed": from_a_distributed_checkpoint,
    "deep copy": lambda pair, *_: copy.deepcopy(pair),
    "pickle": lambda pair, *_: pickle.loads(pickle.dumps(pair)),
}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # one process is enough here
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", BANDITS)
def test_any_state_resumes_exactly(kind: str, way: str, tmp_path: Path) -> None:
    pair, data = build(BANDITS[kind], seed=3), batches(40)
    train(*pair, data[:15])
    again = WAYS[way](pair, BANDITS[kind], tmp_path)
    assert train(*pair, data[15:]) == train(*again, data[15:])
    assert same(weights(pair[0]), weights(again[0]))


def test_the_seed_decides_what_a_random_bandit_proposes() -> None:
    starts = []
    for seed in (0, 0, 1):
        net, optimizer = build(Random, seed)
        starts.append([record.start for record in train(net, optimizer, batches(10))])
    assert starts[0] == starts[1] != starts[2]


def test_statistics_of_a_bandit_without_means() -> None:
    net, optimizer = build(Oldest)
    train(net, optimizer, batches(3))
    rows = optimizer.statistics()
    assert sum(row.count for row in rows) >= 3
    assert all(np.isnan(row.mean) for row in rows)
    assert len(str(rows).splitlines()) == 34


@pytest.mark.parametrize(
    ("saved", "now", "message"),
    [
        (
            Oldest,
            DiscountedUCB,
            "has the fields counts, last_tried, rewards, step, but that of DiscountedUCB has counts, rewards, step",
        ),
        (DiscountedUCB, Oldest, "has counts, last_tried, rewards, step; use the bandit that it was saved with"),
        (
            Random,
            DiscountedUCB,
            "of another bandit: its state has the fields generator, tries, but that of DiscountedUCB",
        ),
    ],
)
def test_the_state_of_another_bandit_is_refused_and_changes_nothing(
    saved: type[Bandit], now: type[Bandit], message: str
) -> None:
    state = build(saved)[1].state_dict()
    net, optimizer = build(now)
    train(net, optimizer, batches(3))
    before, record = str(optimizer.state_dict()), optimizer.last_step
    with pytest.raises(CheckpointError, match=message):
        optimizer.load_state_dict(state)
    assert str(optimizer.state_dict()) == before
    assert optimizer.last_step is record


def test_another_shape_is_refused() -> None:
    state = build(Oldest)[1].state_dict()
    state["param_groups"][0]["hotswap"]["bandit"]["last_tried"] = torch.zeros(1, 7)
    with pytest.raises(CheckpointError, match=r"last_tried has the shape \(1, 7\), but \(1, 33\) is needed"):
        build(Oldest)[1].load_state_dict(state)


class Renamed(Oldest):
    """`Oldest`, whose field had another name in version 1."""

    state_version: ClassVar[int] = 2

    def migrate(self, arrays: dict[str, Array], version: int) -> dict[str, Array]:
        if version != 1:
            return super().migrate(arrays, version)
        return {"last_tried" if name == "seen" else name: array for name, array in arrays.items()}


def test_a_state_of_an_older_version_is_migrated() -> None:
    net, optimizer = build(Renamed)
    train(net, optimizer, batches(5))
    state = through_a_file(optimizer.state_dict())
    entry = state["param_groups"][0]["hotswap"]
    assert (entry["bandit_kind"], entry["bandit_version"]) == ("Renamed", 2)
    entry["bandit"]["seen"] = entry["bandit"].pop("last_tried")
    entry["bandit_version"] = 1
    again = build(Renamed)[1]
    again.load_state_dict(state)
    assert torch.equal(own_entry(again)["bandit"]["last_tried"], own_entry(optimizer)["bandit"]["last_tried"])
    entry["bandit_version"] = 7
    with pytest.raises(CheckpointError, match="version"):
        again.load_state_dict(state)

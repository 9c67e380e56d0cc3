"""A training that is stopped and goes on in another process: the next hundred steps are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwap, HotSwapSGD, NoSearch
from tests.optim.distributed.processes import FORKED
from tests.race import helpers as of_races


class Run:
    """Dropout, batch norm, momentum and a data order; its state has all that decides the future."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        parts = [nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)]
        self.net = nn.Sequential(*parts)
        self.optimizer = HotSwapSGD(self.net.parameters(), momentum=0.5, clip_norm=1.0)
        self.order = torch.Generator().manual_seed(7)
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(200, 5, generator=generator).to(self.net[0].weight.dtype)
        self.y = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 0.5).long()

    def train(self, steps: int) -> list[tuple[int | None, float]]:
        seen = []
        for _ in range(steps):
            rows = torch.randint(200, (16,), generator=self.order)
            self.optimizer.step(lambda rows=rows: cross_entropy(self.net(self.x[rows]), self.y[rows]))
            seen.append((self.optimizer.last_step.arm, self.optimizer.last_step.loss_after))
        return seen

    def state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.get_state(),
            "random": torch.get_rng_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order.set_state(state["order"])
        torch.set_rng_state(state["random"])


def go_on(source: Path, target: Path) -> None:
    torch.set_num_threads(1)  # as in the process that it goes on from
    run = Run()
    run.load(torch.load(source, weights_only=True))
    seen = run.train(100)
    torch.save({**run.state(), "seen": seen}, target)


def test_the_next_hundred_steps_are_the_same(tmp_path: Path) -> None:
    stopped = Run()
    stopped.train(50)
    torch.save(stopped.state(), tmp_path / "half.pt")
    other = FORKED.Process(target=go_on, args=(tmp_path / "half.pt", tmp_path / "resumed.pt"))
    other.start()
    other.join()
    assert other.exitcode == 0
    resumed = torch.load(tmp_path / "resumed.pt", weights_only=True)
    whole = Run()
    whole.train(50)
    assert whole.train(100) == resumed["seen"]
    for name, tensor in whole.net.state_dict().items():
        assert torch.equal(tensor, resumed["net"][name]), name
    assert torch.equal(torch.get_rng_state(), resumed["random"])


RATES = [1.0, 0.3, 0.1, 0.03]
KINDS = ("perceptron", "dropout and batch norm", "tied, recurrent", "complex", "parametrized")
SETUPS: dict[str, Callable[[nn.Module], HotSwap]] = {
    "momentum": lambda net: HotSwapSGD(net, RATES, momentum=0.9),
    "Adam": lambda net: HotSwap(torch.optim.Adam(net.parameters(), lr=0.01), {"lr": RATES}, module=net),
    "every trial a step": lambda net: HotSwap(
        torch.optim.SGD(net.parameters(), lr=1.0), {"lr": RATES, "momentum": [0.0, 0.9]}, module=net
    ),
    "no search": lambda net: HotSwapSGD(net, RATES, momentum=0.9, search=NoSearch()),
    "seldom": lambda net: HotSwap(
        torch.optim.RMSprop(net.parameters(), lr=0.01), {"lr": RATES}, search_every=3, module=net
    ),
}


def frozen_and_thawed(net: nn.Module, step: int) -> None:
    first, *_, last = net.parameters()
    for parameter, freeze, thaw in ((first, (4, 13), (8, 18)), (last, (10,), (20,))):
        if step in (*freeze, *thaw):
            parameter.requires_grad_(step in thaw)


def resumed(kind: str, name: str, every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are frozen and thawed; the optimizer is saved before each step, and goes on from some of them."""
    monkeypatch.setattr("hotswap.optim.modules.living_modules", list)  # all objects, in each copy, would take minutes
    steps, later, saved, after = 24, 8, [], []
    minibatches = of_races.minibatches(steps)

    def fresh(seed: int) -> tuple[nn.Module, HotSwap]:
        net = of_races.made(of_races.MODELS[kind], seed)
        return net, SETUPS[name](net)

    def train(net: nn.Module, optimizer: HotSwap, begin: int, end: int) -> Iterator[list[torch.Tensor]]:
        for step in range(begin, end):
            frozen_and_thawed(net, step)
            optimizer.zero_grad()
            random = torch.get_rng_state()
            saved.append((of_races.through_a_file((net.state_dict(), optimizer.state_dict())), random))
            optimizer.step(lambda step=step: of_races.loss_of(net, minibatches[step]))
            yield [tensor.detach().clone() for tensor in (*net.parameters(), *net.buffers())]

    net, optimizer = fresh(0)
    after = list(train(net, optimizer, 0, steps))
    whole = saved[:steps]
    for number in range(1, steps, every):
        net, optimizer = fresh(5)
        for step in range(number):
            frozen_and_thawed(net, step)
        (weights, state), random = whole[number]
        net.load_state_dict(weights)
        optimizer.load_state_dict(state)
        torch.set_rng_state(random)
        *_, last = train(net, optimizer, number, min(steps, number + later))
        assert of_races.equal(last, after[min(steps, number + later) - 1]), number


@pytest.mark.parametrize(
    ("kind", "name"), [*zip(KINDS, SETUPS, strict=True), ("complex", "Adam"), ("complex", "seldom")]
)
def test_layers_are_frozen_and_thawed(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed(kind, name, 5, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_goes_on_from_every_step(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed(kind, name, 1, monkeypatch)

"""A training that is stopped and goes on in another process: the next hundred steps are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from hotswap import HotSwapSGD
from tests.optim.distributed.processes import FORKED


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
    stopped, whole = Run(), Run()
    stopped = Run()
    stopped.train(50)
    torch.save(stopped.state(), tmp_path / "half.pt")
    other = FORKED.Process(target=go_on, args=(tmp_path / "half.pt", tmp_path / "resumed.pt"))
    other.start()
    other.join()
    resumed = torch.load(tmp_path / "resumed.pt", weights_only=True)
    whole = Run()
    whole.train(50)
    assert whole.train(100) == resumed["seen"]
    for name, tensor in whole.net.state_dict().items():
        assert torch.equal(tensor, resumed["net"][name]), name
    assert torch.equal(torch.get_rng_state(), resumed["random"])

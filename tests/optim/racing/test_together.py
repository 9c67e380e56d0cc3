"""Lanes as one program are the same lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from hotswap.optim.racing.together import Together, Trying
from tests.optim.racing.helpers import RATES, STEPS, minibatches, network, race
from tests.optim.racing.test_unusual_models import Tied


class Always(Trying):
    """Tries nothing: lanes are one program."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(Together(model))
        self.choice, self.decided = self.together, True


def convolution() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"network": network, "tied": Tied, "convolution": convolution}


def losses(model: nn.Module, *, together: bool, **settings: Any) -> tuple[list[dict[int, float]], hotswap.Race]:
    optimizer = race(model.double(), **settings)
    found = []
    torch.manual_seed(7)
    for number, (x, y) in enumerate(minibatches()):
        if together and number == 1:  # lanes are there after the first step
            optimizer._course.trying = Always(model)
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x.double()), y))
        assert optimizer.last_step is not None
        found.append(optimizer.last_step.losses)
    return found, optimizer


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("settings", [{}, {"clip_norm": 0.5}], ids=["plain", "clipped"])
def test_the_same_losses_as_in_turn(build: Callable[[], nn.Module], settings: dict[str, Any]) -> None:
    """With batch norm's statistics, dropout's masks and weights in two places."""
    made = []
    for together in (False, True):
        torch.manual_seed(0)
        made.append(losses(build(), together=together, **settings))
    (turn, first), (one, second) = made
    for step, (these, those) in enumerate(zip(turn, one, strict=True)):
        assert these == pytest.approx(those, rel=1e-9), step
    assert first.winner == second.winner
    assert second._course.trying is not None
    assert second._course.trying.choice is not None  # it has not given up


def test_a_closure_that_cannot_be_vectorized_runs_in_turn() -> None:
    model, other = network(), network()
    optimizer, plain = race(model), race(other)
    torch.manual_seed(7)
    for number, (x, y) in enumerate(minibatches()):
        if number == 1:
            optimizer._course.trying = Always(model)

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            loss = cross_entropy(model(x), y)
            assert loss.item() < 1e9  # reads from the device
            return loss

        optimizer.step(closure)
    torch.manual_seed(7)
    for x, y in minibatches():
        plain.step(lambda x=x, y=y: cross_entropy(other(x), y))
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), other.parameters(), strict=True))
    assert "they cannot be one program" in str(optimizer.standings())


def test_the_faster_way_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotswap.optim.racing.together.torch.cuda.synchronize", lambda: None)
    for slow, expected in ((True, True), (False, False)):
        trying, together = Trying(Together(network())), []
        now = [0.0]
        monkeypatch.setattr("hotswap.optim.racing.together.time.perf_counter", lambda now=now: now[0])
        for _ in range(15):
            one = trying.next() is not None
            together.append(one)
            now[0] += (2.0 if slow else 0.5) if not one else 1.0
            trying.done(together=one)
        assert together[:5] == [False] * 5
        assert together[5:10] == [True] * 5
        assert together[10:] == [expected] * 5
        assert trying.told.startswith("Lanes run as one program" if expected else "Lanes run in turn")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_small_networks_on_a_gpu_try_it() -> None:
    model = network().cuda()
    optimizer = race(model, arms={"lr": (*RATES, 1e-4)}, rounds=((20, 2), (30, 1)))
    for x, y in minibatches(STEPS):
        optimizer.step(lambda x=x, y=y: cross_entropy(model(x.cuda()), y.cuda()))
    assert optimizer.winner is not None
    assert "Lanes run" in str(optimizer.standings())
    assert "cannot" not in str(optimizer.standings())

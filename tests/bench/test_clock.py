"""Every forward and every backward is counted, whoever asks for it."""

from __future__ import annotations

import pytest
import torch

from hotswap.bench.clock import Clock
from hotswap.bench.methods.races import RaceAdamW, RaceAdamWSGD
from hotswap.bench.workloads import WORKLOADS
from hotswap.races import race_passes, race_steps


def test_a_forward_is_a_third_and_a_backward_two() -> None:
    weight = torch.ones(3, requires_grad=True)
    batch = (torch.ones(3), torch.ones(3))
    clock = Clock()
    loss = clock.counted(lambda batch: (weight * batch[0]).sum())
    loss(batch).backward()
    assert clock.cost == 1
    with torch.no_grad():
        loss(batch)
    assert clock.cost == pytest.approx(4 / 3)
    (2 * loss(batch)).backward()  # scaled, as for half precision
    assert clock.cost == pytest.approx(7 / 3)
    assert torch.equal(weight.grad, torch.full((3,), 3.0))  # counting changes nothing


@pytest.mark.parametrize(("method", "lanes"), [(RaceAdamW, 6), (RaceAdamWSGD, 9)])
def test_a_race_counts_as_the_clock_does(method: type[RaceAdamW], lanes: int) -> None:
    task = WORKLOADS["logistic_regression"]().task(0, "smoke")
    training = method().begin(task, {}, 0)
    assert len(training.optimizer.arms) == lanes
    training.task = type(task)(task.model, task.steps, task.minibatches, training.loss, task.measure)
    batches = task.minibatches()
    while not training.is_over:
        training.step(next(batches))
        assert training.cost == pytest.approx(training._clock.cost)
    assert training.cost == race_passes(lanes, training.steps, least=1) <= task.steps


def test_the_longest_race_that_fits() -> None:
    for budget in (1200, 4600):
        steps = race_steps(6, budget)
        assert race_passes(6, steps) <= budget < race_passes(6, steps + 1)
    with pytest.raises(ValueError, match="does not fit into 80 passes"):
        race_steps(6, 80)

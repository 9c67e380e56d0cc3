"""Each workload can be trained, is the same every time, and is measured without a trace."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from hotswap.bench.workloads import WORKLOADS, Task, Workload


@pytest.fixture(params=sorted(WORKLOADS))
def workload(request: pytest.FixtureRequest) -> Workload:
    return WORKLOADS[request.param]()


def trained(task: Task, steps: int, rate: float = 3e-3) -> list[float]:
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=rate)
    losses = []
    torch.manual_seed(0)
    for batch in islice(task.minibatches(), steps):
        optimizer.zero_grad()
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_there_are_eight() -> None:
    assert len(WORKLOADS) == 8
    assert sum(workload.wants_gpu for workload in WORKLOADS.values()) == 3


def test_it_learns(workload: Workload) -> None:
    task = workload.task(0, "smoke")
    before = task.measure()
    losses = trained(task, task.steps)
    after = task.measure()
    assert all(number > 0 for number in (*before, *after))
    assert after.train < before.train
    assert sum(losses[-10:]) < sum(losses[:10])


def test_it_is_the_same_every_time(workload: Workload) -> None:
    first, again, other = (workload.task(seed, "smoke") for seed in (0, 0, 1))
    assert trained(first, 5) == trained(again, 5)
    assert trained(other, 5) != trained(workload.task(0, "smoke"), 5)


def test_a_seed_decides_weights_and_order_and_nothing_else(workload: Workload) -> None:
    one, other = workload.task(0, "smoke"), workload.task(1, "smoke")
    batches = [next(iter(task.minibatches())) for task in (one, other)]
    assert not torch.equal(batches[0][0], batches[1][0])
    weights = [torch.cat([p.detach().flatten() for p in task.model.parameters()]) for task in (one, other)]
    assert not torch.equal(*weights)
    other.model.load_state_dict(one.model.state_dict())
    assert one.measure() == other.measure()  # of the same samples


def test_measuring_leaves_no_trace(workload: Workload) -> None:
    task = workload.task(0, "smoke")
    trained(task, 3)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    state = torch.get_rng_state()
    assert task.measure() == task.measure()
    assert task.model.training
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in task.model.state_dict().items())

"""Each workload can be trained, is the same every time, and is measured without a trace."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from itertools import islice, repeat
from pathlib import Path

import pytest
import torch
from torch.nn.functional import pad

from hotswap.bench.workloads import WORKLOADS, Task, Workload
from hotswap.bench.workloads.base import judged_by_loss, minibatches_of
from hotswap.bench.workloads.images import Images, augmented
from hotswap.bench.workloads.text import Text, sources
from hotswap.data import load
from hotswap.errors import SettingError


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


def test_validation_is_on_samples_that_nothing_is_trained_on() -> None:
    data = load("digits")
    images = Images.of("digits", "cpu", flat=True)
    assert torch.equal(images.validation[0], torch.from_numpy(data.test_inputs()))
    assert torch.equal(images.measured[0], torch.from_numpy(data.train_inputs())[:5000])
    batch, _ = next(images.minibatches(16, 0))
    assert all((images.train_x == row).all(1).any() for row in batch)
    train, held_out = sources()
    assert 0.02 < len(held_out) / (len(train) + len(held_out)) < 0.1
    text = Text(40, "cpu")
    for held, own in ((True, held_out), (False, train)):
        x, y = text.measured(30, held_out=held)
        assert all(bytes([*row.tolist(), after.item()]) in own for row, after in zip(x, y[:, -1], strict=True))
    x, y = next(text.minibatches(30, 0))
    assert all(bytes(row.tolist()) in train for row in x)
    assert torch.equal(x[:, 1:], y[:, :-1])  # each character is predicted from those before


def test_a_link_to_nowhere_among_the_sources_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(21):
        (tmp_path / f"module_{number:02}.py").write_text(f"x = {number}\n")
    (tmp_path / "sitecustomize.py").symlink_to(tmp_path / "gone.py")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    train, held_out = sources.__wrapped__()
    assert held_out == b"x = 0\n\nx = 20\n"
    assert train.count(b"x = ") == 19


def test_pictures_are_shifted_and_mirrored_and_nothing_else() -> None:
    x, y = torch.rand(4, 3, 8, 8), torch.arange(4)
    plain = pad(x, (4, 4, 4, 4))
    places = {
        (down, right, mirrored): part.flip(-1) if mirrored else part
        for down in range(9)
        for right in range(9)
        for mirrored in (False, True)
        for part in [plain[..., down : down + 8, right : right + 8]]
    }
    seen = set()
    for moved, labels in islice(augmented(repeat((x, y)), seed=0), 60):
        assert torch.equal(labels, y)
        seen |= {place for place, part in places.items() if torch.equal(part, moved)}
    assert len(seen) > 40
    assert {mirrored for *_, mirrored in seen} == {False, True}


def test_one_of_ones_own_that_lacks_something_is_refused_at_once() -> None:
    parts = {"title": "mine", "task": lambda *_: None}
    with pytest.raises(SettingError, match="Mine must have the attribute measured; see Workload"):
        WORKLOADS.register("mine")(type("Mine", (Workload,), parts))
    with pytest.raises(SettingError, match=r"Mine must define task\(\); see Workload"):
        WORKLOADS.register("mine")(type("Mine", (Workload,), {"title": "mine", "measured": "error"}))
    assert "mine" not in WORKLOADS


def test_a_loss_that_is_not_of_each_sample_is_refused() -> None:
    x, y = torch.rand(20, 1), torch.rand(20)
    model = torch.nn.Linear(1, 1)

    def task(loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Task:
        return judged_by_loss(model, 10, lambda: minibatches_of(x, y, 5, 0), loss, (x, y), (x, y))

    right = task(lambda x, y: (model(x)[:, 0] - y).square())
    assert right.measure().validation == pytest.approx((model(x)[:, 0] - y).square().mean().item())
    reduced = task(lambda x, y: (model(x)[:, 0] - y).square().mean())
    spread = task(lambda x, y: (model(x) - y).square())
    with pytest.raises(SettingError, match=r"The loss of 20 samples has the shape \(\), and must have \(20,\)"):
        reduced.measure()
    with pytest.raises(SettingError, match=r"The loss of 5 samples has the shape \(5, 5\), and must have \(5,\)"):
        spread.loss(next(spread.minibatches()))


def test_there_are_eight() -> None:
    assert len(WORKLOADS) == 8
    assert sum(workload.wants_gpu for workload in WORKLOADS.values()) == 2


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

"""What is written, and when."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

import hotswap
from hotswap.integrations.tensorboard import TensorBoardLog
from tests.integrations.racing import batches as minibatches
from tests.integrations.racing import loss_of as race_loss
from tests.integrations.racing import network, race
from tests.optim.helpers import batches, loss_of, model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter


def scalars_in(folder: Path) -> dict[str, dict[int, float]]:
    """By tag and step."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def test_a_real_writer(tmp_path: Path) -> None:
    net = model()
    optimizer = hotswap.HotSwapSGD(net.parameters())
    with SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardLog(writer, optimizer, statistics_every=5)
        log()  # before the first step there is nothing to say
        records = []
        for number, batch in enumerate(batches(10), start=1):
            optimizer.step(loss_of(net, batch))
            log(number)
            records.append(optimizer.last_step)
    scalars = scalars_in(tmp_path)
    for number, record in enumerate(records, start=1):
        assert record is not None
        assert scalars["hotswap/lr"][number] == pytest.approx(record.values["lr"], rel=1e-6)
        assert scalars["hotswap/trials"][number] == len(record.trials)
        best = min(loss for _, loss in record.trials)
        reward = math.log(record.loss_before / best)
        assert scalars["hotswap/reward"][number] == pytest.approx(reward, rel=1e-4, abs=1e-6)
    assert sorted(scalars["hotswap/mean_reward/32"]) == [5, 10]
    assert len([tag for tag in scalars if tag.startswith("hotswap/count/")]) == 33


def test_lanes_of_a_race_are_curves_where_they_have_the_model(tmp_path: Path) -> None:
    net = network()
    optimizer = race(net)
    took: dict[str, dict[int, float]] = {}
    with SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardLog(writer, optimizer)
        log()  # before the first step there is nothing to say
        for number, batch in enumerate(minibatches(0, 60), start=1):
            name = optimizer.current.name.replace(" ", "_")
            loss = race_loss(net, batch)
            loss.backward()
            optimizer.step(loss)
            optimizer.zero_grad()
            took.setdefault(name, {})[number] = float(loss.detach())
            log()
    scalars = scalars_in(tmp_path)
    assert len(took) == 2
    for lane, (name, losses) in enumerate(took.items()):
        assert scalars[f"hotswap/loss/{name}"] == pytest.approx(losses)
        assert scalars[f"hotswap/rate/{name}"].keys() == losses.keys()
        assert {scalars["hotswap/lane"][number] for number in losses} == {lane}


def test_what_cannot_be_meant() -> None:
    net = model()
    with pytest.raises(hotswap.SettingError, match="pass a Race or a HotSwap; a SGD is neither"):
        TensorBoardLog(None, torch.optim.SGD(net.parameters(), lr=1.0))  # type: ignore[arg-type]
    with pytest.raises(hotswap.SettingError, match="must not be negative"):
        TensorBoardLog(None, hotswap.HotSwapSGD(net.parameters()), statistics_every=-1)

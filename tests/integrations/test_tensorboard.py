"""What is written, and when."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

import hotswap
from hotswap.integrations.tensorboard import TensorBoardLog
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


def test_lanes_of_several_optimizers_are_told_apart(tmp_path: Path) -> None:
    net = model()
    bases = [torch.optim.AdamW(net.parameters()), torch.optim.SGD(net.parameters(), 0.1)]
    race = hotswap.Race(bases, [{"lr": (0.1, 0.01)}, {"lr": (0.1,)}], total_steps=20, rounds=((6, 1),), least=2)
    with SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardLog(writer, race)
        for batch in batches(10):
            race.step(loss_of(net, batch))
            log()
    names = {tag.removeprefix("hotswap/").partition("/")[0] for tag in scalars_in(tmp_path)}
    assert names == {"lane_0_AdamW", "lane_1_AdamW", "lane_2_SGD", "lanes", "leader", "factor"}


def test_the_lanes_of_a_race(tmp_path: Path) -> None:
    net = model()
    arms = {"lr": (3e37, 0.1, 0.01), "betas": ((0.9, 0.99),)}
    base = torch.optim.AdamW(net.parameters(), weight_decay=0.0)
    race = hotswap.Race(base, arms, total_steps=20, rounds=((6, 2), (12, 1)), least=2)
    records = []
    with SummaryWriter(str(tmp_path)) as writer:
        log = TensorBoardLog(writer, race, prefix="mine")
        log(0)  # before the first step there is nothing to say
        for number, batch in enumerate(batches(20), start=1):
            race.step(loss_of(net, batch))
            log(number)
            records.append(race.last_step)
    scalars = scalars_in(tmp_path)
    assert all(min(steps) == 1 for steps in scalars.values())
    names = {f"lane_{lane}/{name}" for lane in range(3) for name in ("lr", "loss")} | {"lanes", "leader", "factor"}
    assert set(scalars) == {f"mine/{name}" for name in names}
    for number, record in enumerate(records, start=1):
        assert record is not None
        assert scalars["mine/lanes"][number] == len(record.losses)
        assert scalars["mine/leader"][number] == record.leader
        assert scalars["mine/factor"][number] == pytest.approx(record.factor)
        for lane in range(3):
            loss, rate = (scalars[f"mine/lane_{lane}/{name}"].get(number) for name in ("loss", "lr"))
            assert (rate is not None) == (lane in record.losses)
            if lane not in record.losses or not math.isfinite(record.losses[lane]):
                assert loss is None
            else:
                assert loss == pytest.approx(record.losses[lane])
                assert rate == pytest.approx(record.values[lane]["lr"])
    assert max(scalars["mine/lane_0/lr"]) == 2  # its second loss is not finite
    assert max(scalars["mine/lane_0/loss"]) == 1
    assert {scalars["mine/lanes"][number] for number in range(13, 21)} == {1}


def test_what_cannot_be_meant() -> None:
    net = model()
    with pytest.raises(hotswap.SettingError, match="a SGD is not hot-swapped"):
        TensorBoardLog(None, torch.optim.SGD(net.parameters(), lr=1.0))  # type: ignore[arg-type]
    with pytest.raises(hotswap.SettingError, match="must not be negative"):
        TensorBoardLog(None, hotswap.HotSwapSGD(net.parameters()), statistics_every=-1)

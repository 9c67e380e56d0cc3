"""The programs that measure races train what they say, keep it, go on where they were, and divide the right numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks import race_cost, race_own
from benchmarks.race_own import ALONE, BAD, TUNED, Job
from hotswap.bench.methods import METHODS
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.workloads import WORKLOADS

CPU = torch.device("cpu")
TUNED_ADAMW = {"optimizer": "adamw", "lr": 3e-3, "weight_decay": 0.1, "warmup": 0.05}


def test_the_own_lane_is_the_user_s_and_muon_s_lanes_race_beside_it() -> None:
    task = WORKLOADS["paper_network"]().task(0, "smoke")
    race = race_own.race_beside(task.model, TUNED_ADAMW, steps=5000)
    first, *others = race.standings()
    assert (first.optimizer, first.rate) == ("AdamW", 3e-3)
    assert race.leader.own
    assert {one.optimizer for one in others} == {"Muon"}


def test_the_tuned_optimizer_has_the_reference_s_settings_but_its_schedule() -> None:
    model = WORKLOADS["paper_network"]().task(0, "smoke").model
    adamw = race_own.own_optimizer(model, TUNED_ADAMW).param_groups[0]
    assert (adamw["lr"], adamw["weight_decay"]) == (3e-3, 0.1)
    settings = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 1e-4, "warmup": 0.0}
    sgd = race_own.own_optimizer(model, settings).param_groups[0]
    assert (sgd["lr"], sgd["weight_decay"], sgd["momentum"], sgd["nesterov"]) == (0.1, 1e-4, 0.9, True)
    plain = race_own.own_optimizer(model, BAD["sgd_1e-3"]).param_groups[0]
    assert (plain["lr"], plain["momentum"]) == (1e-3, 0)


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["race_own", *map(str, arguments)])
    race_own.main()


def test_what_is_in_the_file_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.json"
    arguments = ("--out", file, "--size", "smoke", "--workload", "paper_network", "--seed", 0)
    command(monkeypatch, *arguments, "--prepare")
    assert json.loads(file.read_text())["runs"] == {}
    command(monkeypatch, *arguments, "--stop-after", 0)
    assert json.loads(file.read_text())["runs"] == {}
    command(monkeypatch, *arguments)
    runs = json.loads(file.read_text())["runs"]
    lanes = {TUNED, *BAD, ALONE, REFERENCE}  # the shipped reference is of full size
    assert set(runs) == {Job("paper_network", 0, lane).name for lane in lanes}
    assert not any(name.startswith("race_own") for name in METHODS)
    capsys.readouterr()
    before = file.read_bytes()
    command(monkeypatch, *arguments)
    assert file.read_bytes() == before
    assert "[1/" not in (text := capsys.readouterr().out)
    assert "paper_network" in text
    with pytest.raises(SystemExit):
        command(monkeypatch, "--out", file)
    assert "does not hold runs of size full" in capsys.readouterr().err


def stored(workload: str, lane: str, seed: int, end: float, *, own_won: bool = False) -> tuple[str, dict[str, Any]]:
    points = [[0, 0.0, 0, 0.0, 1.0, 1.0], [100, 10.0, 10, 1.0, end, end]]
    result = {"workload": workload, "method": lane, "configuration": "default", "seed": seed, "size": "full"}
    result |= {"state": "finished", "reason": "", "budget": 10, "version": 1, "settings": {}, "origin": {}}
    return Job(workload, seed, lane).name, {"result": {**result, "points": points}, "own_won": own_won}


def test_scores_are_over_the_reference_and_over_the_race_without_the_own_lane() -> None:
    runs = [
        stored("paper_network", lane, seed, end * (1 + 0.1 * seed), own_won=lane == TUNED)
        for lane, end in ((TUNED, 0.3), ("adamw_1e-5", 0.22), ("sgd_1e-3", 3.0), (ALONE, 0.2))
        for seed in range(3)
    ]
    runs += [stored("autoencoder", lane, 0, 0.4) for lane in (TUNED, ALONE, *BAD)]
    runs += [stored("autoencoder", REFERENCE, 0, 0.8)]
    ends = {"ends": {"0": 0.2, "1": 0.3, "2": 9.0}}
    rows = race_own.table({"runs": dict(runs), "references": {"paper_network": ends, "autoencoder": ends}})
    first, second = rows
    assert first["workload"] == "autoencoder"
    assert first[TUNED] == pytest.approx(0.5)  # the reference that was trained beside it counts
    assert second["seeds"] == 3
    assert second[TUNED] == pytest.approx(0.33 / 0.3)
    assert second[f"{TUNED} won"] == 3
    assert second["adamw_1e-5"] == pytest.approx(1.1)
    assert second["sgd_1e-3"] == pytest.approx(1 / 0.22)  # as good as before its first step, and no better
    text = race_own.shown(rows).splitlines()
    assert text[-2].split()[:2] == ["mean", f"{(0.5 * 1.1) ** 0.5:.3f}"]
    assert text[-1].split()[:2] == ["worst", "1.100"]


def small_case() -> race_cost.Case:
    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(16, 6)
        return x, x.sum(1).gt(0).long()

    return race_cost.Case("small", lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), batch)


def test_racing_steps_are_timed_beside_as_many_of_each_lane_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bare, alone = race_cost.Loop.bare, []
    sides = iter([3.0, 2.0] * 1000)

    def noted(loop: race_cost.Loop, optimizer: torch.optim.Optimizer, steps: int = 1) -> None:
        alone.extend([optimizer.param_groups[0]["lr"]] * steps)
        bare(loop, optimizer, steps)

    def seconds(work: Any, _: torch.device) -> float:
        work()
        return next(sides)

    monkeypatch.setattr(race_cost.Loop, "bare", noted)
    monkeypatch.setattr(race_cost, "seconds", seconds)
    found = race_cost.racing(small_case(), CPU, 1000, budget=0, most=1)
    case = small_case()
    loop = race_cost.Loop(case, CPU)
    race = race_cost.hotswap.Race(loop.model, total_steps=1000)
    while race.winner is None:
        loop.raced(race)
    taken = {one.rate: one.steps for one in race.standings() if one.steps}
    assert {rate: alone.count(rate) for rate in set(alone)} == taken
    assert (found["lanes"], found["steps"]) == (len(taken), sum(taken.values()))
    assert (found["ratio"], found["low"], found["high"], found["pairs"]) == (1.5, 1.5, 1.5, 1)


def test_steps_after_a_race_are_timed_in_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    raced = race_cost.Loop.raced

    def noted(loop: race_cost.Loop, race: Any, count: int = 1) -> None:
        raced(loop, race, count)
        assert race.winner is not None
        steps.append(count)

    monkeypatch.setattr(race_cost.Loop, "raced", noted)
    found = race_cost.after(small_case(), CPU, budget=0, most=2)
    assert found["pairs"] == 2
    assert sum(steps) == 3 * race_cost.BLOCK
    assert found["bare_step"] > 0


def test_ratios_are_medians_of_pairs() -> None:
    found = race_cost.ratio_of([(2.0, 1.0), (3.0, 2.0), (8.0, 1.0)], steps=10)
    assert (found["ratio"], found["low"], found["high"]) == (2.0, 1.5, 8.0)
    assert (found["bare_step"], found["extra_a_step"]) == (0.1, 0.1)


@pytest.mark.gpu
def test_a_race_holds_nothing_on_the_device_but_its_average() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    case = race_cost.cases(torch.device("cuda"))[0]
    averaged, plain = (race_cost.memory(case, torch.device("cuda"), average=average) for average in (True, False))
    assert averaged["during"] < 1.1
    assert averaged["after"] < 1.1
    assert plain["during"] < 0.1
    assert plain["after"] < 0.1

"""The programs that measure races train what they say, keep it, go on where they were, and divide the right numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from benchmarks import muon_step, paper_races, paper_races_table, parts, race_cost, race_memory, race_own
from benchmarks.networks import GPT, VisionTransformer, adapted, pictures, resnet9, text
from benchmarks.paper_races import Run, Settings, Training
from benchmarks.race_own import ALONE, BAD, TUNED, Job
from hotswap.bench.methods import METHODS
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.workloads import WORKLOADS
from hotswap.data import load_digits
from hotswap.ensemble import TrainingData
from hotswap.errors import StudyError
from hotswap.networks import multilayer_perceptron
from hotswap.store.shipped import shipped
from hotswap.studies.paper import PAPER
from hotswap.studies.training import Held

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
    assert all(str(tmp_path) not in one["origin"]["command"] for one in runs.values())
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
    assert sum(steps) == 2 * 2 * race_cost.BLOCK
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


def tiny() -> GPT:
    return GPT(20, 16, 2, 2, 8)


def test_the_memory_of_a_race_is_that_of_its_trained_weights_and_their_states() -> None:
    rows = {}
    for name, network in {"all": tiny, "adapters": lambda: adapted(tiny(), rank=2)}.items():
        case = race_cost.Case(name, network, lambda: text(20, 2, 8))
        rows[name] = race_memory.measure(case, CPU)
        row = rows[name]
        assert len(row["lanes"]) == 3
        numbers = sum(p.numel() for p in network().parameters() if p.requires_grad)
        assert row["trained"] == 4 * numbers
        counters = 4 * sum(p.requires_grad for p in network().parameters())
        assert row["parked"] == 3 * (4 * row["trained"] + counters)  # AdamW's two averages, and that of the weights
        assert row["parked"] <= row["blocks"] <= 2.1 * row["parked"]
    assert rows["adapters"]["trained"] < rows["all"]["trained"] / 5
    assert rows["adapters"]["weights"] > rows["all"]["weights"]


def test_a_step_of_muon_is_timed_beside_one_of_adamw() -> None:
    case = muon_step.Case("small", tiny, lambda: text(20, 2, 8), 1.15)
    row = muon_step.measure(case, CPU, rounds=2, steps=1)
    assert row["step"] > 0
    assert not row["captured"]
    assert row["launches"]["muon"] == row["launches"]["eager"] > row["launches"]["adamw"]
    assert set(row["milliseconds"]) == {"pass", "adamw alone", "muon alone", "eager alone"}
    assert "to reach 1.15" in muon_step.told(row)


def test_networks_that_are_measured_learn() -> None:
    made: dict[str, tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]] = {
        "gpt": (tiny(), text(20, 2, 8)),
        "vit": (VisionTransformer(24, 2, 3), pictures(4)),
        "resnet": (resnet9(), pictures(4)),
    }
    for name, (model, (x, y)) in made.items():
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        losses = []
        for _ in range(6):
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert losses[-1] < losses[0], name


FAST: Any = {"hidden": (12,)}


def small_data() -> Held:
    data = load_digits()
    x, y = torch.from_numpy(data.train_inputs(flat=True)), torch.from_numpy(data.train_labels)
    return Held(TrainingData(x[:1000], y[:1000], x[1000:], y[1000:]), data.shape, data.classes)


def test_runs_have_the_study_s_first_weights_and_order_of_the_data() -> None:
    training = Training(Run(50, 64, 2), paper := small_data(), Settings(), **FAST)
    first = multilayer_perceptron((paper.tensors.train_x.shape[1], 12, 10), seed=2)
    assert all(torch.equal(p, q) for p, q in zip(training.model.parameters(), first.parameters(), strict=True))
    training.epoch = 3
    order = torch.randperm(1000, generator=torch.Generator().manual_seed(PAPER.data_seed * 1_000_003 + 3))
    batches = list(training.minibatches())
    assert len(batches) == 1000 // 64
    for number, (x, y) in enumerate(batches):
        rows = order[64 * number : 64 * (number + 1)]
        assert torch.equal(x, paper.tensors.train_x[rows])
        assert torch.equal(y, paper.tensors.train_y[rows])


def test_a_run_goes_on_exactly_from_any_epoch_of_its_race_and_after_it(tmp_path: Path) -> None:
    held, run = small_data(), Run(60, 64, 0)  # 900 steps: the race takes some, and the winner the rest
    whole = Training(run, held, Settings(), **FAST)
    racing = []
    while whole.epoch < run.epochs:
        whole.train_epoch()
        racing.append(whole.race.winner is None)
    assert True in racing
    assert False in racing
    for stop in (1, racing.index(False), run.epochs - 3):
        first = Training(run, held, Settings(), **FAST)
        while first.epoch < stop:
            first.train_epoch()
        first.save(tmp_path / "run.pt")
        again = Training(run, held, Settings(), **FAST)
        torch.manual_seed(77)
        again.restore(tmp_path / "run.pt")
        while again.epoch < run.epochs:
            again.train_epoch()
        assert [row[:-1] for row in again.rows] == [row[:-1] for row in whole.rows]
        assert again.seconds > first.seconds
        assert all(torch.equal(p, q) for p, q in zip(again.model.parameters(), whole.model.parameters(), strict=True))


def test_a_run_that_is_stopped_is_saved_carried_and_finished(tmp_path: Path) -> None:
    held, run, other = small_data(), Run(2, 64, 0), Run(1, 64, 0)
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()

    class Soon(float):
        """A deadline that is over after the first look at it."""

        looks = 0

        def __le__(self, _: float) -> bool:  # what `now >= deadline` asks, if the deadline is a subclass of float
            Soon.looks += 1
            return Soon.looks > 1

    assert "saved after epoch 1 of 2" in paper_races.train(run, here, Settings(), Soon(), held, **FAST)
    assert "objective" in paper_races.train(other, here, Settings(), float("inf"), held, **FAST)
    assert "left" in paper_races.train(Run(3, 64, 0), here, Settings(), 0.0, held, **FAST)
    assert sorted(path.name for path in here.iterdir()) == ["race-e1-b64-s0.json", "race-e2-b64-s0.pt"]
    assert "Packed" in paper_races.packed(here, tmp_path / "parts", most=60)
    assert parts.unpack(tmp_path / "parts", there) == ["race-e1-b64-s0.json", "race-e2-b64-s0.pt"]
    assert "there" in paper_races.train(other, there, Settings(), float("inf"), held, **FAST)
    with pytest.raises(StudyError, match=r"is of race-e2-b64-s0 in fp32 with graphs=False, and not of .* graphs=True"):
        paper_races.Training(run, held, Settings(graphs=True), **FAST).restore(there / "race-e2-b64-s0.pt")
    assert "objective" in paper_races.train(run, there, Settings(), float("inf"), held, **FAST)
    assert not (there / "race-e2-b64-s0.pt").exists()
    rows = json.loads((there / "race-e2-b64-s0.json").read_text())["rows"]
    assert [row[0] for row in rows] == [1, 2]


def test_parts_are_below_a_size_and_what_has_no_room_is_told(tmp_path: Path) -> None:
    files = []
    for number in range(4):
        files.append(tmp_path / f"{number}.pt")
        files[-1].write_bytes(torch.randint(256, (2**18,), dtype=torch.uint8).numpy().tobytes())  # of 0.25 MiB
    folder = tmp_path / "parts"
    assert parts.pack(files, folder, part=0.2, most=0.8) == files[3:]
    written = sorted(folder.iterdir())
    assert len(written) == 4
    assert max(path.stat().st_size for path in written) <= 0.2 * 2**20
    assert parts.unpack(folder, tmp_path / "again") == [file.name for file in files[:3]]
    assert all((tmp_path / "again" / file.name).read_bytes() == file.read_bytes() for file in files[:3])
    assert parts.pack(files[:1], folder, part=0.2) == []
    assert parts.unpack(folder, tmp_path / "one") == ["0.pt"]
    assert parts.unpack(tmp_path / "again", tmp_path / "none") == []


def test_the_table_has_the_study_s_numbers_beside_the_medians_of_the_races(tmp_path: Path) -> None:
    for seed, objective in enumerate((1e-3, 3e-3, 2e-3)):
        rows = [[1, 1.0, 0.5, 1.0, 0.1, 48, 1.0], [50, objective, 0.01 * (seed + 1), 0.1, 0.0, 2400, 9.0]]
        run = {"epochs": 50, "batch_size": 1024, "seed": seed, "columns": list(paper_races.COLUMNS), "rows": rows}
        run |= {"winner": f"Muon 0.00{seed + 1}", "standings": [], "precision": "tf32", "graphs": False, "origin": {}}
        (tmp_path / f"race-e50-b1024-s{seed}.json").write_text(json.dumps(run))
    assert paper_races_table.export(tmp_path, tmp_path / "races") == f"Wrote 3 runs into {tmp_path / 'races'}."
    study = pd.read_parquet(shipped() / "metrics.parquet")
    theirs = study[(study["epoch"] == 50) & (study["batch_size"] == 1024)]
    adadelta = theirs[theirs["algorithm"] == "adadelta"]["train_nll"].median()
    sgd = theirs[theirs["algorithm"] == "sgd"].groupby(["lr", "lr_decay", "momentum"])["train_nll"].median()
    assert len(sgd) == 72
    text = paper_races_table.table(tmp_path / "races")
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "2.00e-03, 2.00%" in lines["race"]
    assert f"{adadelta:.2e}" in lines["AdaDelta"]
    assert f"{sgd.sort_values().head(7).median():.2e}" in lines["median of SGD's best tenth"]
    assert lines["winners of the race"].endswith("0.001, 0.002, 0.003")
    with pytest.raises(StudyError, match="has no finished run"):
        paper_races_table.export(tmp_path / "races", tmp_path)
    with pytest.raises(StudyError, match=r"has no metrics.parquet"):
        paper_races_table.table(tmp_path)


def test_without_a_graph_a_run_is_trained_as_in_a_loop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none() -> None:
        raise RuntimeError("no graph\nhere")

    monkeypatch.setattr(torch.cuda, "Stream", none)
    ends = []
    for graphs in (False, True):
        training = Training(Run(2, 64, 0), small_data(), Settings(graphs=graphs), **FAST)
        training.train_epoch()
        training.train_epoch()
        ends.append([row[:-1] for row in training.rows])
        assert not paper_races.finished(training)["graphs"]
    assert ends[0] == ends[1]
    assert capsys.readouterr().out == "No CUDA graph, training without one: no graph here\n"


@pytest.mark.gpu
def test_graphs_compute_the_gradients_that_a_loop_computes() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    held = small_data()
    tensors = TrainingData(*(part.cuda() for part in vars(held.tensors).values()))
    held = Held(tensors, held.shape, held.classes)
    ends = []
    for graphs in (False, True):
        training = Training(Run(60, 64, 0), held, Settings("cuda", graphs=graphs), **FAST)
        for _ in range(3):
            training.train_epoch()
        ends.append(training.measured()[1])
    assert ends[0] == pytest.approx(ends[1], rel=0.02)

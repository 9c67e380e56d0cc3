"""The benchmarks run, measure what they say, and leave nothing behind; how fast anything is, is not tested."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hotswap
from benchmarks import adam_grids, measuring, memory, pass_time, protections, step_cost, units
from benchmarks.measuring import keep, origin
from hotswap.data import load_digits
from hotswap.networks import multilayer_perceptron
from hotswap.studies import HotSwapFamily, StudySpec, plan
from hotswap.studies.training import RunOptions, set_up
from tools import walk

CPU = torch.device("cpu")


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 2))


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(16, 6)
    return x, x.sum(1).gt(0).long()


def test_every_protection_is_timed_and_put_back() -> None:
    before = [getattr(owner, attribute) for _, owner, attribute in protections.PIECES]
    measured = protections.measure(small, batch(), CPU, rounds=3)
    assert set(measured.spent) == set(protections.PROTECTIONS)
    assert all(seconds > 0 for seconds in measured.spent.values())
    assert measured.step > 0
    assert measured.bare > 0
    assert before == [getattr(owner, attribute) for _, owner, attribute in protections.PIECES]


def test_what_protections_add_is_the_median_of_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    real, turns = protections.RandomState.read, iter(range(1000))

    def seconds(_work: object, _device: object) -> float:
        protected, pause = protections.RandomState.read is real, 100.0 * (next(turns) == 20)
        return (5.0 if protected else 4.0) + pause

    monkeypatch.setattr(protections, "seconds", seconds)
    measured = protections.measure(small, batch(), CPU, rounds=9)
    assert (measured.step, measured.bare, measured.longer, measured.unsure) == (5.0, 4.0, 1.0, 0.0)
    assert measured.share == 0.2


def test_steps_without_protections_have_none_and_as_many_trials() -> None:
    torch.manual_seed(0)
    model, (x, y) = small(), batch()
    optimizer = hotswap.HotSwapSGD(model.parameters(), lr=[1.0, 0.1, 0.01], search=protections.TwoTrials())
    for protected, forwards in ((True, 1), (False, 1 + 1 + protections.TRIALS), (True, 1 + 1 + protections.TRIALS + 1)):
        with nullcontext() if protected else protections.unprotected():
            optimizer.step(lambda: cross_entropy(model(x), y))
        assert optimizer.last_step is not None
        assert len(optimizer.last_step.trials) == protections.TRIALS
        assert model.get_buffer("1.num_batches_tracked") == forwards


def test_one_decision_of_two_processes_takes_time() -> None:
    assert protections.one_decision(3) > 0


def test_what_is_timed_inside_is_not_counted_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 100, 10))  # every look at the clock takes ten seconds
    monkeypatch.setattr(protections.time, "perf_counter", lambda: next(now))
    clock = protections.Clock()
    clock.around("outer", clock.around("inner", lambda: None))()
    assert clock.spent == {"inner": 10, "outer": 20}  # not 10 + 20, and not the 50 from first to last


def test_a_step_beside_one_of_sgd() -> None:
    case = step_cost.Case("small", lambda: multilayer_perceptron((6, 8, 2), seed=0), batch, None)
    row = step_cost.measure(case, CPU, rounds=3, warm_up=2)
    assert row.limit == pytest.approx(1 + row.trials * row.forward / row.forward_backward)
    assert row.ratio == row.hot / row.sgd
    assert row.extra_sgd[0] == pytest.approx(1.0, abs=0.2)  # one copy of θ is kept
    assert min(row.untried, row.between, row.tenth) > 0


def test_what_is_kept_says_where_it_comes_from(tmp_path: Path) -> None:
    keep(tmp_path / "new", "name", CPU, [{"network": "small"}], precision="fp32")
    kept = json.loads((tmp_path / "new" / "name-cpu.json").read_text())
    assert kept["rows"] == [{"network": "small"}]
    assert kept["torch"] == torch.__version__
    assert {"device", "python", "date", "command", "precision"} <= set(kept)


def test_the_walk_of_a_step_begins_in_its_file_and_counts_what_it_says() -> None:
    found = walk.walk_of_a_step()
    assert found.calls[0] == ("optim/hotswap.py", "step")
    assert sum(name == "evaluate_trial" for _, name in found.calls) == 2
    assert sum(found.files.values()) == len(found.calls)
    assert len(found.files) <= found.changes + 1 < len(found.calls)
    assert walk.Walk((("a", "f"), ("a", "g"), ("b", "h"), ("a", "f"))).changes == 2


def test_the_units_of_a_study_are_timed() -> None:
    families = (HotSwapFamily(name="one", count=5), HotSwapFamily(name="other", count=5, search=hotswap.NoSearch()))
    study = StudySpec(
        name="s", dataset="digits", train_images=None, families=families, batch_sizes=(64,), seeds=(0,), epochs=2
    )
    (unit,) = plan(study)
    speed = units.measure(study, unit, set_up(study, load_digits(), RunOptions()), steps=3)
    assert speed.unit.id == "one-and-1-more-b64"
    assert speed.step > 0
    assert speed.epoch_steps == 22
    assert 0 < speed.trials <= 5
    assert speed.kernels is None


@pytest.mark.parametrize("network", adam_grids.NETWORKS)
def test_grids_around_adam_differ_in_their_top_alone(network: str) -> None:
    assert adam_grids.grid(1e-2) == pytest.approx(hotswap.log_grid(1e-2, 1e-6, 17))
    swapped = adam_grids.trained(network, "top 0.01", seed=0, steps=2)
    plain = adam_grids.trained(network, adam_grids.PLAIN, seed=0, steps=2)
    assert 1e-6 <= swapped["median_rate"] <= 1e-2
    assert plain["median_rate"] is None
    assert 0 < swapped["loss"] != plain["loss"] > 0


def test_runs_that_are_kept_are_known_again(tmp_path: Path) -> None:
    rows = [{"network": "LSTM", "method": adam_grids.PLAIN, "seed": 0, "steps": 2, "loss": 7.0}]
    assert adam_grids.known(tmp_path) == []
    keep(tmp_path, "adam-grids", CPU, rows)
    assert adam_grids.known(tmp_path) == rows


def test_a_pass_of_a_method_is_timed_beside_one_of_adamw() -> None:
    ratio, plain = pass_time.ratio("logistic_regression", "hotswap_sgd", CPU, rounds=2, size="smoke", turn=0.001)
    assert ratio > 0
    assert plain > 0


def test_what_cannot_be_timed_has_no_ratio_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said = Console(record=True)

    def ratio(_workload: str, method: str, *_: object) -> tuple[float, float]:
        if method == "dog":
            raise ValueError("no such thing")
        return 2.0, 0.5

    monkeypatch.setattr(pass_time, "ratio", ratio)
    row = pass_time.measure("paper_network", ["dog", "sgd"], CPU, 3, said)
    assert row == {"workload": "paper_network", "adamw": 0.5, "ratios": {"dog": None, "sgd": 2.0}}
    assert "paper_network, dog: ValueError: no such thing" in said.export_text()


def test_where_losses_go_below_zero_the_advice_for_that_is_timed() -> None:
    assert pass_time.configured("hotswap_sgd", "gaussian_regression") == "second"
    assert pass_time.configured("hotswap_sgd", "paper_network") == "default"
    assert pass_time.configured("dog", "gaussian_regression") == "default"  # its advice is not of a kind


def test_a_file_says_what_was_typed_but_not_where_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["pass_time.py", "--keep", "here", "--rounds", "9", "--device", "cuda"])
    assert origin(CPU)["command"].endswith(" --rounds 9 --device cuda")
    assert origin(CPU)["command"].startswith("python -m ")
    monkeypatch.setattr(
        "sys.argv", ["pass_time.py", "--out", "a", "--quick", "--keep=here", "--pack", "b", "--unpack=c"]
    )
    assert origin(CPU)["command"].endswith(" --quick")


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--rounds", "0"), "--rounds 0: give at least 1"), (("--device", "cuda"), "--device cuda: there is none here")],
)
def test_what_cannot_be_timed_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, str], said: str
) -> None:
    monkeypatch.setattr("sys.argv", ["pass_time.py", *words])
    monkeypatch.setattr(measuring, "devices", lambda: [CPU])
    with pytest.raises(SystemExit):
        pass_time.main()
    assert said in capsys.readouterr().err


def test_what_a_method_keeps_is_counted_in_copies() -> None:
    """AdamW: weights, gradients, two averages; SGD with momentum: one."""
    sgd, adamw = (memory.copies("paper_network", name, "smoke") for name in ("sgd", "adamw"))
    assert sgd == pytest.approx(adamw - 1, abs=0.1)
    assert adamw == pytest.approx(4, abs=0.05)

"""Variants of a race: contests that take a race's decisions where they have its settings, at the cost they say."""

from __future__ import annotations

import csv
import sys
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch

from benchmarks import race_variants
from benchmarks.contests import Contest, close, fitted, plain
from benchmarks.race_variants import CONTESTS, FIELDS, RACES, RATES, cost_of, make_race, run, steps_within, summary
from benchmarks.small_tasks import SMALL
from hotswap.bench.workloads import WORKLOADS, Task
from hotswap.races import Round

DEFAULT = Contest((race_variants._adamw,), tuple((0, rate) for rate in RATES))
TWO_BASES = Contest(
    (race_variants._adamw, race_variants._sgd),
    (*DEFAULT.lanes, *((1, rate) for rate in (1.0, 0.3, 0.1))),
    RACES["bases"]["rounds"],
)


def smoke(workload: str) -> Task:
    return WORKLOADS[workload]().task(3, "smoke")


@pytest.mark.parametrize("workload", ["fashion_convolution", "transformer_text", "logistic_regression"])
@pytest.mark.parametrize(("name", "contest"), [("race", DEFAULT), ("bases", TWO_BASES)])
def test_a_contest_of_the_settings_of_a_race_is_that_race(workload: str, name: str, contest: Contest) -> None:
    """Where there are buffers, where there is dropout, and where SGD wins."""
    raced, contested = smoke(workload), smoke(workload)
    torch.manual_seed(3)
    optimizer = make_race(raced.model, 70, RACES[name])
    for batch in islice(raced.minibatches(), 70):
        optimizer.step(lambda batch=batch: raced.loss(batch))
    torch.manual_seed(3)
    passes, won = contest.run(contested, 70)
    assert passes == optimizer.cost.passes <= cost_of(RACES[name], 70) == contest.cost(70)  # less if a lane diverges
    assert optimizer.winner is not None
    assert won == f"base={int(type(optimizer.base) is torch.optim.SGD)} lr={optimizer.winner['lr']:.4g}"
    for ours, theirs in zip(contested.model.state_dict().values(), raced.model.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", CONTESTS)
def test_contests_cost_what_they_say(name: str) -> None:
    task = smoke("gaussian_regression")
    passes, won = CONTESTS[name].run(task, 70)
    assert passes == CONTESTS[name].cost(70)
    assert won.startswith("base=")


def test_the_last_round_has_rates_around_the_best() -> None:
    task = smoke("gaussian_regression")
    around = Contest((race_variants._adamw,), ((0, 1e-2), (0, 1e-9)), ((20, 1), (40, 1)), split=(1e-9, 1.0))
    assert around.run(task, 40) == (2 * 20 + 2 * 20, "base=0 lr=0.01")


def test_rankings() -> None:
    falling = [3.0 - 0.1 * step for step in range(20)]
    flat = [1.5] * 20
    now = Round(0, 20, 1)
    assert plain([falling, flat], now, 3.0) == [0, 1]
    assert plain([flat, [1.45] * 20], now, 3.0) == [1, 0]
    assert close(0.05)([flat, [1.45] * 20], now, 3.0) == [0, 1]  # 0.05 of 1.55 gained is more than what they differ by
    assert close(0.02)([flat, [1.45] * 20], now, 3.0) == [1, 0]
    slow = [2.0 - 0.01 * step for step in range(20)]
    assert plain([slow, [1.83] * 20], now, 3.0) == [1, 0]
    assert fitted([slow, [1.83] * 20], now, 3.0) == [0, 1]


def test_budgets_are_kept() -> None:
    for settings in RACES.values():
        steps = steps_within(partial(cost_of, settings), 1000)
        assert cost_of(settings, steps) <= 1000 < cost_of(settings, steps + 1)


@pytest.mark.parametrize("workload", sorted(set(SMALL) - {"autoencoder", "paper_network", "fashion_convolution"}))
def test_small_tasks_learn(workload: str) -> None:
    """Those that need no images, which may have to be downloaded."""
    task = SMALL[workload](0, "cpu")
    before = task.measure()
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=1e-2)
    for batch in islice(task.minibatches(), 40):
        race_variants._step(optimizer, lambda batch=batch: task.loss(batch))
    after = task.measure()
    assert 0 < after.train < before.train
    assert 0 < after.validation < before.validation


def test_a_row_says_what_was_run() -> None:
    row = run("gaussian_regression", 0, "adamw_0.03", "smoke", "cpu")
    assert tuple(row) == FIELDS
    assert row["passes"] == row["budget"] == 80


def test_the_summary_is_over_the_best_of_the_same_seed() -> None:
    rows = [
        {"workload": "a", "seed": seed, "method": method, "validation": str(value)}
        for seed, values in (("0", (2.0, 1.0, 1.0)), ("1", (1.0, 3.0, 4.0)))
        for method, value in zip(("adamw_1", "adamw_2", "race"), values, strict=True)
    ]
    assert summary(rows)[-1] == ("race", "2.000", "4.000 (a)", "2 of 2")


def test_a_table_grows_and_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, ran = tmp_path / "table.csv", []

    def pretend(workload: str, seed: int, method: str, size: str, _: str) -> dict[str, object]:
        ran.append(method)
        return dict(zip(FIELDS, (workload, size, seed, method, 1, 1, 1.0, 1.0, "", 0.0), strict=True))

    monkeypatch.setattr(race_variants, "run", pretend)
    common = ["race_variants", "--out", str(file), "--size", "smoke", "--workload", "gaussian_regression"]
    for methods in (["race"], ["race", "finer"]):
        chosen = [word for method in methods for word in ("--method", method)]
        monkeypatch.setattr(sys, "argv", [*common, *chosen])
        race_variants.main()
    assert ran == ["race", "finer"]
    with file.open(newline="") as lines:
        assert [row["method"] for row in csv.DictReader(lines)] == ran

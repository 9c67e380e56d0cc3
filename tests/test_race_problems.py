"""Problems on which the defaults of a race are chosen, and trials on them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import race_problems, race_trials
from benchmarks.race_problems import PROBLEMS, Problem
from hotswap.bench.workloads import Task


@pytest.fixture(autouse=True)
def short_pretraining(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Networks that are fine-tuned are pretrained for three steps."""
    pretrain = race_problems._pretrained
    networks = race_problems._pretrained_convolutions, race_problems._pretrained_transformer
    monkeypatch.setattr(race_problems, "_pretrained", lambda task: pretrain(replace(task, steps=3)))
    for network in networks:
        network.cache_clear()
    yield
    for network in networks:
        network.cache_clear()


def trained(name: str, seed: int, steps: int = 3) -> list[float]:
    """The losses of a few steps of SGD, and the measures and the norm of the weights after them."""
    task = PROBLEMS[name](seed)
    optimizer = torch.optim.SGD(task.model.parameters(), lr=1e-3)
    torch.manual_seed(seed)
    found = []
    for batch in islice(task.minibatches(), steps):
        optimizer.zero_grad()
        loss = task.loss(batch)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    first = task.measure()
    assert task.measure() == first, "the measure has random numbers of its own"
    assert task.model.training
    weights = torch.nn.utils.parameters_to_vector(task.model.parameters())
    return [*found, *first, weights.norm().item()]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_trains_and_is_the_same_every_time(name: str) -> None:
    found = trained(name, 3)
    assert all(math.isfinite(value) and value > 0 for value in found)
    assert trained(name, 3) == found
    assert trained(name, 4) != found, "the seed changes nothing"
    assert 300 <= PROBLEMS[name](3).steps <= 3000


def test_half_of_the_problems_are_for_confirming() -> None:
    roles = [problem.role for problem in PROBLEMS.values()]
    assert abs(roles.count("choosing") - roles.count("confirming")) <= 1


def test_burgers_solution_solves_burgers_equation() -> None:
    """Differences of the solution in double precision; the equation's terms are about 1."""
    viscosity, h = 0.1, 0.02
    points = torch.tensor([[-0.4, 0.3], [0.1, 0.5], [0.7, 0.9]])

    def at(dx: float, dt: float) -> torch.Tensor:
        return race_problems._burgers_solution(points.double() + torch.tensor([dx, dt]).double(), viscosity).double()

    u = at(0, 0)
    over_time, over_space = (at(0, h) - at(0, -h)) / (2 * h), (at(h, 0) - at(-h, 0)) / (2 * h)
    curvature = (at(h, 0) - 2 * u + at(-h, 0)) / h**2
    residual = over_time + u * over_space - viscosity * curvature
    assert residual.abs().max() < 0.02 * over_time.abs().max()


def test_exported_data_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data.npz"
    digits = np.full_like(race_problems.arrays()["digits_x"], 8)
    np.savez(file, **(race_problems.arrays() | {"digits_x": digits}))
    monkeypatch.setenv("RACE_PROBLEMS_DATA", str(file))
    race_problems.arrays.cache_clear()
    try:
        (x, _), _ = race_problems._digits()
        assert (x == 0.5).all()
    finally:
        race_problems.arrays.cache_clear()


@pytest.mark.parametrize(
    "trial",
    [
        "fixed@muon:2e-2@start=0.2",
        "cosine@adamw:1e-3@",
        "race@default@judge=1",
        "shared@muon:1e-2+muon:3e-3+adamw:1e-3@",
    ],
)
def test_a_trial_is_trained_once_and_its_means_are_kept(
    trial: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(seed: int, device: str = "cpu") -> Task:
        return replace(made(seed, device), steps=200)

    made = PROBLEMS["cancer"].make
    monkeypatch.setitem(PROBLEMS, "cancer", Problem("choosing", short))
    for one in (trial, "cosine@sgd:0.03@"):
        said = race_trials.run("cancer", one, 0, "cpu", tmp_path)
        assert f"cancer~{one}~0" in said
        assert race_trials.run("cancer", one, 0, "cpu", tmp_path).endswith("there")
    race_trials.keep([tmp_path], tmp_path / "kept")
    rows = json.loads((tmp_path / "kept" / "trials.json").read_text())["rows"]
    assert [row["trial"] for row in rows] == ([] if trial.startswith("cosine") else [trial])
    assert all(row["means"]["small, choosing"] > 0 for row in rows)

"""Problems on which a race's defaults are chosen, curves of lanes that train on them, and races that are replayed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import lane_curves, race_problems
from benchmarks.lane_curves import REFERENCE_SEED, REFERENCES, Curve, Key, Lane, read, train, tuned
from benchmarks.lane_replay import Outcome, Rule, alone, in_hindsight, race, raced, scores
from benchmarks.race_problems import PROBLEMS


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


def test_a_lane_is_parsed_and_follows_its_schedule() -> None:
    linear, late = Lane.of("muon:2e-2"), Lane.of("adamw:3e-3:linear:start=0.2:warmup=10:beta2=0.95")
    assert [linear.factor(step, 1000) for step in (0, 19, 500)] == [0.05, pytest.approx(0.981), 0.5]
    assert [late.factor(step, 1000) for step in (4, 200, 600)] == [0.5, 1.0, 0.5]
    assert late.make(torch.nn.Linear(2, 2)).param_groups[0]["betas"] == (0.9, 0.95)
    cosine = Lane.of("sgd:0.1:cosine")
    assert [cosine.factor(step, 1000) for step in (24, 49, 525)] == [0.5, 1.0, pytest.approx(0.5)]
    assert Lane.of("sgd:0.1:cosine:warmup=0.1").factor(49, 1000) == 0.5


@pytest.mark.parametrize("text", ["lion:1", "adamw", "adamw:x", "sgd:1:square", "sgd:1:linear:speed=2"])
def test_an_unknown_lane_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"lane|could not convert|not enough"):
        Lane.of(text)


def test_runs_are_stored_one_by_one_and_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "lane_curves",
        "--out",
        str(tmp_path / "a.npz"),
        "--problem",
        "cancer",
        "--lane",
        "sgd:0.1",
        "--seed",
        "2",
    ]
    monkeypatch.setattr("sys.argv", command)
    lane_curves.main()
    assert "cancer" in capsys.readouterr().out
    (key,) = read(tmp_path / "a.npz")
    assert key == Key("cancer", "sgd:0.1", 2)
    merged, single = read(tmp_path / "a.npz")[key], read(tmp_path / "a.runs")[key]
    assert merged.losses.shape == (300,)
    assert merged.losses.tolist() == single.losses.tolist()
    assert merged.percents.tolist() == list(lane_curves.PERCENTS)
    assert merged.losses[-30:].mean() < merged.losses[:30].mean()
    lane_curves.main()
    assert capsys.readouterr().out == "", "it ran again"


def test_a_lane_that_diverges_ends_with_infinite_measures() -> None:
    curve = train(Key("cancer", "sgd:1e30:constant", 0), "cpu", steps=40)
    assert curve.percents[-1] == 100
    assert curve.end == math.inf
    assert np.isposinf(curve.losses[-1])


def curve(losses: list[float], end: float) -> Curve:
    return Curve(np.array(losses, np.float32), np.array([100]), np.array([end]), np.array([end]), 0.0)


LANES = {
    "muon:2e-2": curve([9.0] * 3 + [3.0] * 7, 1.0),
    "muon:6e-3": curve([8.0] * 3 + [4.0] * 7, 2.0),
    "adamw:1e-3": curve([5.0] * 10, 3.0),
}


def rules(text: str) -> list[Rule]:
    return [Rule.of(part) for part in text.split(",")]


def test_rounds_judge_by_the_last_third_of_their_steps() -> None:
    assert race(LANES, rules("0.3:1")) == Outcome("adamw:1e-3", 6)
    assert race(LANES, rules("0.5:1")) == Outcome("muon:2e-2", 10)
    assert race(LANES, rules("0.3:2,0.6:1")) == Outcome("muon:6e-3", 3 + 6)
    assert race(LANES, rules("0.3:1k,0.6:1")) == Outcome("muon:6e-3", 3 + 6)
    assert race(LANES, rules("0.6:2")) == Outcome("muon:2e-2", 6 + 6)


def test_scores_are_over_the_reference_that_its_own_seed_chose() -> None:
    curves = {Key("cancer", lane, 0): found for lane, found in LANES.items()}
    curves |= {Key("cancer", lane, REFERENCE_SEED): curve([1.0], 5.0 + i) for i, lane in enumerate(REFERENCES)}
    curves[Key("cancer", REFERENCES[0], 0)] = curve([1.0], 4.0)
    assert tuned(curves, "cancer") == REFERENCES[0]

    def score(method: lane_curves.Any) -> float:
        return scores(curves, ["cancer", "graph"], [0], method)["cancer"]

    assert score(alone("muon:6e-3")) == pytest.approx(0.5)
    assert score(in_hindsight(list(LANES))) == pytest.approx(0.25)
    assert score(raced(list(LANES), rules("0.5:1"))) == pytest.approx(0.25 * 1.2)
    assert tuned({}, "cancer") is None

"""Each method trains, spends its budget and no more, and is measured without a trace."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

import hotswap
from hotswap import presets
from hotswap.bench.methods import FIRST, METHODS, SECOND, Method
from hotswap.bench.methods.races import Open
from hotswap.bench.methods.tuned import RANGES, REFERENCE, SEARCHED, searched
from hotswap.bench.runs import PERCENTS, Run
from hotswap.bench.training import train
from hotswap.bench.workloads import WORKLOADS

NAMES = [name for name in METHODS if name != REFERENCE]


def configurations(name: str) -> list[str]:
    return [FIRST] if METHODS[name].second is None else [FIRST, SECOND]


@pytest.mark.parametrize(
    ("method", "configuration"),
    [(name, configuration) for name in NAMES for configuration in configurations(name)] + [(REFERENCE, SEARCHED[0])],
)
def test_it_trains_and_spends_its_budget(method: str, configuration: str) -> None:
    result = train(Run("paper_network", method, configuration, 0, "smoke"))
    assert (result.state, result.reason) == ("finished", "")
    assert tuple(point.percent for point in result.points) == PERCENTS
    first, last = result.points[0], result.points[-1]
    assert (first.cost, first.steps) == (0, 0)
    assert result.budget - 2 <= last.cost < result.budget + 12  # the last step of a search may go beyond it
    assert last.train < first.train or method in {"dog", "vsgd"}  # which take their time
    assert result.origin["torch"] == torch.__version__


def test_trials_cost_a_third() -> None:
    task = WORKLOADS["paper_network"]().task(0, "smoke")
    for name in ("salsa", "hotswap_sgd"):
        training = METHODS[name]().begin(task, {}, 0)
        steps = 0
        for batch in islice(task.minibatches(), 8):
            training.step(batch)
            steps += 1
        assert training.cost > steps
        assert 3 * training.cost == pytest.approx(round(3 * training.cost))
    training = METHODS["salsa"]().begin(task, {}, 0)
    for batch in islice(task.minibatches(), 8):
        training.step(batch)
    state = training.optimizer.state
    assert training.cost == pytest.approx((state["n_forwards"] + 2 * state["n_backwards"]) / 3)


@pytest.mark.parametrize("method", NAMES)
def test_measuring_leaves_no_trace(method: str) -> None:
    """Methods that hand over an average come back to where they were, batch norm's statistics, too."""
    task = WORKLOADS["fashion_convolution"]().task(0, "smoke")
    training = METHODS[method]().begin(task, METHODS[method].first.settings, 0)
    batches = task.minibatches()
    for batch in islice(batches, 3):
        training.step(batch)
    before = {name: value.clone() for name, value in task.model.state_dict().items()}
    numbers, cost = torch.get_rng_state(), training.cost
    assert training.measure() == training.measure()
    for name, value in task.model.state_dict().items():
        torch.testing.assert_close(value, before[name], atol=1e-6, rtol=1e-5)  # Schedule-Free computes its way back
    assert torch.equal(numbers, torch.get_rng_state())
    assert training.cost == cost
    training.step(next(batches))


def test_averages_are_what_is_measured() -> None:
    for name in ("dog", "schedule_free"):
        task = WORKLOADS["fashion_convolution"]().task(0, "smoke")
        training = METHODS[name]().begin(task, METHODS[name].first.settings, 0)
        for batch in islice(task.minibatches(), 10):
            training.step(batch)
        assert training.measure() != task.measure()


def test_the_search_covers_both_optimizers() -> None:
    found = searched()
    assert tuple(found) == SEARCHED
    assert len(SEARCHED) == 20
    kinds = [configuration.settings["optimizer"] for configuration in found.values()]
    assert 8 <= kinds.count("adamw") <= 12
    for settings in (configuration.settings for configuration in found.values()):
        for name, (low, high) in RANGES[settings["optimizer"]].items():
            assert low <= settings[name] <= high
        assert 0 <= settings["warmup"] <= 0.1
    first = {"optimizer": "adamw", "lr": 0.00294, "weight_decay": 0.0168, "warmup": 0.0314}
    assert found[SEARCHED[0]].settings == first  # the same on every machine


def test_versions_are_those_of_the_extra_and_sources_are_given() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(
        re.fullmatch(r"([\w-]+)==([\d.]+)", line).groups()
        for line in project["optional-dependencies"]["bench"]
        if "==" in line
    )
    assert pinned == dict(method.package for method in METHODS.values() if method.package)
    assert not any(name in line for line in project["dependencies"] for name in pinned)
    assert all(method.first.source for name, method in METHODS.items() if name != REFERENCE)
    assert all(method.second.source for method in METHODS.values() if method.second)


def test_every_preset_is_there() -> None:
    assert {f"preset_{name}" for name in presets.__all__} <= set(METHODS)


@pytest.mark.parametrize(
    ("package", "said"),
    [(("no-such-package", "1.0"), "is not installed; pip install"), (("torch", "0.1"), "the benchmark is of 0.1")],
)
def test_a_missing_package_is_a_row(monkeypatch: pytest.MonkeyPatch, package: tuple[str, str], said: str) -> None:
    monkeypatch.setattr(METHODS["dog"], "package", package)
    result = train(Run("paper_network", "dog", FIRST, 0, "smoke"))
    assert result.state == "missing"
    assert said in result.reason


def test_what_goes_wrong_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the cat\nsat on it")

    monkeypatch.setattr(METHODS["sgd"], "first", replace(METHODS["sgd"].first, settings={"lr": 1e6}))
    result = train(Run("gaussian_regression", "sgd", FIRST, 0, "smoke"))
    assert result.state == "diverged"
    assert re.search(r"not finite from \d+ % of the budget on", result.reason)
    assert result.end is None
    assert len(result.points) < len(PERCENTS)  # it was given up
    monkeypatch.setattr(METHODS["adamw"], "begin", broken)
    result = train(Run("paper_network", "adamw", FIRST, 0, "smoke"))
    assert (result.state, result.reason) == ("failed", "RuntimeError: the cat sat on it")


def test_a_run_is_the_same_every_time_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (train(Run("transformer_text", "adamw", FIRST, seed, "smoke")) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    curves = [[(point.cost, point.train, point.validation) for point in run.points] for run in (first, again, other)]
    assert curves[0] == curves[1] != curves[2]


def test_a_method_of_ones_own_needs_only_a_way_to_begin() -> None:
    with pytest.raises(TypeError, match="begin"):
        Method()


def test_an_open_race_is_measured_at_its_average_and_leaves_no_trace() -> None:
    """On a network with batch norm, whose statistics at the average are not those of the winner."""
    task = WORKLOADS["fashion_convolution"]().task(0, "smoke")
    race = hotswap.Race([torch.optim.AdamW(task.model.parameters())], module=task.model, rounds=((4, 1),), least=2)
    training, batches = Open(task, race), task.minibatches()
    for _ in range(30):
        training.step(next(batches))
    assert race.winner is not None
    before, numbers = {name: value.clone() for name, value in task.model.state_dict().items()}, torch.get_rng_state()
    plain, measured = task.measure(), training.measure()
    assert measured.validation != plain.validation
    with race.average():
        assert task.measure().train != measured.train  # with the winner's statistics in place of its own
    assert all(torch.equal(value, before[name]) for name, value in task.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert training.cost == 6 * 4 + 26

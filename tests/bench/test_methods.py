"""Each method trains, spends its budget and no more, and is measured without a trace."""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest
import torch

from hotswap import presets
from hotswap.bench.methods import FIRST, METHODS, SECOND, Configuration, Method, Training
from hotswap.bench.methods.base import Clock, Plain
from hotswap.bench.methods.ours import Racing
from hotswap.bench.methods.tuned import RANGES, REFERENCE, SEARCHED, searched
from hotswap.bench.runs import PERCENTS, Run
from hotswap.bench.training import program, train
from hotswap.bench.workloads import WORKLOADS, Batch, Measures, Task
from hotswap.errors import SettingError

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


def test_a_forward_is_a_third_and_a_backward_two() -> None:
    weight = torch.ones(3, requires_grad=True)
    batch = (torch.ones(3), torch.ones(3))
    clock = Clock()
    loss = clock.counted(lambda batch: (weight * batch[0]).sum())
    loss(batch).backward()
    assert clock.cost == 1
    with torch.no_grad():
        loss(batch)
    assert clock.cost == pytest.approx(4 / 3)
    (2 * loss(batch)).backward()  # scaled, as for half precision
    assert clock.cost == pytest.approx(7 / 3)
    assert torch.equal(weight.grad, torch.full((3,), 3.0))  # counting changes nothing


def test_trials_cost_a_third() -> None:
    task = WORKLOADS["paper_network"]().task(0, "smoke")
    for name in ("salsa", "hotswap_sgd"):
        training = METHODS[name]().begin(task, {}, 0)
        steps = 0
        for batch in islice(task.minibatches(), 8):
            training.step(batch)
            steps += 1
        assert training.cost > steps
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


RACES = ("race", "race_open", "muon")


def racing(method: str, workload: str = "fashion_convolution") -> Racing:
    """Long enough for several lanes."""
    torch.manual_seed(0)
    task = replace(WORKLOADS[workload]().task(0, "smoke"), steps=1000)
    training = METHODS[method]().begin(task, {}, 0)
    assert isinstance(training, Racing)
    return training


@pytest.mark.parametrize("method", RACES)
def test_a_step_of_a_race_is_one_pass(method: str) -> None:
    training = racing(method)
    for number, batch in enumerate(islice(training.task.minibatches(), 5), 1):
        training.step(batch)
        assert training.cost == number
        assert all(p.grad is None for p in training.task.model.parameters())


def test_races_have_the_lanes_of_muon_on_a_cpu_and_the_recipe_has_one() -> None:
    kinds = {name: [one.optimizer for one in racing(name).race.standings()] for name in RACES}
    assert len(kinds["race"]) > 1
    assert set(kinds["race"]) == set(kinds["race_open"]) == {"Muon"}
    assert kinds["muon"] == ["Muon"]


def test_a_race_with_a_length_ends_at_a_rate_of_almost_zero_and_one_without_does_not() -> None:
    ends = {}
    for name in RACES:
        training = racing(name, "paper_network")
        rates = []
        for batch in islice(training.task.minibatches(), training.task.steps):
            training.step(batch)
            rates.append(training.race.param_groups[0]["lr"])
        ends[name] = rates[-1] / max(rates)
    assert ends["race"] < 0.05
    assert ends["muon"] < 0.05
    assert ends["race_open"] > 0.05


def test_a_race_is_measured_at_its_average_with_the_buffers_of_training() -> None:
    for name in RACES:
        training = racing(name)
        model = training.task.model
        seen = []

        def measured(task: Task = training.task, seen: list[dict[str, torch.Tensor]] = seen) -> Measures:
            seen.append({name: value.clone() for name, value in task.model.state_dict().items()})
            return task.measure()

        training.task = replace(training.task, measure=measured)
        for batch in islice(training.task.minibatches(), 12):  # the first lane has the model
            training.step(batch)
        training.measure()
        now = model.state_dict()
        assert all(torch.equal(seen[0][key], now[key]) for key, _ in model.named_buffers())
        alike = all(torch.equal(seen[0][key], now[key]) for key, _ in model.named_parameters())
        assert alike == (name == "muon")


def test_the_weights_that_train_come_back_if_measuring_fails() -> None:
    training = racing("race")
    for batch in islice(training.task.minibatches(), 6):
        training.step(batch)
    before = [p.detach().clone() for p in training.task.model.parameters()]

    def broken() -> Measures:
        raise RuntimeError("the cat sat on it")

    training.task = replace(training.task, measure=broken)
    with pytest.raises(RuntimeError, match="the cat"):
        training.measure()
    assert all(torch.equal(p, old) for p, old in zip(training.task.model.parameters(), before, strict=True))


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
    [(("no-such-package", "1.0"), "is not installed; pip install"), (("torch", "0.1"), "the benchmark needs 0.1")],
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
    assert result.state == "failed"
    assert re.fullmatch(r"RuntimeError: the cat sat on it \(test_methods\.py, line \d+\)", result.reason)
    monkeypatch.setattr(METHODS["adamw"], "begin", lambda *_: None)
    result = train(Run("paper_network", "adamw", FIRST, 0, "smoke"))
    assert result.reason == "SettingError: AdamW.begin returned None, and must return a Training."


def test_runs_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingError, match="AdamW has no configuration 'defualt'; it has default"):
        train(Run("paper_network", "adamw", "defualt", 0, "smoke"))
    with pytest.raises(SettingError, match="Run\\(size='tiny'\\): a workload is of size smoke or full"):
        train(Run("paper_network", "adamw", FIRST, 0, "tiny"))  # type: ignore[arg-type]


def test_a_method_that_counts_no_pass_is_a_row_and_does_not_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    class Uncounted(Plain):
        def step(self, batch: Batch) -> None:
            self.task.loss(batch).backward()

    def begin(_: object, task: Task, *__: object) -> Training:
        return Uncounted(task, torch.optim.AdamW(task.model.parameters()))

    monkeypatch.setattr(METHODS["adamw"], "begin", begin)
    result = train(Run("paper_network", "adamw", FIRST, 0, "smoke"))
    assert result.state == "failed"
    assert "A step counted no pass" in result.reason
    assert "self.loss" in result.reason


def test_a_row_says_which_program_trained_it() -> None:
    result = train(Run("logistic_regression", "adamw", FIRST, 0, "smoke"))
    assert result.origin["program"] == program()
    assert re.fullmatch("[0-9a-f]{12}", program())


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        OSError(28, "No space"),
        RuntimeError("CUDA error: x"),
    ],
)
def test_what_the_machine_lacks_is_no_failure_of_the_method(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def starved(*_: object) -> None:
        raise error

    monkeypatch.setattr(METHODS["adamw"], "begin", starved)
    result = train(Run("paper_network", "adamw", FIRST, 0, "smoke"))
    assert result.state == "killed"
    assert result.reason.startswith(f"{type(error).__name__}: ")


def test_float32_is_full_while_a_run_trains_and_as_before_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    begin = METHODS["adamw"].begin

    def watched(*arguments: Any) -> Training:
        seen.append((torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()))
        return begin(*arguments)

    monkeypatch.setattr(METHODS["adamw"], "begin", watched)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert train(Run("logistic_regression", "adamw", FIRST, 0, "smoke")).state == "finished"
    assert seen == [(False, "highest")]
    assert torch.backends.cudnn.allow_tf32


def test_a_run_is_the_same_every_time_and_leaves_random_numbers_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (train(Run("transformer_text", "adamw", FIRST, seed, "smoke")) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    curves = [[(point.cost, point.train, point.validation) for point in run.points] for run in (first, again, other)]
    assert curves[0] == curves[1] != curves[2]


@pytest.mark.parametrize("method", ["salsa", "hotswap_sgd"])
def test_methods_with_trials_are_the_same_every_time_under_dropout(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    seconds = count()
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))  # SaLSa's package takes its seeds from there
    first, again = (train(Run("transformer_text", method, FIRST, 0, "smoke")) for _ in range(2))
    assert [point.train for point in first.points] == [point.train for point in again.points]


def test_trials_of_a_step_see_the_same_dropout_and_steps_do_not() -> None:
    task = WORKLOADS["paper_network"]().task(0, "smoke")
    seen: dict[int, list[float]] = {}

    def noted(batch: Batch) -> torch.Tensor:
        seen.setdefault(len(done), []).append(torch.rand(()).item())
        return task.loss(batch)

    training, done = METHODS["salsa"]().begin(replace(task, loss=noted), {}, 0), []
    for batch in islice(task.minibatches(), 5):
        training.step(batch)
        done.append(batch)
    assert sum(map(len, seen.values())) > 5
    assert all(len(set(values)) == 1 for values in seen.values())
    assert len({values[0] for values in seen.values()}) == 5


def rates(method: str, settings: dict[str, Any]) -> tuple[list[float], torch.optim.Optimizer]:
    """The rate of every step of a run, and the optimizer that had them."""
    task = WORKLOADS["logistic_regression"]().task(0, "smoke")
    training = METHODS[method]().begin(task, settings, 0)
    assert isinstance(training, Plain)
    found = []
    for batch in islice(task.minibatches(), task.steps):
        found.append(training.optimizer.param_groups[0]["lr"])
        training.step(batch)
    return found, training.optimizer


@pytest.mark.parametrize(
    ("method", "settings", "top", "warmup"),
    [
        (REFERENCE, {"optimizer": "sgd", "lr": 0.2, "weight_decay": 0.0, "warmup": 0.1}, 0.2, 0.1),
        (REFERENCE, {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.0, "warmup": 0.05}, 0.01, 0.05),
        ("adamw_cosine", {"warmup": 0.05}, 1e-3, 0.05),
        ("prodigy", {"lr": 1.0}, 1.0, 0.0),
        ("d_adaptation", {"lr": 1.0}, 1.0, 0.0),
    ],
)
def test_rates_rise_and_then_fall_along_a_cosine(
    method: str, settings: dict[str, Any], top: float, warmup: float
) -> None:
    found, optimizer = rates(method, settings)
    rising = round(warmup * len(found))
    assert found[: rising + 1] == sorted(found[: rising + 1])
    assert len(set(found[: rising + 1])) == rising + 1
    assert found[rising:] == sorted(found[rising:], reverse=True)
    assert max(found) == pytest.approx(top, rel=0.05)
    middle = rising + (len(found) - rising) // 2
    assert found[middle] == pytest.approx(top / 2, rel=0.05)
    assert found[-1] < 0.01 * top
    if settings.get("optimizer") == "sgd":
        assert optimizer.param_groups[0]["nesterov"]
        assert optimizer.param_groups[0]["momentum"] == 0.9


class Whole(Method):
    """What a method needs."""

    title = "Whole"

    def begin(self, task: Task, settings: object, seed: int) -> Training:
        return Training(task)


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (lambda: None, "<lambda> must be a class that derives from Method"),
        (type("Bare", (Method,), {"title": "Bare"}), r"Bare must define begin\(\); see Method"),
        (type("Nameless", (Method,), {"begin": Whole.begin}), "Nameless must have the attribute title; see Method"),
        (type("Unset", (Whole,), {"first": None}), "Unset must have a Configuration as its first"),
        (type("Packed", (Whole,), {"package": "torch"}), "Packed must have a package of the form"),
        (
            type("Odd", (Whole,), {"first": Configuration({"betas": (0.9, 0.99)})}),
            r"setting \(0\.9, 0\.99\); a setting is",
        ),
        (type("Odder", (Whole,), {"second": Configuration({"fn": print})}), "Odder has the setting <built-in function"),
    ],
)
def test_a_method_of_ones_own_that_lacks_something_is_refused_at_once(thing: type[Method], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        METHODS.register("lacking")(thing)
    assert "lacking" not in METHODS


def test_a_setting_of_ones_own_may_be_whatever_json_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "_known", dict(METHODS))
    settings = {"betas": [0.9, 0.99], "clip": None, "fused": True, "lr": 0.1, "norm": "l2"}
    METHODS.register("whole")(type("Wholly", (Whole,), {"first": Configuration(settings)}))
    assert METHODS["whole"].first.settings == settings


def measuring(values: Iterable[float]) -> Callable[..., Training]:
    """How a method begins whose measures are these."""

    def begin(_: Method, task: Task, settings: object, seed: int) -> Training:
        measures = iter(values)

        class Measured(Training):
            def step(self, batch: Batch) -> None:
                self.loss(batch).backward()

            def measure(self) -> Measures:
                value = next(measures)
                return Measures(value, value)

        return Measured(task)

    return begin


@pytest.mark.parametrize(
    ("values", "state", "reason"),
    [
        ([math.nan if at == 2 else 0.5 for at in range(14)], "finished", ""),  # it has recovered
        ([math.nan if at in (2, 13) else 0.5 for at in range(14)], "diverged", "not finite from 100 % of"),
        ([0.5, 0.5, math.inf, math.nan], "diverged", "not finite from 2 % of"),  # given up after two in a row
        ([0.5, 0.5, -0.25], "failed", "measure is -0.25, and .* never negative, such as the exponential of its loss"),
        ([0.5, *[0.0] * 13], "finished", ""),
    ],
)
def test_what_measures_say_of_a_run(
    monkeypatch: pytest.MonkeyPatch, values: list[float], state: str, reason: str
) -> None:
    monkeypatch.setattr(METHODS["sgd"], "begin", measuring(values))
    result = train(Run("logistic_regression", "sgd", FIRST, 0, "smoke"))
    assert result.state == state
    assert re.search(reason, result.reason)

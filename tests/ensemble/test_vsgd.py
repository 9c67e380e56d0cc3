"""vSGD-fd: its formulae by hand, what it is known to do where the loss is quadratic, and many runs at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from hotswap.bench.vsgd import VSGD
from hotswap.ensemble import FunctionalModel, Vsgd
from hotswap.ensemble.vsgd import SLOTS, begin_averages, shift_of, vsgd_step
from hotswap.networks import multilayer_perceptron
from tests.ensemble.helpers import MODELS, SIZES, STEPS, D, batches, flat, tally_of, train

CURVATURE = 4.0


def averages(count: int = 1) -> dict[str, Tensor]:
    return {name: torch.zeros(count, dtype=D) for name in SLOTS}


def step(theta: Tensor, slots: dict[str, Tensor], gradient: Tensor) -> None:
    """A step where the loss of the minibatch is ½ · 4 · (θ − c)²: its gradient changes by 4 times the shift."""
    vsgd_step(theta, gradient, gradient + CURVATURE * shift_of(slots["mean"]), slots)


def begin(slots: dict[str, Tensor], gradient: Tensor, number: int = 1, start: int = 1) -> None:
    slots["mean"].lerp_(gradient, 1 / number)
    nearby = gradient + CURVATURE * shift_of(slots["mean"])
    begin_averages(gradient, nearby, slots, torch.tensor(float(number), dtype=D), start, slow=2.0)


def values(slots: dict[str, Tensor]) -> list[float]:
    return [slots[name].item() for name in SLOTS]


def test_the_first_steps_on_a_parabola_by_hand() -> None:
    """½ · 4 · θ² from θ = 1, without noise: the rate begins at ⅔ of the best one, 1/4."""
    theta, slots = torch.ones(1, dtype=D), averages()
    begin(slots, CURVATURE * theta)
    assert values(slots) == pytest.approx([4, 2 * 16, 4, 16, 2])  # v̄ twice what it was, τ = 2
    step(theta, slots, CURVATURE * theta)  # half old, half new: ḡ²/v̄ = 16/24
    assert values(slots) == pytest.approx([4, 24, 4, 16, 5 / 3], rel=1e-8)
    assert theta.item() == pytest.approx(1 - 4 * (2 / 3) / 4, rel=1e-8)
    step(theta, slots, CURVATURE * theta)  # 2/5 old, 3/5 new: ḡ = 2.4, v̄ = 9.6 + 3.2/3, ḡ²/v̄ = 0.54
    assert values(slots) == pytest.approx([2.4, 32 / 3, 4, 16, 1 + 0.46 * 5 / 3], rel=1e-8)
    assert theta.item() == pytest.approx(1 / 3 - 0.54 / 4 * 4 / 3, rel=1e-8)


def test_the_first_averages_are_plain_means() -> None:
    slots = averages()
    for number, gradient in enumerate((1.0, 5.0, 3.0), start=1):
        begin(slots, torch.tensor([gradient], dtype=D), number, start=3)
    assert values(slots) == pytest.approx([3, 2 * 35 / 3, 4, 16, 2])


@pytest.mark.parametrize(("gradient", "curvature", "memory"), [(5.9, 4.0, 10), (6.1, 4.0, 11), (4.0, 7.0, 11)])
def test_an_outlier_counts_less(gradient: float, curvature: float, memory: float) -> None:
    """Of gradients with mean 4 and standard deviation 1, and of curvatures with mean 4 and standard deviation 1."""
    slots = {name: torch.tensor([value], dtype=D) for name, value in zip(SLOTS, (4, 17, 4, 17, 10), strict=True)}
    seen = torch.tensor([gradient], dtype=D)
    vsgd_step(torch.zeros(1, dtype=D), seen, seen + curvature * 4, slots)
    share = 1 / memory
    mean, square = 4 + (gradient - 4) * share, 17 + (gradient**2 - 17) * share
    assert slots["mean"].item() == pytest.approx(mean)
    assert slots["memory"].item() == pytest.approx((1 - mean**2 / square) * memory + 1)


def test_what_never_had_a_gradient_stays() -> None:
    theta, slots = torch.ones(2, dtype=torch.float32), {name: torch.zeros(2) for name in SLOTS}
    none = torch.zeros(2)
    begin_averages(none, none, slots, torch.ones(()), 1, 2.0)
    for _ in range(5):
        vsgd_step(theta, none, none, slots)
    assert theta.tolist() == [1, 1]


def descended(noise: float, steps: int, count: int = 2000) -> Tensor:
    """Mean θ² of many parameters after each step, the minimum of each minibatch's loss being 0 ± noise."""
    numbers = torch.Generator().manual_seed(0)
    theta, slots, losses = torch.full((count,), 10.0, dtype=D), averages(count), []
    for number in range(1, steps + 1):
        gradient = CURVATURE * (theta - noise * torch.randn(count, dtype=D, generator=numbers))
        if number <= 10:
            begin(slots, gradient, number, start=10)
        else:
            step(theta, slots, gradient)
        losses.append((theta**2).mean())
    return torch.stack(losses)


def test_a_noisy_parabola_is_descended_as_fast_as_can_be() -> None:
    """The best rate for each moment, 1/h · θ²/(θ² + σ²), lets θ² fall as σ²/t; a constant η ends at hη/(2 − hη)."""
    loss = descended(1.0, 800)
    assert 1.6 < loss[399] / loss[799] < 2.5
    assert 1 < 800 * loss[799] < 4
    assert loss[799] < 0.01 / (2 - 0.01)  # what a hundredth of the best rate without noise would end at


def test_a_minibatch_of_16_is_worth_16_times_the_samples() -> None:
    """The variance of its gradient is a sixteenth, and rates are larger for it."""
    assert descended(1.0, 800)[799] / descended(0.25, 800)[799] == pytest.approx(16, rel=0.15)


@pytest.mark.parametrize("kind", MODELS)
def test_runs_are_those_of_the_optimizer(kind: str) -> None:
    model = MODELS[kind]()
    update = Vsgd(model, model.initial([0, 1]).to(D))
    train(update)
    for run in range(2):
        network = multilayer_perceptron(SIZES, seed=run).to(D)
        optimizer = VSGD(network.parameters())
        for x, y in batches():
            optimizer.step(lambda x=x, y=y, network=network: cross_entropy(network(x), y))
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-7, atol=1e-9)


def normalised(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def test_the_gradient_nearby_leaves_running_statistics_alone() -> None:
    model = FunctionalModel(normalised)
    update = Vsgd(model, model.initial([3]).to(D), start=2)
    ensemble = train(update)
    network = normalised(3).to(D)
    optimizer = VSGD(network.parameters(), start=2)
    for x, y in batches():
        optimizer.step(lambda x=x, y=y: cross_entropy(network(x), y))
    torch.testing.assert_close(update.theta[0], flat(network, "functional"), rtol=1e-7, atol=1e-9)
    state = ensemble.state()
    for name, buffer in network.named_buffers():
        torch.testing.assert_close(state[f"model/{name}"][0], buffer, rtol=1e-7, atol=1e-9)
    assert network[1].num_batches_tracked == STEPS


def test_both_gradients_of_a_step_are_paid_for() -> None:
    model = MODELS["mlp"]()
    tally = tally_of(Vsgd(model, model.initial([0, 1]).to(D)))
    assert tally.totals == {"passes": [6 * STEPS] * 2}
    assert all(norm > 0 for norm in tally.gradient_norm)

"""Rules that treat every parameter alike."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from hotswap import CheckpointError, SettingError
from hotswap.ensemble import Elementwise, Mlp
from hotswap.networks import multilayer_perceptron
from tests.ensemble.helpers import MODELS, SIZES, STEPS, D, adadelta, batches, flat, tally_of, train


@pytest.mark.parametrize("kind", MODELS)
def test_adadelta_is_torchs(kind: str) -> None:
    model = MODELS[kind]()
    update = adadelta(model, model.initial([0, 1]).to(D))
    train(update)
    for run in range(2):
        network = multilayer_perceptron(SIZES, seed=run).to(D)
        optimizer = torch.optim.Adadelta(network.parameters(), lr=1.0, rho=0.95, eps=1e-6)
        for x, y in batches():
            optimizer.zero_grad()
            cross_entropy(network(x), y).backward()
            optimizer.step()
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_adadelta_is_to_the_bit_what_it_was_with_scalars(dtype: torch.dtype) -> None:
    """Results from before its rule was a function of its own stay what they are."""
    model = Mlp(SIZES)
    update = adadelta(model, model.initial([0, 1]).to(dtype))
    theta, rho, eps = update.theta.clone(), 0.95, 1e-6
    squares, moves = torch.zeros_like(theta), torch.zeros_like(theta)
    train(update)
    for x, y in batches():
        direction = model.gradient(theta, model.prepare(x.to(dtype)), y).direction
        squares.mul_(rho).addcmul_(direction, direction, value=1 - rho)
        move = (moves + eps).sqrt_().div_((squares + eps).sqrt_()).mul_(direction)
        moves.mul_(rho).addcmul_(move, move, value=1 - rho)
        theta.add_(move, alpha=-1.0)
    assert torch.equal(update.theta, theta)


def adam_rule(
    theta: Tensor, gradient: Tensor, slots: dict[str, Tensor], values: dict[str, Tensor], step: Tensor
) -> None:
    mean, square = slots["mean"], slots["square"]
    mean.mul_(values["beta1"]).add_(gradient * (1 - values["beta1"]))
    square.mul_(values["beta2"]).add_(gradient * gradient * (1 - values["beta2"]))
    scale = (square / (1 - values["beta2"] ** step)).sqrt_().add_(values["eps"])
    theta.sub_(values["lr"] * (mean / (1 - values["beta1"] ** step)) / scale)


def adam(rates: tuple[float, ...] = (0.01, 0.003), decay: list[float] | None = None, **options: bool) -> Elementwise:
    model, runs = Mlp(SIZES), len(rates)
    values = {"lr": rates, "beta1": [0.9] * runs, "beta2": 0.99, "eps": 1e-8}  # of each run, or of all
    theta = model.initial(range(runs)).to(D)
    return Elementwise(model, theta, adam_rule, ("mean", "square"), values, decay, **options)


def test_values_of_each_run_the_number_of_the_step_and_a_rate_that_decays() -> None:
    """Adam, against torch's, with a rate for each run that falls from epoch to epoch."""
    update = adam(decay=[0.5, 1.0])
    train(update, epochs=2)
    for run, (rate, decay) in enumerate([(0.01, 0.5), (0.003, 1.0)]):
        network = multilayer_perceptron(SIZES, seed=run).to(D)
        optimizer = torch.optim.Adam(network.parameters(), lr=rate, betas=(0.9, 0.99))
        for number, (x, y) in enumerate(batches(epochs=2)):
            optimizer.param_groups[0]["lr"] = rate * decay ** (number // STEPS)
            optimizer.zero_grad()
            cross_entropy(network(x), y).backward()
            optimizer.step()
        torch.testing.assert_close(update.theta[run], flat(network, "mlp"), rtol=1e-8, atol=1e-8)


def test_the_state_holds_all_that_the_next_step_needs() -> None:
    straight, first, second = adam(), adam(), adam()
    train(straight, epochs=2)
    train(first)
    assert set(first.state()) == {"theta", "mean", "square", "step"}
    second.restore({name: tensor.clone() for name, tensor in first.state().items()})
    train(second, first=1, epochs=2)
    for name, tensor in straight.state().items():
        assert torch.equal(tensor, second.state()[name]), name
    assert set(adadelta(Mlp(SIZES), Mlp(SIZES).initial([0])).state()) == {"theta", "squares", "moves"}


def test_rates_of_each_run_are_tallied() -> None:
    assert tally_of(adam()).means == {"mean_lr": [pytest.approx(0.01), pytest.approx(0.003)]}
    assert tally_of(adadelta(Mlp(SIZES), Mlp(SIZES).initial([0]).to(D))).means == {}


def test_refuses() -> None:
    model = Mlp(SIZES)
    theta = model.initial([0])
    with pytest.raises(SettingError, match="a slot cannot be called 'step'"):
        Elementwise(model, theta, adam_rule, ("step",), {})
    with pytest.raises(SettingError, match=r"slots must be a tuple of names, such as \('mean',\)"):
        Elementwise(model, theta, adam_rule, "mean", {})
    with pytest.raises(SettingError, match="no value 'lr'"):
        Elementwise(model, theta, adam_rule, (), {}, decay=[1.0])
    with pytest.raises(CheckpointError, match="it has no 'mean'"):
        adam().restore(adadelta(model, model.initial([0, 1])).state())
    with pytest.raises(CheckpointError, match="of other runs"):
        adam().restore(adam((0.1,)).state())

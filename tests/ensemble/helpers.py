"""A small problem for ensembles, and updates that train on it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hotswap import Arms, Backtracking, DiscountedUCB, log_grid
from hotswap.ensemble import (
    Ensemble,
    EpochTally,
    FunctionalModel,
    HotSwapped,
    Mlp,
    Model,
    Sgd,
    TrainingData,
    Update,
    Variant,
)
from hotswap.networks import multilayer_perceptron
from hotswap.studies import AdaDeltaFamily

D = torch.float64
SIZES = (6, 9, 7, 3)
STEPS = 60
BATCH = 10


def data(count: int = STEPS * BATCH) -> TrainingData:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count + 200, 6, generator=generator, dtype=D)
    y = (x[:, 0] > 0).long() + (x[:, 1] * x[:, 2] > 0.3).long()
    return TrainingData(x[:count], y[:count], x[count:], y[count:])


def batches(epochs: int = 1, data_seed: int = 5, count: int = STEPS * BATCH) -> list[tuple[Tensor, Tensor]]:
    """The minibatches an ensemble would see."""
    held, made = data(count), []
    for epoch in range(epochs):
        shuffle = torch.Generator().manual_seed(data_seed * 1_000_003 + epoch)
        order = torch.randperm(len(held.train_x), generator=shuffle).view(-1, BATCH)
        made.extend((held.train_x[rows], held.train_y[rows]) for rows in order)
    return made


MODELS: dict[str, Callable[[], Model]] = {
    "mlp": lambda: Mlp(SIZES),
    "functional": lambda: FunctionalModel(lambda seed: multilayer_perceptron(SIZES, seed=seed)),
}


def adadelta(model: Model, theta: Tensor) -> Update:
    return AdaDeltaFamily().update(model, theta, ())


def train(update: Update, epochs: int = 1, first: int = 0, count: int = STEPS * BATCH) -> Ensemble:
    """Epochs `first` to `epochs` on `count` samples, in the precision of the parameters."""
    held, dtype = data(count), update.theta.dtype
    inputs = TrainingData(held.train_x.to(dtype), held.train_y, held.test_x.to(dtype), held.test_y)
    ensemble = Ensemble(update, inputs, BATCH, data_seed=5)
    for epoch in range(first, epochs):
        ensemble.train_epoch(epoch)
    return ensemble


def flat(network: nn.Module, like: str) -> Tensor:
    """A network's parameters in the layout of the model."""
    if like == "functional":
        return torch.cat([p.detach().flatten() for p in network.parameters()])
    return Mlp(SIZES).flatten(network)


def hot_swapped(model: Model, seeds: list[int], device: str = "cpu") -> HotSwapped:
    variant = Variant(Arms.of({"lr": log_grid()}), DiscountedUCB(), Backtracking())
    return HotSwapped(model, model.initial(seeds).to(device, D), [(variant, len(seeds))])


SGD_RUNS = [(0.3, 0.9, 0.9), (0.1, 1.0, 0.9), (0.3, 0.5, 0.5), (1.0, 0.99, 0.0), (0.03, 1.0, 0.0)]  # rate, decay, μ


def sgd(model: Model, runs: list[tuple[float, float, float]] = SGD_RUNS) -> Sgd:
    rates, decays, momenta = zip(*runs, strict=True)
    return Sgd(model, model.initial([3] * len(runs)).to(D), rates, decays, momenta)


def tally_of(update: Update, *, watched: bool = True) -> EpochTally:
    ensemble = Ensemble(update, data(), BATCH, data_seed=5)
    ensemble.train_epoch(0, watched=watched)
    return ensemble.tally()

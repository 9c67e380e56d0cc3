"""The benchmark's workloads, so small that a run takes seconds on one core: to choose between variants of a race.

Each is the workload of its name with a smaller network, fewer steps, and a loss as its validation measure: errors of so
few steps would be mostly noise.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, binary_cross_entropy_with_logits, cross_entropy

from hotswap.bench.workloads import Batch, Measures, Task, gaussian_regression, logistic_regression
from hotswap.bench.workloads.autoencoder import autoencoder
from hotswap.bench.workloads.base import in_evaluation, in_parts, minibatches_of, seeded
from hotswap.bench.workloads.fashion_convolution import convolutions
from hotswap.bench.workloads.images import Images
from hotswap.bench.workloads.recurrent_text import Recurrent
from hotswap.bench.workloads.text import Text
from hotswap.bench.workloads.transformer_text import Transformer
from hotswap.networks import multilayer_perceptron

__all__ = ["SMALL"]

Loss = Callable[[Tensor, Tensor], Tensor]


def _task(
    model: torch.nn.Module, steps: int, batch_size: int, seed: int, train: Batch, validation: Batch, loss: Loss
) -> Task:
    """A task on samples that lie on the device; `loss` is that of each sample."""

    def measure() -> Measures:
        found = (in_parts(loss, x[:5000], y[:5000]) for x, y in (train, validation))
        return Measures(*(mean.item() for mean in found))

    return Task(
        model,
        steps,
        lambda: minibatches_of(*train, batch_size, seed),
        lambda batch: loss(*batch).mean(),
        in_evaluation(model, measure),
    )


def _paper_network(seed: int, device: str) -> Task:
    images = Images.of("mnist", device, flat=True)
    model = multilayer_perceptron((784, 100, 60, 10), seed=seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x), y, reduction="none")

    return _task(model, 1500, 64, seed, (images.train_x, images.train_y), images.validation, loss)


def _logistic_regression(seed: int, device: str) -> Task:
    train, validation = (logistic_regression.made(count, device, which) for which, count in enumerate((20_000, 5000)))
    model = seeded(lambda: torch.nn.Linear(logistic_regression.FEATURES, 1), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(model(x)[:, 0], y, reduction="none")

    return _task(model, 2500, 64, seed, train, validation, loss)


def _autoencoder(seed: int, device: str) -> Task:
    images = Images.of("mnist", device, flat=True)
    model = seeded(lambda: autoencoder((784, 64, 16)), seed).to(device)

    def loss(x: Tensor, _: Tensor) -> Tensor:
        return binary_cross_entropy_with_logits(model(x), x, reduction="none").mean(1)

    return _task(model, 1500, 50, seed, (images.train_x, images.train_y), images.validation, loss)


def _gaussian_regression(seed: int, device: str) -> Task:
    train, validation = (gaussian_regression.made(count, device, which) for which, count in enumerate((20_000, 5000)))
    model = seeded(lambda: gaussian_regression.network(64), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        mean, log_variance = model(x).unbind(1)
        return (log_variance + (y - mean).square() * torch.exp(-log_variance)) / 2

    task = _task(model, 2000, 64, seed, train, validation, loss)

    def measure() -> Measures:  # positive, though the loss is not
        return Measures(*(torch.tensor(value).exp().item() for value in task.measure()))

    return Task(task.model, task.steps, task.minibatches, task.loss, measure)


def _fashion_convolution(seed: int, device: str) -> Task:
    images = Images.of("fashion_mnist", device, flat=False)
    smaller = [avg_pool2d(x, 2) for x in (images.train_x[:20_000], images.test_x)]
    model = seeded(lambda: convolutions(1, (6, 12)), seed).to(device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x), y, reduction="none")

    train, validation = (smaller[0], images.train_y[:20_000]), (smaller[1], images.test_y)
    return _task(model, 800, 32, seed, train, validation, loss)


def _on_text(model: torch.nn.Module, length: int, steps: int, seed: int, device: str) -> Task:
    text = Text(length, device)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(model(x), y, reduction="none").mean(1)

    def measure() -> Measures:
        return Measures(*(in_parts(loss, *text.measured(500, held_out=held)).item() for held in (False, True)))

    batches = text.minibatches
    return Task(
        model, steps, lambda: batches(16, seed), lambda batch: loss(*batch).mean(), in_evaluation(model, measure)
    )


def _recurrent_text(seed: int, device: str) -> Task:
    return _on_text(seeded(lambda: Recurrent(48), seed).to(device), 24, 800, seed, device)


def _transformer_text(seed: int, device: str) -> Task:
    model = seeded(lambda: Transformer(32, 2, 4, 24, dropout=0.1), seed).to(device)
    return _on_text(model, 24, 800, seed, device)


SMALL: dict[str, Callable[[int, str], Task]] = {
    "autoencoder": _autoencoder,
    "fashion_convolution": _fashion_convolution,
    "gaussian_regression": _gaussian_regression,
    "logistic_regression": _logistic_regression,
    "paper_network": _paper_network,
    "recurrent_text": _recurrent_text,
    "transformer_text": _transformer_text,
}
"""By the name of the workload, a task from a seed and a device."""

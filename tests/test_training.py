"""It trains: the paper's network on real MNIST, with bounds that a broken optimizer does not reach."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap import HotSwap, HotSwapSGD
from hotswap.data import load_mnist
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron


@pytest.mark.mnist
@pytest.mark.parametrize(
    ("build", "loss_bound", "error_bound"),
    [(HotSwapSGD, 0.5, 0.12), (lambda p: HotSwap(torch.optim.Adam(p)), 0.32, 0.09)],
    ids=["sgd", "adam"],
)
def test_the_papers_network_learns_mnist(build, loss_bound: float, error_bound: float) -> None:  # type: ignore[no-untyped-def]
    data = load_mnist()
    inputs, labels = torch.from_numpy(data.train_inputs()[:10_000]), torch.from_numpy(data.train_labels[:10_000])
    network = multilayer_perceptron((784, *PAPER_HIDDEN, 10), seed=1)
    optimizer = build(network.parameters())
    order = torch.Generator().manual_seed(1)
    losses: list[float] = []
    for _ in range(4):
        for rows in torch.randperm(10_000, generator=order).split(100):
            x, y = inputs[rows], labels[rows]
            losses.append(float(optimizer.step(lambda x=x, y=y: cross_entropy(network(x), y))))
    assert losses[0] > 2.0  # it began with a network that knows nothing
    assert sum(losses[-100:]) / 100 < loss_bound
    with torch.no_grad():
        wrong = network(torch.from_numpy(data.test_inputs())).argmax(1) != torch.from_numpy(data.test_labels)
    assert wrong.double().mean() < error_bound

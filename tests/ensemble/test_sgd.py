"""Stochastic gradient descent with momentum, run by run."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from hotswap.ensemble import Mlp, Sgd
from hotswap.networks import multilayer_perceptron
from tests.ensemble.helpers import MODELS, SGD_RUNS, SIZES, STEPS, D, batches, flat, sgd, train


@pytest.mark.parametrize("kind", MODELS)
def test_sgd_has_the_rate_inside_the_velocity(kind: str) -> None:
    update = sgd(MODELS[kind]())
    train(update, epochs=2)
    for run, (rate, decay, momentum) in enumerate(SGD_RUNS):
        network = multilayer_perceptron(SIZES, seed=3).to(D)
        velocity = [torch.zeros_like(p) for p in network.parameters()]
        for number, (x, y) in enumerate(batches(epochs=2)):
            network.zero_grad()
            cross_entropy(network(x), y).backward()
            alpha = rate * decay ** (number // STEPS)
            with torch.no_grad():
                for p, v in zip(network.parameters(), velocity, strict=True):
                    v.mul_(momentum).sub_(alpha * p.grad)
                    p.add_(v)
        torch.testing.assert_close(update.theta[run], flat(network, kind), rtol=1e-9, atol=1e-9)


def test_runs_must_be_ordered_by_momentum() -> None:
    momenta = [0.0, 0.9, 0.5, 0.9]
    assert [momenta[run] for run in Sgd.order(momenta)] == [0.9, 0.9, 0.5, 0.0]
    with pytest.raises(ValueError, match="ordered by momentum"):
        sgd(Mlp(SIZES), [(0.1, 1.0, 0.0), (0.1, 1.0, 0.9)])

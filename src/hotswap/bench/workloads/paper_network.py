"""The paper's network on MNIST: 784-500-300-10 sigmoid units."""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch.nn.functional import cross_entropy

from hotswap.bench.workloads.base import WORKLOADS, Size, Task, Workload, classification_measures
from hotswap.bench.workloads.images import Images
from hotswap.networks import PAPER_HIDDEN, multilayer_perceptron

__all__ = ["PaperNetwork"]


@WORKLOADS.register("paper_network")
class PaperNetwork(Workload):
    """Five epochs, where the paper has 500: as long as people train who have other things to do."""

    title = "the paper's network on MNIST"
    measured = "validation error"
    data = MappingProxyType({"full": "mnist", "smoke": "digits"})

    def task(self, seed: int, size: Size = "full", device: torch.device | str = "cpu") -> Task:
        """See `Workload.task`."""
        images = Images.of(self.data[size], device, flat=True)
        hidden, steps = (PAPER_HIDDEN, 4600) if size == "full" else ((16,), 80)
        model = multilayer_perceptron((images.train_x.shape[1], *hidden, 10), seed=seed).to(device)
        return Task(
            model,
            steps,
            lambda: images.minibatches(64, seed),
            lambda batch: cross_entropy(model(batch[0]), batch[1]),
            classification_measures(model, images.measured, images.validation),
        )

"""Images and labels on a device, for the workloads that classify or rebuild them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from hotswap.bench.workloads.base import Batch, minibatches_of
from hotswap.data import load

__all__ = ["Images"]

MEASURED = 5000
"""How many training images the training measure is of."""


class Images(NamedTuple):
    """A data set. Its test images are the validation set, by which references are chosen, and no method's settings."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @classmethod
    def of(cls, name: str, device: torch.device | str, *, flat: bool) -> Images:
        """The data set of this name, with pixels between 0 and 1."""
        data = load(name)
        arrays = (data.train_inputs(flat=flat), data.train_labels, data.test_inputs(flat=flat), data.test_labels)
        return cls(*(torch.from_numpy(array).to(device) for array in arrays))

    @property
    def measured(self) -> Batch:
        """The training images that are measured."""
        return self.train_x[:MEASURED], self.train_y[:MEASURED]

    @property
    def validation(self) -> Batch:
        """The images that nothing is trained on."""
        return self.test_x, self.test_y

    def minibatches(self, batch_size: int, seed: int) -> Iterator[Batch]:
        """Shuffled, epoch after epoch."""
        return minibatches_of(self.train_x, self.train_y, batch_size, seed)

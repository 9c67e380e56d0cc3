"""Inner products with the gradient: by how much the slope at the start point lets one expect the loss to fall.

Products and sums are in float64, where those of float32 neither overflow nor vanish. The device is read once for all
parameters on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from hotswap.optim.probing.moves.shards import pieces

__all__ = ["SlopeSum"]

CHUNK = 1 << 24
"""So many numbers are copied to float64 at a time: 128 MiB."""


@dataclass
class SlopeSum:
    """A sum of `factor · ⟨g, vector⟩` over parameters.

    Of a parameter that is divided among processes only this process's part is here. It counts as often as there are
    different parts, and one that is not divided counts once: the mean over all processes is the whole sum.
    """

    _products: dict[torch.device, list[Tensor]] = field(default_factory=dict)
    _factors: dict[torch.device, list[float]] = field(default_factory=dict)

    def add(self, factor: float, owner: Tensor, gradient: Tensor, vector: Tensor) -> None:
        """Add the part of one parameter. The gradient may be sparse, if it is coalesced; and the vector then, too."""
        product = _product(gradient, vector)
        self._products.setdefault(product.device, []).append(product)
        self._factors.setdefault(product.device, []).append(factor * pieces(owner))

    def value(self) -> float:
        """The sum; NaN or infinite where a part is."""
        total = 0.0
        for device, products in self._products.items():
            found = torch.stack(products).tolist()
            total += sum(factor * product for factor, product in zip(self._factors[device], found, strict=True))
        return total


def _product(gradient: Tensor, vector: Tensor) -> Tensor:
    """⟨g, v⟩ in float64, as a tensor of one number on the device."""
    if gradient.is_sparse:
        rows = tuple(gradient.indices())
        vector = vector.values() if vector.is_sparse else vector[rows]  # a sparse vector is the gradient itself
        gradient = gradient.values()
    if gradient.is_complex():  # real and imaginary parts are numbers of their own
        gradient, vector = torch.view_as_real(gradient.resolve_conj()), torch.view_as_real(vector.resolve_conj())
    if gradient.device.type == "mps":  # has no float64
        gradient, vector = gradient.cpu(), vector.cpu()
    if gradient.numel() <= CHUNK:
        return gradient.to(torch.float64, copy=True).mul_(vector).sum()
    parts = zip(torch.split(gradient.reshape(-1), CHUNK), torch.split(vector.reshape(-1), CHUNK), strict=True)
    return torch.stack([part.to(torch.float64, copy=True).mul_(other).sum() for part, other in parts]).sum()

"""R copies of any module, through `torch.func`: slower than batched matrix products, but for every architecture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from hotswap.ensemble.model import Gradient, Model

__all__ = ["FunctionalModel"]


class FunctionalModel(Model):
    """Copies of the module that `build(seed)` makes. It must be a pure function of its parameters: no batch norm."""

    def __init__(self, build: Callable[[int], nn.Module]) -> None:
        self.build = build
        self.module = build(0).to("meta")
        self.shapes = {name: parameter.shape for name, parameter in self.module.named_parameters()}
        self.size = sum(shape.numel() for shape in self.shapes.values())

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """See `Model.initial`."""
        rows = [torch.cat([p.detach().flatten() for p in self.build(seed).parameters()]) for seed in seeds]
        return torch.stack(rows)

    def _one(self, row: Tensor, x: Tensor) -> Tensor:
        """One copy's logits `(B, C)` from its row of θ."""
        parts = torch.split(row, [shape.numel() for shape in self.shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        scores: Tensor = functional_call(self.module, named, (x,))
        return scores

    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """See `Model.scores`."""
        scores: Tensor = vmap(self._one, in_dims=(0, None))(theta, x)
        return scores

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor) -> Gradient:
        """See `Model.gradient`."""
        one = grad_and_value(lambda row: cross_entropy(self._one(row, x), y))
        direction, loss = vmap(one)(theta)
        return Gradient(loss, direction, None)

    def trials(self, theta: Tensor, gradient: Gradient, rates: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """See `Model.trials`."""
        rate = rates.to(theta.dtype)
        losses = [
            vmap(lambda row: cross_entropy(self._one(row, x), y))(theta - rate[:, j, None] * gradient.direction)
            for j in range(rates.shape[1])
        ]
        return torch.stack(losses, dim=1)

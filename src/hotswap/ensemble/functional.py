"""R copies of any module, through `torch.func`: slower than batched matrix products, but for every architecture.

A copy is a row of θ and, where the module has buffers (batch norm's running statistics), a row of each of those. All
copies are evaluated by one call that is vectorised over the rows. A parameter that does not require gradients is kept
with the buffers: a part of the copy that no update moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy

from hotswap.ensemble.model import Along, Gradient, Model
from hotswap.errors import UnsupportedError

__all__ = ["FunctionalModel"]

Buffers = dict[str, Tensor]


class FunctionalModel(Model):
    """Copies of the module that `build(seed)` makes, each with parameters and buffers of its own.

    Training uses the module in the mode in which it was built, evaluation a copy of it in evaluation mode.

    Raises:
        UnsupportedError: The module draws random numbers while it trains, or averages over all batches it has seen.
    """

    def __init__(self, build: Callable[[int], nn.Module]) -> None:
        self.build = build
        self.module = build(0).to("meta")
        _refuse(self.module)
        self.evaluated = deepcopy(self.module).eval()
        self.shapes = {name: parameter.shape for name, parameter in _trained(self.module)}
        self.size = sum(shape.numel() for shape in self.shapes.values())
        self.buffers: Buffers = {}

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """See `Model.initial`. The buffers of the copies begin as those of the same modules."""
        modules = [self.build(seed) for seed in seeds]
        kept = [dict(_kept(module)) for module in modules]
        self.buffers = {name: torch.stack([each[name] for each in kept]) for name in kept[0]}
        return torch.stack([torch.cat([p.detach().flatten() for _, p in _trained(module)]) for module in modules])

    def begin(self, theta: Tensor) -> dict[str, Tensor]:
        """See `Model.begin`."""
        names = {name for name, _ in _kept(self.module)}
        if names != set(self.buffers) or any(len(buffer) != len(theta) for buffer in self.buffers.values()):
            raise ValueError("buffers are made by `initial`: take θ from the latest call, all of its rows")
        self.buffers = {
            name: buffer.to(theta.device, theta.dtype if buffer.is_floating_point() else buffer.dtype)
            for name, buffer in self.buffers.items()
        }
        return dict(self.buffers)

    def _buffers_of(self, theta: Tensor) -> Buffers:
        """The buffers of the copies that θ has rows for."""
        return {name: buffer[: len(theta)] for name, buffer in self.buffers.items()}

    def _one(self, module: nn.Module, row: Tensor, buffers: Buffers, x: Tensor) -> tuple[Tensor, Buffers]:
        """One copy's logits `(B, C)` from its row of θ and its buffers, and what the buffers are afterwards."""
        parts = torch.split(row, [shape.numel() for shape in self.shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}
        named |= {name: buffer.clone() for name, buffer in buffers.items()}  # a module writes into its buffers
        scores: Tensor = functional_call(module, named, (x,))
        return scores, {name: named[name] for name in buffers}

    def _loss(self, row: Tensor, buffers: Buffers, x: Tensor, y: Tensor) -> tuple[Tensor, Buffers]:
        """One copy's mean loss in training, and what its buffers are afterwards."""
        scores, after = self._one(self.module, row, buffers, x)
        return cross_entropy(scores, y), after

    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """See `Model.scores`."""

        def one(row: Tensor, buffers: Buffers) -> Tensor:
            return self._one(self.evaluated, row, buffers, x)[0]

        scores: Tensor = _for_all(one, theta, self._buffers_of(theta))
        return scores

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor) -> Gradient:
        """See `Model.gradient`."""
        gradient, after = self._gradient(theta, x, y)
        for name, buffer in self._buffers_of(theta).items():
            buffer.copy_(after[name])
        return gradient

    def gradient_beside(self, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """See `Model.gradient_beside`."""
        return self._gradient(theta, x, y)[0].direction

    def _gradient(self, theta: Tensor, x: Tensor, y: Tensor) -> tuple[Gradient, Buffers]:
        """Losses and gradients at θ, and what the buffers are after the pass."""

        def one(row: Tensor, buffers: Buffers) -> Any:
            return grad_and_value(self._loss, has_aux=True)(row, buffers, x, y)

        direction, (loss, after) = _for_all(one, theta, self._buffers_of(theta))
        return Gradient(loss, direction, None), after

    def trials(
        self,
        theta: Tensor,
        gradient: Gradient,
        rates: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        rows: Tensor | None = None,
        shrink: Tensor | None = None,
        along: Along | None = None,
    ) -> Tensor:
        """See `Model.trials`."""

        def one(row: Tensor, buffers: Buffers) -> Tensor:
            return self._loss(row, buffers, x, y)[0]

        def some(tensor: Tensor) -> Tensor:
            return tensor if rows is None else tensor[rows]

        def candidate(arm: int) -> Tensor:
            moved = start if shrink is None else start * (1 - shrink[:, arm, None]).to(theta.dtype)
            moved = moved - rates[:, arm, None].to(theta.dtype) * direction
            return moved if along is None else moved - along.rates[:, arm, None].to(theta.dtype) * beside

        start, direction = some(theta), some(gradient.direction)
        beside = direction if along is None else some(along.direction)
        buffers = {name: some(buffer) for name, buffer in self._buffers_of(theta).items()}
        return torch.stack([_for_all(one, candidate(arm), buffers) for arm in range(rates.shape[1])], dim=1)

    def sample_bytes(self, theta: Tensor, x: Tensor) -> int:
        """See `Model.sample_bytes`: what all layers together return for one sample, so rather too much."""
        numbers = x[:1].numel()

        def count(layer: nn.Module, entered: Any, left: Any) -> None:
            nonlocal numbers
            numbers += left.numel() if isinstance(left, Tensor) else 0

        layers = [layer for layer in self.evaluated.modules() if not list(layer.children())]
        hooks = [layer.register_forward_hook(count) for layer in layers]
        try:
            self.evaluated(torch.empty_like(x[:1], device="meta", dtype=next(self.evaluated.parameters()).dtype))
        finally:
            for hook in hooks:
                hook.remove()
        return len(theta) * numbers * theta.element_size()


def _trained(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad)


def _kept(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Buffers and frozen parameters, which belong to a copy and are not trained."""
    yield from module.named_buffers()
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter.detach()


def _for_all(one: Callable[[Tensor, Buffers], Any], theta: Tensor, buffers: Buffers) -> Any:
    """`one(row, buffers)` of every copy, vectorised."""
    try:
        return vmap(one)(theta, buffers)
    except RuntimeError as error:
        if "randomness" in str(error):  # vmap refuses every operation that draws
            raise UnsupportedError(_RANDOM.format("The network")) from None
        if "vmap: It looks like you're" in str(error):  # how it refuses `.item()` and an `if` on what a tensor holds
            raise UnsupportedError(
                "The network looks at the numbers that it computes, by .item(), float() or an `if`, which cannot be "
                "vectorised over runs; use torch.where instead."
            ) from error
        raise


_RANDOM = (
    "{} draws random numbers while it trains, which would depend on the runs beside it and could not be resumed; "
    "take dropout and the like out of a network that a study trains."
)


def _refuse(module: nn.Module) -> None:
    """Refuse layers that are known not to work, before anything is trained; `_for_all` finds other random numbers."""
    for name, layer in module.named_modules():
        where = f"The layer {name!r} of the network, {type(layer).__name__},"
        if layer.training and _drops(layer):
            raise UnsupportedError(_RANDOM.format(where))
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.momentum is None:
            raise UnsupportedError(
                f"{where} has momentum=None, an average over all batches that cannot be vectorised over runs; "
                "give it a momentum."
            )


def _drops(layer: nn.Module) -> bool:
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p > 0
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return isinstance(layer, nn.RReLU)

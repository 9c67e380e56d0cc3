"""R multilayer perceptrons as batched matrix products, with the backward pass written out.

A layer's parameters are one block `(R, rows, cols)` of θ: a row for each input, then the biases as the row of an input
that is always 1, then zeros up to a multiple of four rows, without which loads are narrow and matrix units stay idle.
So biases cost no kernels of their own. Writing the backward pass by hand lets the weight gradient's matrix product
land in the velocity (or in θ itself) without ever existing on its own: with a minibatch of 64 an update is bound by
memory traffic, and that saves one of seven passes over the parameters with momentum and two of five without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from hotswap.ensemble.model import Gradient, Group, Model, classification_loss
from hotswap.networks import Init, Unit, multilayer_perceptron

__all__ = ["Mlp"]

NARROW = 4  # numbers that one load fetches at once; matrices are padded to multiples of it
LINE = 32  # numbers of a cache line; rows of θ begin on one


def _padded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


class Forward(NamedTuple):
    """What a forward pass leaves."""

    first: Tensor
    """`(R, B, H)` what enters the first layer's units, or the scores where there is only one layer."""
    inputs: list[Tensor]
    """What enters each layer, the constant input included: `(R, B, rows)`."""
    scores: Tensor
    """`(R, B, cols)` the logits, then zeros for classes that do not exist."""


class Mlp(Model):
    """Multilayer perceptrons with `sizes` from the inputs to the classes."""

    def __init__(self, sizes: Sequence[int], unit: Unit = "sigmoid", init: Init = "glorot") -> None:
        self.sizes, self.unit, self.init = tuple(sizes), unit, init
        self.classes = self.sizes[-1]
        rows = [_padded(size + 1, NARROW) for size in self.sizes[:-1]]
        cols = [*self.sizes[1:-1], _padded(self.classes, NARROW)]
        self.shapes = list(zip(rows, cols, strict=True))
        self.used = sum(row * col for row, col in self.shapes)
        self.size = _padded(self.used, LINE)

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """See `Model.initial`."""
        theta = torch.zeros(len(seeds), self.size)
        for row, seed in enumerate(seeds):
            theta[row] = self.flatten(multilayer_perceptron(self.sizes, seed=seed, unit=self.unit, init=self.init))
        return theta

    def flatten(self, network: torch.nn.Module) -> Tensor:
        """A network's parameters as a row of θ `(P,)`."""
        layers = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
        row = torch.zeros(1, self.size, dtype=layers[0].weight.dtype)
        for block, layer in zip(self._blocks(row), layers, strict=True):
            block[0, : layer.in_features, : layer.out_features] = layer.weight.detach().T
            block[0, layer.in_features, : layer.out_features] = layer.bias.detach()
        return row[0]

    def prepare(self, x: Tensor) -> Tensor:
        """See `Model.prepare`: the constant input, then zeros."""
        return pad(pad(x, (0, 1), value=1.0), (0, self.shapes[0][0] - x.shape[1] - 1))

    def _blocks(self, flat: Tensor) -> list[Tensor]:
        """Views into `(R, P)`, one per layer."""
        blocks, at = [], 0
        for rows, cols in self.shapes:
            blocks.append(flat[:, at : at + rows * cols].view(len(flat), rows, cols))
            at += rows * cols
        return blocks

    def _activate(self, z: Tensor, rows: int) -> Tensor:
        """What enters the next layer: the units' outputs, then the constant input and zeros."""
        function: Any = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": _relu}[self.unit]
        wide = z.new_empty(*z.shape[:-1], rows)
        function(z, out=wide[..., : z.shape[-1]])
        wide[..., z.shape[-1]] = 1.0
        wide[..., z.shape[-1] + 1 :] = 0.0
        return wide

    def _through_unit(self, slope: Tensor, output: Tensor) -> Tensor:
        """The derivative with respect to a unit's input, from the one with respect to its output."""
        result: Tensor
        if self.unit == "sigmoid":
            result = torch.ops.aten.sigmoid_backward(slope, output)
        elif self.unit == "tanh":
            result = torch.ops.aten.tanh_backward(slope, output)
        else:
            result = torch.ops.aten.threshold_backward(slope, output, 0)
        return result

    def _forward(self, blocks: list[Tensor], x: Tensor) -> Forward:
        inputs = [x.expand(len(blocks[0]), *x.shape)]
        first = z = torch.bmm(inputs[0], blocks[0])
        for block in blocks[1:]:
            inputs.append(self._activate(z, block.shape[1]))
            z = torch.bmm(inputs[-1], block)
        return Forward(first, inputs, z)

    def _down(self, slope: Tensor, number: int, blocks: list[Tensor], forward: Forward) -> Tensor:
        """From the slope with respect to what left layer `number` to the one for the layer below it."""
        units = self.sizes[number]
        below = torch.bmm(slope, blocks[number][:, :units].transpose(1, 2))
        return self._through_unit(below, forward.inputs[number][..., :units])

    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """See `Model.scores`."""
        return self._forward(self._blocks(theta), x).scores[..., : self.classes]

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor) -> Gradient:
        """See `Model.gradient`."""
        blocks, direction = self._blocks(theta), torch.empty_like(theta)
        direction[:, self.used :].zero_()
        slots = self._blocks(direction)
        forward = self._forward(blocks, x)
        loss, slope = self._loss_and_slope(forward.scores, y)
        for number in reversed(range(len(blocks))):
            torch.bmm(forward.inputs[number].transpose(1, 2), slope, out=slots[number])
            if number:
                slope = self._down(slope, number, blocks, forward)
        return Gradient(loss, direction, forward.first)

    def descend(
        self, theta: Tensor, velocity: Tensor, rates: Tensor, groups: Sequence[Group], x: Tensor, y: Tensor
    ) -> None:
        """See `Model.descend`. The slopes carry the factor −α from the start, so products add −αg where it belongs."""
        blocks, moving = self._blocks(theta), self._blocks(velocity)
        forward = self._forward(blocks, x)
        _, slope = self._loss_and_slope(forward.scores, y)
        slope = slope * -rates[:, None, None]
        for number in reversed(range(len(blocks))):
            entered, here = forward.inputs[number].transpose(1, 2), slope
            if number:  # before this layer's weights change
                slope = self._down(slope, number, blocks, forward)
            for rows, momentum in groups:
                target = moving[number] if momentum else blocks[number]
                target[rows].baddbmm_(entered[rows], here[rows], beta=momentum or 1.0)
        theta[: len(velocity)].add_(velocity)

    def trials(self, theta: Tensor, gradient: Gradient, rates: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """See `Model.trials`.

        No candidate weights are built: a layer's output at `W − αG` is `hW − α hG`, so the first layer needs one
        product more for all arms together, and in reduced precision every arm sees the same rounding of W.
        """
        runs, arms = rates.shape
        blocks, slopes = self._blocks(theta), self._blocks(gradient.direction)
        rate = rates.to(theta.dtype).view(runs, arms, 1, 1)
        shift = torch.bmm(x.expand(runs, *x.shape), slopes[0])
        z = torch.addcmul(gradient.memo[:, None], rate, shift[:, None], value=-1)
        for block, slope in zip(blocks[1:], slopes[1:], strict=True):
            h = self._activate(z, block.shape[1]).view(runs, arms * len(x), -1)
            stay, shift = (torch.bmm(h, part).view(runs, arms, len(x), -1) for part in (block, slope))
            z = torch.addcmul(stay, rate, shift, value=-1)
        return classification_loss(z[..., : self.classes], y)

    def _loss_and_slope(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The mean negative log likelihood `(R,)` and its derivative with respect to the scores, `(R, B, cols)`."""
        likelihood = torch.log_softmax(scores[..., : self.classes], dim=-1)
        labels = y.view(1, -1, 1).expand(len(scores), -1, 1)
        loss = -likelihood.gather(-1, labels).squeeze(-1).mean(-1)
        slope = torch.zeros_like(scores)
        slope[..., : self.classes] = likelihood.exp_().mul_(1 / len(y))
        slope.scatter_add_(-1, labels, slope.new_full((), -1 / len(y)).expand(labels.shape))
        return loss, slope


def _relu(z: Tensor, out: Tensor) -> Tensor:
    return torch.clamp(z, min=0, out=out)

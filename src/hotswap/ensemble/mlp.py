"""R multilayer perceptrons as batched matrix products, with the backward pass written out.

A layer's parameters are one block `(R, outputs, columns)` of θ: a column for each input, then the biases as that of an
input that is always 1, then zeros up to a multiple of four columns, without which loads are narrow and matrix units
stay idle. So biases cost no kernels of their own. Writing the backward pass by hand lets the weight gradient's matrix
product land in the velocity (or in θ itself) without ever existing on its own: with a minibatch of 64 an update is
bound by memory traffic, and that saves one of seven passes over the parameters with momentum and two of five without.

A matrix product is fastest where what it sums over lies side by side in both factors, and slow where it does in
neither. Activations lie feature by sample, `(R, H, B)`, in the first hidden layer and sample by feature in the others:
so each large product of a step finds at least one factor as it wants it, and the first layer's, the largest, both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from hotswap.ensemble.kernels import fused, losses_and_slopes, losses_of_moves
from hotswap.ensemble.model import Along, Gradient, Model, MomentumGroup
from hotswap.networks import Activation, Init, multilayer_perceptron

__all__ = ["Mlp"]

NARROW = 4  # numbers that one load fetches at once; matrices are padded to multiples of it
LINE = 32  # numbers of a cache line; rows of θ begin on one


def _padded(count: int, unit: int) -> int:
    return -(-count // unit) * unit


InputMemory = dict[object, Tensor]
"""Memory for what enters a layer, used again at every step: the constant input and the zeros are in it already."""


class Forward(NamedTuple):
    """The result of a forward pass. Shapes are logical; the order in memory may differ."""

    first: Tensor
    """`(R, B, H)` the inputs of the first layer's units, or the scores where there is only one layer."""
    inputs: list[Tensor]
    """The inputs of each layer, the constant input included: `(R, B, columns)`."""
    scores: Tensor
    """`(R, B, outputs)` the logits, then zeros for classes that do not exist."""


class Mlp(Model):
    """Multilayer perceptrons with `sizes` from the inputs to the classes."""

    def __init__(self, sizes: Sequence[int], unit: Activation = "sigmoid", init: Init = "glorot") -> None:
        self.sizes, self.unit, self.init = tuple(sizes), unit, init
        self.classes = self.sizes[-1]
        outputs = [*self.sizes[1:-1], _padded(self.classes, NARROW)]
        columns = [_padded(size + 1, NARROW) for size in self.sizes[:-1]]
        self.shapes = list(zip(outputs, columns, strict=True))
        self.used = sum(rows * cols for rows, cols in self.shapes)
        self.size = _padded(self.used, LINE)
        self._workspace: InputMemory = {}

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
            block[0, : layer.out_features, : layer.in_features] = layer.weight.detach()
            block[0, : layer.out_features, layer.in_features] = layer.bias.detach()
        return row[0]

    def prepare(self, x: Tensor) -> Tensor:
        """See `Model.prepare`: the constant input, then zeros."""
        return pad(pad(x, (0, 1), value=1.0), (0, self.shapes[0][1] - x.shape[1] - 1))

    def _blocks(self, flat: Tensor) -> list[Tensor]:
        """Views into `(R, P)`, one per layer."""
        blocks, at = [], 0
        for rows, cols in self.shapes:
            blocks.append(flat[:, at : at + rows * cols].view(len(flat), rows, cols))
            at += rows * cols
        return blocks

    def scores(self, theta: Tensor, x: Tensor) -> Tensor:
        """See `Model.scores`."""
        return self._forward(self._blocks(theta), x, workspace={}).scores[..., : self.classes]

    def gradient(self, theta: Tensor, x: Tensor, y: Tensor) -> Gradient:
        """See `Model.gradient`."""
        blocks, direction = self._blocks(theta), torch.empty_like(theta)
        direction[:, self.used :].zero_()
        slots = self._blocks(direction)
        forward = self._forward(blocks, x, self._workspace)
        loss, slope = losses_and_slopes(forward.scores, y, self.classes)
        for number in reversed(range(len(blocks))):
            torch.bmm(slope.transpose(1, 2), self._summed(forward, number), out=slots[number])
            if number:
                slope = self._down(slope, number, blocks, forward)
        return Gradient(loss, direction, forward.first)

    def descend(
        self, theta: Tensor, velocity: Tensor, rates: Tensor, groups: Sequence[MomentumGroup], x: Tensor, y: Tensor
    ) -> None:
        """See `Model.descend`. The slopes carry the factor −α from the start, so products add −αg where it belongs."""
        blocks, moving = self._blocks(theta), self._blocks(velocity)
        forward = self._forward(blocks, x, self._workspace)
        _, slope = losses_and_slopes(forward.scores, y, self.classes)
        slope = slope * -rates[:, None, None]
        for number in reversed(range(len(blocks))):
            entered, here = self._summed(forward, number), slope.transpose(1, 2)
            if number:  # before this layer's weights change
                slope = self._down(slope, number, blocks, forward)
            for rows, momentum in groups:
                target = moving[number] if momentum else blocks[number]
                target[rows].baddbmm_(here[rows], entered[rows], beta=momentum or 1.0)
        theta[: len(velocity)].add_(velocity)

    def before_trials(self, gradient: Gradient, x: Tensor) -> Gradient:
        """See `Model.before_trials`: what enters the first units at θ, and by how much the gradient moves that."""
        shift = self._first(self._blocks(gradient.direction)[0], x)
        return Gradient(gradient.loss, gradient.direction, (gradient.memo, shift))

    def elsewhere(self, theta: Tensor, gradient: Gradient, x: Tensor) -> Gradient:
        """See `Model.elsewhere`."""
        stay, shift = (self._first(self._blocks(each)[0], x) for each in (theta, gradient.direction))
        return Gradient(gradient.loss, gradient.direction, (stay, shift))

    def beside(self, direction: Tensor, x: Tensor) -> Tensor:
        """See `Model.beside`: by how much the direction moves what enters the first units."""
        return self._first(self._blocks(direction)[0], x)

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
        """See `Model.trials`.

        No candidate weights are built: a layer's output at `W − αG` is `hW − α hG`, so the first layer needs one
        product more for all arms together, and in reduced precision every arm sees the same rounding of W.
        """
        runs, arms = rates.shape
        directions = [theta, gradient.direction, *([] if along is None else [along.direction])]
        memos = [*gradient.memo, *([] if along is None else [along.memo])]
        outputs = [_rows_of(memo.transpose(1, 2), rows).transpose(1, 2)[:, None] for memo in memos]
        layers = [self._blocks(each) for each in directions]

        def over_arms(values: Tensor) -> Tensor:
            return values.to(theta.dtype).view(runs, arms, 1, 1)

        def stay() -> Tensor:
            """The outputs without the step along the gradient."""
            here = outputs[0] if shrink is None else outputs[0] * over_arms(1 - shrink)
            return here if along is None else torch.addcmul(here, over_arms(along.rates), outputs[2], value=-1)

        rate = over_arms(rates)
        for number in range(1, len(self.shapes)):
            h = self._enter_moved(stay(), rate, outputs[1], number)
            outputs = [
                torch.bmm(h, _rows_of(layer[number], rows).transpose(1, 2)).view(runs, arms, len(x), -1)
                for layer in layers
            ]
        return losses_of_moves(stay(), rate, outputs[1], y, self.classes)

    def _forward(self, blocks: list[Tensor], x: Tensor, workspace: InputMemory) -> Forward:
        inputs = [x.expand(len(blocks[0]), *x.shape)]
        first = z = self._first(blocks[0], x)
        for number in range(1, len(blocks)):
            inputs.append(self._enter(z, number, workspace))
            z = torch.bmm(inputs[-1], blocks[number].transpose(1, 2))
        return Forward(first, inputs, z)

    @staticmethod
    def _first(block: Tensor, x: Tensor) -> Tensor:
        """The first layer's product, `(R, B, H)` as seen and feature by sample in memory."""
        return torch.bmm(block, x.t().expand(len(block), *x.t().shape)).transpose(1, 2)

    def _enter(self, z: Tensor, number: int, workspace: InputMemory) -> Tensor:
        """The inputs of layer `number`: outputs of units for the inputs `z` `(R, B, H)`, the constant input, zeros.

        `(R, samples, columns)`; feature by sample in memory if `z` is.
        """
        memory, seen = self._memory(z.shape[:-1], number, z, workspace)
        UNITS[self.unit](z, out=seen)
        return self._flattened(memory, number)

    def _enter_moved(self, stay: Tensor, rate: Tensor, shift: Tensor, number: int) -> Tensor:
        """The same for what enters the units of trials, `stay − rate · shift`, all `(R, J, B, H)` or broadcast to it.

        The samples of all arms are in one row. On a GPU it is one kernel that makes memory of its own: one that writes
        into a part of other memory would write everything twice.
        """
        if not stay.is_cuda:
            memory, seen = self._memory((*rate.shape[:2], stay.shape[2]), number, stay, self._workspace)
            UNITS[self.unit](torch.addcmul(stay, rate, shift, value=-1), out=seen)
            return self._flattened(memory, number)
        features = 1 if number == 1 else 3
        stay, rate, shift = (each.movedim(-1, features) for each in (stay, rate, shift))  # as they lie in memory
        entered = fused(moved_inputs, stay)(stay, rate, shift, self.shapes[number][1], features, self.unit)
        return self._flattened(entered, number)

    def _memory(self, shape: Sequence[int], number: int, like: Tensor, workspace: InputMemory) -> tuple[Tensor, Tensor]:
        """Memory for what enters layer `number`, and the part of it that its units fill, as `(*shape, units)`."""
        runs, samples = shape[0], tuple(shape[1:])
        units, columns, turned = self.sizes[number], self.shapes[number][1], number == 1
        key = (runs, samples, number, like.dtype, like.device)
        if key not in workspace:
            workspace[key] = like.new_zeros((runs, columns, *samples) if turned else (runs, *samples, columns))
            workspace[key].select(1 if turned else -1, units).fill_(1)
        memory = workspace[key]
        seen = memory.movedim(1, -1) if turned else memory
        return memory, seen[..., :units]

    @staticmethod
    def _flattened(memory: Tensor, number: int) -> Tensor:
        return memory.flatten(2).transpose(1, 2) if number == 1 else memory.flatten(1, -2)

    @staticmethod
    def _summed(forward: Forward, number: int) -> Tensor:
        """The inputs of a layer, for a product that sums over samples: the shared minibatch is worth a copy."""
        entered = forward.inputs[number]
        if number:
            return entered
        turned = entered[0].t().contiguous()
        return turned.expand(len(entered), *turned.shape).transpose(1, 2)

    def _down(self, slope: Tensor, number: int, blocks: list[Tensor], forward: Forward) -> Tensor:
        """From the slope with respect to what left layer `number` to the one for the layer below it."""
        units = self.sizes[number]
        block = blocks[number][..., :units]
        if number == 1:
            below = torch.bmm(block.transpose(1, 2), slope.transpose(1, 2)).transpose(1, 2)
        else:
            below = torch.bmm(slope, block)
        return SLOPES[self.unit](below, forward.inputs[number][..., :units])


def _rows_of(tensor: Tensor, rows: Tensor | None) -> Tensor:
    return tensor if rows is None else tensor[rows]


def moved_inputs(stay: Tensor, rate: Tensor, shift: Tensor, columns: int, features: int, unit: Activation) -> Tensor:
    """The inputs of a layer at `stay − rate · shift`: outputs of units, the constant input, and zeros.

    The features of a sample, as many as there are columns then, lie along the axis `features`.
    """
    outputs = OUTPUTS[unit](torch.addcmul(stay, rate, shift, value=-1))
    shape = list(outputs.shape)
    shape[features] = 1
    one = outputs.new_ones(shape)
    shape[features] = columns - outputs.shape[features] - 1
    return torch.cat([outputs, one, outputs.new_zeros(shape)], dim=features)


def _relu(z: Tensor, out: Tensor) -> Tensor:
    return torch.clamp(z, min=0, out=out)


def _below_relu(slope: Tensor, output: Tensor) -> Tensor:
    result: Tensor = torch.ops.aten.threshold_backward(slope, output, 0)
    return result


UNITS: dict[Activation, Callable[..., Tensor]] = {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": _relu}
SLOPES: dict[
    Activation, Callable[[Tensor, Tensor], Tensor]
] = {  # by a unit's input, from by its output and that output
    "sigmoid": torch.ops.aten.sigmoid_backward,
    "tanh": torch.ops.aten.tanh_backward,
    "relu": _below_relu,
}
OUTPUTS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
}

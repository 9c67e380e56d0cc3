"""One closure of several minibatches, with the memory of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from hotswap.errors import ClosureError, SettingError
from hotswap.optim.closures import WithBackward, backward_of, scalar

__all__ = ["Accumulated", "accumulate"]


class Accumulated(WithBackward):
    """A closure over several minibatches that needs the memory of one; see `accumulate`."""

    def __init__(
        self, loss: Callable[[Any], Tensor], batches: Sequence[Any], weights: Sequence[float], exchanging: list[Any]
    ) -> None:
        self.loss, self.batches, self.weights, self.exchanging = loss, batches, weights, exchanging

    def __call__(self) -> Tensor:
        """The loss, forward only, for a trial."""
        return self._sum(lambda _: None)

    def backward(self, factor: float = 1.0) -> Tensor:
        """The loss, with the backward of each minibatch before the forward of the next."""
        return self._sum(lambda part: backward_of(part, factor, "accumulate(): the loss of a minibatch"))

    def _sum(self, after_each: Callable[[Tensor], None]) -> Tensor:
        total: Tensor | None = None
        for number, (batch, weight) in enumerate(zip(self.batches, self.weights, strict=True), start=1):
            with self._without_exchange(last=number == len(self.batches)):
                loss: object = self.loss(batch)
                if isinstance(loss, tuple):
                    raise ClosureError(
                        "accumulate(): the loss of a minibatch came as a tuple; return the loss alone, and keep what "
                        "else there is yourself, where hotswap.in_trial() is false."
                    )
                part = scalar(loss, "The loss of a minibatch") * weight
                after_each(part)
            total = part.detach() if total is None else total + part.detach()
        assert total is not None  # there is at least one
        return total

    @contextmanager
    def _without_exchange(self, *, last: bool) -> Iterator[None]:
        """Processes exchange gradients after the last minibatch only."""
        with ExitStack() as until_then:
            for part in self.exchanging if torch.is_grad_enabled() and not last else ():
                if isinstance(part, FSDPModule):
                    part.set_requires_gradient_sync(False, recurse=False)
                    until_then.callback(part.set_requires_gradient_sync, True, recurse=False)
                else:
                    until_then.enter_context(part.no_sync())
            yield


def accumulate(
    loss: Callable[[Any], Tensor], batches: Iterable[Any], *, weights: Sequence[float] | None = None, module: Any = None
) -> Accumulated:
    """One closure of several minibatches, for `optimizer.step`, with the memory of one.

        optimizer.step(hotswap.accumulate(lambda batch: loss_fn(model(batch[0]), batch[1]), batches))

    Args:
        loss: the mean loss of one minibatch, forward only.
        batches: the minibatches; gradient pass and trials go over the same ones.
        weights: what each counts; by default its share of all samples, read from the first tensor in it.
        module: the model, where processes share it by DistributedDataParallel or `fully_shard`: gradients are then
            exchanged once, after the last minibatch, instead of after each. FSDP keeps whole gradients until then.
    """
    batches = list(batches)
    if not batches:
        raise ClosureError("accumulate(): there are no minibatches.")
    if weights is None:
        sizes = [_samples(batch) for batch in batches]
        weights = [size / sum(sizes) for size in sizes]
    if len(weights) != len(batches):
        raise ClosureError(f"accumulate(weights=...): {len(weights)} weights for {len(batches)} minibatches.")
    return Accumulated(loss, batches, weights, [] if module is None else _exchanging(module))


def _exchanging(module: Any) -> list[Any]:
    """The parts of a model that exchange gradients with other processes, which may be the model itself."""
    if hasattr(module, "no_sync"):
        return [module]
    inside = module.modules() if isinstance(module, nn.Module) else ()
    parts = [part for part in inside if isinstance(part, (FSDPModule, DistributedDataParallel))]
    if not parts:
        raise SettingError(
            f"accumulate(module=...): a {type(module).__name__} exchanges no gradients; leave module out, or pass the "
            "model that DistributedDataParallel or fully_shard has made."
        )
    return parts


def _samples(batch: Any) -> int:
    """The number of samples of a minibatch: the length of the first tensor in it."""
    for leaf in tree_leaves(dict(batch) if isinstance(batch, Mapping) else batch):
        if isinstance(leaf, Tensor) and leaf.dim():
            return len(leaf)
    raise ClosureError(
        f"accumulate(): a minibatch of type {type(batch).__name__} holds no tensor that tells how many samples it has; "
        "say what each minibatch counts with weights=."
    )

"""The gradient pass: one forward and backward at the start point, over one minibatch or several small ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils._pytree import tree_leaves, tree_map_only

from hotswap.errors import ClosureError, SettingError, UnsupportedError
from hotswap.optim.leftovers import Watch, refuse_addition
from hotswap.optim.moves.base import NONE
from hotswap.optim.moves.masters import ROUNDED
from hotswap.optim.trials import Closure, scalar, unpack

__all__ = ["Accumulated", "Clipping", "GradientPass", "LossScale", "WithBackward", "accumulate", "run_gradient_pass"]


class GradientPass(NamedTuple):
    """What the one forward and backward at the start point gave."""

    loss: Tensor
    """The loss, detached."""
    aux: object
    """What came beside it, detached where it is a tensor."""
    by_closure: bool
    """Whether the closure called `backward()` itself."""
    overflow: bool = False
    """Whether the loss scale was too large for the gradient."""
    exact: Mapping[int, Tensor] = NONE
    """Gradients without the loss scale that `.grad` would round, by the parameter's id."""


def run_gradient_pass(
    closure: Closure, parameters: list[Tensor], scale: LossScale | None = None, others: Sequence[Tensor] = ()
) -> GradientPass:
    """Clear the gradients, evaluate the closure, and run its backward unless it did so itself.

    `others` are parameters whose gradients the closure must clear, should it run a backward: see `Leftovers`.
    """
    factor = 1.0 if scale is None else scale.value
    with torch.enable_grad():
        if isinstance(closure, WithBackward):
            _clear(parameters)
            loss, aux, by_closure = closure.backward(factor), None, False
        else:
            loss, aux, by_closure = _evaluate(closure, parameters, others)
            if not by_closure:
                _backward(loss, factor, "The closure's loss")
    if all(parameter.grad is None for parameter in parameters):
        raise ClosureError(
            "The closure's loss does not depend on this optimizer's parameters: no gradient reached any of them; "
            "return the loss of the model whose parameters the optimizer was given."
        )
    if scale is not None and by_closure:
        raise ClosureError(
            "With loss_scale the optimizer has to run the backward pass, but the closure calls backward() itself; "
            "return the loss without calling it."
        )
    if scale is None:
        return GradientPass(loss.detach(), _detached(aux), by_closure)
    exact = scale.take_off(parameters)
    gradients = [exact.get(id(p), p.grad) for p in parameters if p.grad is not None]
    return GradientPass(loss.detach(), _detached(aux), by_closure, not scale.fits(gradients), exact)


def _evaluate(closure: Closure, parameters: list[Tensor], others: Sequence[Tensor]) -> tuple[Tensor, object, bool]:
    """The closure's loss and what came beside it, and whether the closure put gradients in `.grad`."""
    watches, watched = [Watch(parameter) for parameter in others], set(map(id, others))
    rest = [parameter for parameter in parameters if id(parameter) not in watched] if watched else parameters
    _clear(rest)
    try:
        loss, aux = unpack(closure())
    finally:
        for watch in watches:
            watch.end()
    by_closure = any(parameter.grad is not None for parameter in rest) or any(watch.saw_backward for watch in watches)
    if not by_closure:
        _clear(others)
    elif any(watch.kept for watch in watches):
        refuse_addition()
    return loss, aux, by_closure


def _clear(parameters: Iterable[Tensor]) -> None:
    for parameter in parameters:
        parameter.grad = None


class LossScale:
    """Multiplies the loss before the backward pass, so that small gradients survive in float16, and divides them after.

    Halved whenever a gradient overflows, doubled after `patience` steps without.
    """

    def __init__(self, value: float, patience: int = 2000) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 1):
            raise SettingError(
                f"HotSwap(loss_scale={value!r}): loss_scale must be finite and at least 1, such as 65536."
            )
        self.value, self.patience, self.good = float(value), patience, 0

    def take_off(self, parameters: list[Tensor]) -> dict[int, Tensor]:
        """Divide; gradients in bfloat16 or float16 also in float32, by the parameter's id.

        What the scale has saved from becoming zero in the backward pass would become it here.
        """
        exact = {}
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.dtype in ROUNDED:
                exact[id(parameter)] = gradient = parameter.grad.float().mul_(1 / self.value)
                parameter.grad = gradient.to(parameter.dtype)
            else:
                parameter.grad.mul_(1 / self.value)
        return exact

    def fits(self, gradients: list[Tensor]) -> bool:
        """Whether all of them are finite; if not, the scale shrinks, and if so often enough, it grows."""
        values = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
        norms = [norm.float() for norm in torch._foreach_norm([v for v in values if v.numel()], ord=torch.inf)]
        # At a scale of 1 there is nothing left to blame: whoever checks the gradient will say so.
        if self.value == 1.0 or not norms or bool(torch.stack(norms).isfinite().all()):
            self.good += 1
            if self.good >= self.patience:
                self.value, self.good = 2 * self.value, 0
            return True
        self.value, self.good = max(1.0, self.value / 2), 0
        return False


class Clipping:
    """The direction is shortened, once, before the search walks along it."""

    def __init__(self, norm: float | None, value: float | None) -> None:
        for name, limit in (("clip_norm", norm), ("clip_value", value)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise SettingError(f"HotSwap({name}={limit!r}): {name} must be positive and finite, or None.")
        if norm is not None and value is not None:
            raise SettingError("HotSwap(clip_norm=..., clip_value=...): choose one of them.")
        self.norm, self.value = norm, value

    @property
    def active(self) -> bool:
        """Whether anything is clipped."""
        return self.norm is not None or self.value is not None

    def __call__(self, parameters: list[Tensor], exact: Mapping[int, Tensor] = NONE) -> None:
        """Clip the gradients in `.grad`, and in `exact` those that it would round."""
        if not self.active:
            return
        if any(p.grad is not None and p.grad.layout is not torch.strided for p in parameters):
            raise UnsupportedError(
                "A sparse gradient cannot be clipped together with others; leave clipping out, or use dense gradients."
            )
        holders = [_holder(exact[id(p)]) if id(p) in exact else p for p in parameters] if exact else parameters
        if self.norm is not None:
            clip_grad_norm_(holders, self.norm)
        elif self.value is not None:
            clip_grad_value_(holders, self.value)
        for parameter in parameters if exact else ():
            if id(parameter) in exact:
                parameter.grad = exact[id(parameter)].to(parameter.dtype)


def _holder(gradient: Tensor) -> Tensor:
    """Something that has it in `.grad`."""
    holder = gradient.detach()
    holder.grad = gradient
    return holder


class WithBackward(ABC):
    """A closure that knows two ways: the loss alone, for trials, and the loss with its backward, for the gradient."""

    @abstractmethod
    def __call__(self) -> Tensor:
        """The loss, forward only."""

    @abstractmethod
    def backward(self, factor: float = 1.0) -> Tensor:
        """The loss, with the gradient of `factor` times it in `.grad`."""


class Accumulated(WithBackward):
    """A closure over several minibatches that needs the memory of one; see `accumulate`."""

    def __init__(
        self, loss: Callable[[Any], Tensor], batches: Sequence[Any], weights: Sequence[float], exchanging: list[Any]
    ) -> None:
        self.loss, self.batches, self.weights, self.exchanging = loss, batches, weights, exchanging

    def __call__(self) -> Tensor:
        """The loss, forward only: what a trial asks for."""
        return self._sum(lambda _: None)

    def backward(self, factor: float = 1.0) -> Tensor:
        """The loss, with the backward of each minibatch before the forward of the next."""

        return self._sum(lambda part: _backward(part, factor, "accumulate(): the loss of a minibatch"))

    def _sum(self, each: Callable[[Tensor], None]) -> Tensor:
        total: Tensor | None = None
        for number, (batch, weight) in enumerate(zip(self.batches, self.weights, strict=True), start=1):
            with self._quiet(last=number == len(self.batches)):
                loss: object = self.loss(batch)
                if isinstance(loss, tuple):
                    raise ClosureError(
                        "accumulate(): the loss of a minibatch came as a tuple; return the loss alone, and keep what "
                        "else there is yourself, where hotswap.in_trial() is false."
                    )
                part = scalar(loss, "The loss of a minibatch") * weight
                each(part)
            total = part.detach() if total is None else total + part.detach()
        assert total is not None  # there is at least one
        return total

    @contextmanager
    def _quiet(self, *, last: bool) -> Iterator[None]:
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
    """How many samples a minibatch has: the length of the first tensor in it."""
    for leaf in tree_leaves(dict(batch) if isinstance(batch, Mapping) else batch):
        if isinstance(leaf, Tensor) and leaf.dim():
            return len(leaf)
    raise ClosureError(
        f"accumulate(): a minibatch of type {type(batch).__name__} holds no tensor that tells how many samples it has; "
        "say what each minibatch counts with weights=."
    )


def _backward(loss: Tensor, factor: float, name: str) -> None:
    if not loss.requires_grad:
        raise ClosureError(
            "The closure's loss has no graph, so it has no gradient; compute it from the model's output with "
            "gradients enabled, do not detach it or call .item() on it, and leave some parameter that requires_grad."
        )
    try:
        torch.autograd.backward(loss if factor == 1.0 else loss * factor)
    except RuntimeError as error:
        if "second time" not in str(error):
            raise
        raise ClosureError(
            f"{name} has had its backward already; compute it inside of the closure and return it without calling "
            "backward(), which the optimizer does."
        ) from None


def _detached(aux: object) -> object:
    """`aux` without the graph that its tensors would keep alive; what holds them is of the same type."""
    return aux if aux is None else tree_map_only(Tensor, Tensor.detach, aux)

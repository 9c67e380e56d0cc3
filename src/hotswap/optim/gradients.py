"""Gradients before a search walks along them: clipped, divided by a loss scale, finite, and of this step."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from hotswap.errors import SettingError, UnsupportedError
from hotswap.optim.processes import local

__all__ = ["Clipping", "FiniteCheck", "LossScale", "OldGradients", "values_of"]


def values_of(gradient: Tensor) -> Tensor:
    """The numbers of a gradient in this process; those of a sparse one without its zeros."""
    return gradient.coalesce().values() if gradient.is_sparse else local(gradient)


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

    def divide(self, parameters: list[Tensor]) -> bool:
        """Divide all gradients by the scale. Whether all are finite; if not, the scale shrinks, and else it may grow.

        At a scale of 1 this says that they are: whatever is not finite then is no fault of the scale, and is reported
        by the check of the gradients that every step has.
        """
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        for gradient in gradients:
            gradient.mul_(1 / self.value)
        whole = (gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients)
        values = [gradient for gradient in whole if gradient.numel()]
        norms = [norm.float() for norm in torch._foreach_norm(values, ord=torch.inf)] if values else []
        if self.value == 1.0 or not norms or bool(torch.stack(norms).isfinite().all()):
            self.good += 1
            if self.good >= self.patience:
                self.value, self.good = 2 * self.value, 0
            return True
        self.value, self.good = max(1.0, self.value / 2), 0
        return False


class Clipping:
    """Shortens the gradient, once, before the search walks along it: to a norm, or each number to a value."""

    def __init__(self, norm: float | None = None, value: float | None = None) -> None:
        limits: dict[str, Any] = {"clip_norm": norm, "clip_value": value}
        for name, limit in limits.items():
            if limit is not None and not (isinstance(limit, Real | Tensor) and 0 < float(limit) < math.inf):
                raise SettingError(f"HotSwap({name}={limit!r}): {name} must be positive and finite, or None.")
        if norm is not None and value is not None:
            raise SettingError("HotSwap(clip_norm=..., clip_value=...): choose one of them.")
        self.norm, self.value = norm, value
        self.active = norm is not None or value is not None

    def __call__(self, parameters: list[Tensor]) -> None:
        """Clip the gradients in `.grad`."""
        if any(p.grad is not None and p.grad.layout is not torch.strided for p in parameters):
            raise UnsupportedError(
                "A sparse gradient cannot be clipped together with others; leave clipping out, or use dense gradients."
            )
        if self.norm is not None:
            clip_grad_norm_(parameters, self.norm)
        elif self.value is not None:
            clip_grad_value_(parameters, self.value)


class FiniteCheck:
    """A check of a step's gradients: are all finite? `ask` does not wait for the device, `answer` reads it later."""

    def __init__(self) -> None:
        self._found: dict[torch.device, tuple[Tensor, Tensor]] = {}
        """A number for each GPU that is not 0 once a value was not finite, and a 1 to divide by."""
        self._asked: list[Tensor] = []
        self._rest: list[Tensor] = []
        self._norms: tuple[Tensor, ...] = ()
        self._varied = False
        """Whether gradients are known to be on several devices or of several types, or one is expanded."""

    def ask(self, gradients: list[Tensor]) -> None:
        """Start the check."""
        for found in self._asked:  # a step that failed has not read its answer
            found.zero_()
        self._asked, self._rest, self._norms = [], [], ()
        if gradients and gradients[0].is_cuda:
            if not self._varied and self._ask_gpu(gradients):
                return
            self._varied = True
            alike: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
            for gradient in gradients:
                alike.setdefault((gradient.device, gradient.dtype), []).append(gradient)
            for some in alike.values():
                if not (some[0].is_cuda and self._ask_gpu(some)):
                    self._rest += some
        else:
            self._rest = gradients
        if self._rest:
            self._norms = torch._foreach_norm(self._rest)  # a norm may overflow; `answer` looks again

    def _ask_gpu(self, gradients: list[Tensor]) -> bool:
        """One kernel for all: torch's function that divides by a loss scale, here by 1, which changes nothing.

        Returns False where that function cannot be used: on several devices or types, and for an expanded gradient,
        which has several of its numbers in the same memory.
        """
        device = gradients[0].device
        if device not in self._found:
            self._found[device] = torch.zeros(1, device=device), torch.ones(1, device=device)
        found, one = self._found[device]
        try:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, one)
        except RuntimeError:
            return False
        self._asked.append(found)
        return True

    def answer(self) -> bool:
        """Whether all gradients were finite."""
        finite = True
        for found in self._asked:
            if found.item() != 0:
                finite = False
                found.zero_()
        for norm in self._norms:
            if not math.isfinite(norm.item()):
                some = [gradient for gradient in self._rest if gradient.numel()]
                finite = finite and all(bool(high.isfinite()) for high in torch._foreach_norm(some, ord=torch.inf))
                break
        self._asked, self._rest, self._norms = [], [], ()
        return finite


class OldGradients:
    """Tells whether gradients in `.grad` are those that the latest step has used.

    The step marks the gradient of one parameter. A reference to it would keep modules from exchanging tensors.
    """

    def __init__(self) -> None:
        self._step = object()

    def mark(self, parameters: list[Tensor]) -> None:
        """At the end of a step that has used the gradients in `.grad`."""
        self._step = object()
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None:
                gradient._hotswap_used = self._step, local(gradient)._version  # type: ignore[attr-defined]
                return

    def writes(self, parameters: list[Tensor]) -> int | None:
        """The number of writes to the gradient that the latest step has used: 0 where it is as it was left.

        −1 where there are no gradients, and None where there are others.
        """
        for parameter in parameters:
            gradient = parameter.grad
            if gradient is not None and parameter.requires_grad:
                step, version = getattr(gradient, "_hotswap_used", (None, 0))
                return local(gradient)._version - version if step is self._step else None
        return -1

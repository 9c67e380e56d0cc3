"""What is done to a gradient before a search walks along it: the loss scale is divided out, and it is clipped."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from hotswap.errors import SettingError, UnsupportedError
from hotswap.optim.probing.moves.base import NO_GRADIENTS
from hotswap.optim.probing.moves.low_precision import LOW_PRECISION

__all__ = ["NO_GRADIENTS", "Clipping", "LossScale"]


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

    def divide(self, parameters: list[Tensor]) -> dict[int, Tensor]:
        """Divide all gradients by the scale. Returns those in low precision also in float32, by the parameter's id:
        what the scale has saved from underflow in the backward pass would underflow when it is divided."""
        unrounded = {}
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.dtype in LOW_PRECISION:
                unrounded[id(parameter)] = gradient = parameter.grad.float().mul_(1 / self.value)
                parameter.grad = gradient.to(parameter.dtype)
            else:
                parameter.grad.mul_(1 / self.value)
        return unrounded

    def fits(self, gradients: list[Tensor]) -> bool:
        """Whether all gradients are finite; if not, the scale shrinks, and after enough steps where they are, it grows.

        At a scale of 1 they always fit: whatever is not finite then is no fault of the scale, and is reported by the
        check of the gradients that every step has.
        """
        values = [gradient.coalesce().values() if gradient.is_sparse else gradient for gradient in gradients]
        norms = [norm.float() for norm in torch._foreach_norm([v for v in values if v.numel()], ord=torch.inf)]
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
        for name, limit in (("clip_norm", norm), ("clip_value", value)):
            if limit is not None and not (math.isfinite(limit) and limit > 0):
                raise SettingError(f"HotSwap({name}={limit!r}): {name} must be positive and finite, or None.")
        if norm is not None and value is not None:
            raise SettingError("HotSwap(clip_norm=..., clip_value=...): choose one of them.")
        self.norm, self.value = norm, value
        self.active = norm is not None or value is not None

    def __call__(self, parameters: list[Tensor], unrounded: Mapping[int, Tensor] = NO_GRADIENTS) -> None:
        """Clip the gradients in `.grad`, and with them those in float32 in `unrounded`, by the parameter's id."""
        if not self.active:
            return
        if any(p.grad is not None and p.grad.layout is not torch.strided for p in parameters):
            raise UnsupportedError(
                "A sparse gradient cannot be clipped together with others; leave clipping out, or use dense gradients."
            )
        holders = [_holder(unrounded[id(p)]) if id(p) in unrounded else p for p in parameters]
        if self.norm is not None:
            clip_grad_norm_(holders, self.norm)
        elif self.value is not None:
            clip_grad_value_(holders, self.value)
        for parameter in parameters if unrounded else ():
            if id(parameter) in unrounded:
                parameter.grad = unrounded[id(parameter)].to(parameter.dtype)


def _holder(gradient: Tensor) -> Tensor:
    """A tensor with this gradient in its `.grad`, as torch's functions for clipping expect."""
    holder = gradient.detach()
    holder.grad = gradient
    return holder

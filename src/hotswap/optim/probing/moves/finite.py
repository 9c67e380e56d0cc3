"""Whether all gradients are finite: the device is asked without waiting for it, and the answer is read later."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["FiniteCheck"]


class OnGpu(NamedTuple):
    """The check on one GPU: one kernel launch for all gradients of a type."""

    found: Tensor
    """Not 0 once a value that is not finite was found."""
    one: Tensor

    def ask(self, gradients: list[Tensor]) -> bool:
        """Start the check, with torch's function that divides by a loss scale: here by 1, which changes nothing.

        Returns False where that function cannot be used: it writes to the gradients, and an expanded one has several
        of its numbers in the same memory.
        """
        try:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, self.found, self.one)
        except RuntimeError:
            return False
        return True

    def answer(self) -> bool:
        """Whether all were finite; waits for the device, if nothing has before."""
        finite = self.found.item() == 0
        if not finite:
            self.found.zero_()
        return finite


@dataclass
class FiniteCheck:
    """The check of one step at a time: `ask`, then `answer` once."""

    _gpus: dict[torch.device, OnGpu] = field(default_factory=dict)
    _asked: list[OnGpu] = field(default_factory=list)
    _rest: list[Tensor] = field(default_factory=list)
    _norms: tuple[Tensor, ...] = ()
    _varied: bool = False
    """Whether gradients are known to be on several devices or of several types, or one is expanded."""

    def ask(self, gradients: list[Tensor]) -> None:
        """Start the check."""
        for gpu in self._asked:  # a step that failed has not read its answer
            gpu.found.zero_()
        self._asked, self._rest, self._norms = [], [], ()
        if gradients and not self._varied and gradients[0].is_cuda:
            gpu = self._gpu(gradients[0].device)
            if gpu.ask(gradients):
                self._asked = [gpu]
                return
            self._varied = True
        self._sort(gradients)

    def _sort(self, gradients: list[Tensor]) -> None:
        devices, types = ({getattr(g, name) for g in gradients} for name in ("device", "dtype"))
        for device in devices:
            here = [g for g in gradients if g.device == device] if len(devices) > 1 else gradients
            if device.type != "cuda":
                self._rest += [g for g in here if g.numel()]
                continue
            gpu = self._gpu(device)
            self._asked.append(gpu)
            for dtype in types:
                alike = [g for g in here if g.dtype is dtype] if len(types) > 1 else here
                if alike and not gpu.ask(alike):
                    self._rest += [g for g in alike if g.numel()]
        self._norms = torch._foreach_norm(self._rest) if self._rest else ()  # a norm may overflow; `answer` looks again

    def _gpu(self, device: torch.device) -> OnGpu:
        if device not in self._gpus:
            self._gpus[device] = OnGpu(torch.zeros(1, device=device), torch.ones(1, device=device))
        return self._gpus[device]

    def answer(self) -> bool:
        """Whether all gradients were finite."""
        finite = [gpu.answer() for gpu in self._asked]
        if not all(math.isfinite(norm.item()) for norm in self._norms):
            finite += [bool(norm.isfinite()) for norm in torch._foreach_norm(self._rest, ord=torch.inf)]
        self._asked, self._rest, self._norms = [], [], ()
        return all(finite)

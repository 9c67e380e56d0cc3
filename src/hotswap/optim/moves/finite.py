"""Whether all gradients are finite: asked of the device without waiting for it, answered when somebody has waited."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["FiniteCheck"]


@dataclass
class OnGpu:
    """One launch for all gradients of a type, and a copy that arrives by itself."""

    found: Tensor
    """Not 0 once a value that is not finite was found."""
    one: Tensor
    arrived: Tensor
    """The same, in memory of the host."""
    event: torch.cuda.Event

    @classmethod
    def of(cls, device: torch.device) -> OnGpu:
        """Kept from step to step."""
        found, one = torch.zeros(1, device=device), torch.ones(1, device=device)
        return cls(found, one, torch.zeros(1, pin_memory=True), torch.cuda.Event())  # type: ignore[no-untyped-call]

    def ask(self, gradients: list[Tensor]) -> None:
        """In one launch: a function that is meant to undo a loss scale, with a scale of 1, which changes nothing."""
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self.found, self.one)
        self.arrived.copy_(self.found, non_blocking=True)
        self.event.record(torch.cuda.current_stream(self.found.device))

    def answer(self) -> bool:
        """Wait, if nobody has."""
        self.event.synchronize()
        if self.arrived.item() == 0:
            return True
        self.found.zero_()
        return False


@dataclass
class FiniteCheck:
    """For one step at a time: `ask`, then `answer` once."""

    _gpus: dict[torch.device, OnGpu] = field(default_factory=dict)
    _asked: list[OnGpu] = field(default_factory=list)
    _rest: list[Tensor] = field(default_factory=list)
    _norms: tuple[Tensor, ...] = ()

    def ask(self, gradients: list[Tensor]) -> None:
        """Begin to find out."""
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for gradient in gradients:
            kinds.setdefault((gradient.device, gradient.dtype), []).append(gradient)
        self._asked, self._rest = [], []
        for (device, _), group in kinds.items():
            if device.type == "cuda":
                self._asked.append(self._gpu(device))
                self._asked[-1].ask(group)
            else:
                self._rest += [gradient for gradient in group if gradient.numel()]
        self._norms = torch._foreach_norm(self._rest) if self._rest else ()  # overflow is looked into when it happens

    def _gpu(self, device: torch.device) -> OnGpu:
        if device not in self._gpus:
            self._gpus[device] = OnGpu.of(device)
        return self._gpus[device]

    def answer(self) -> bool:
        """What came of it."""
        finite = [gpu.answer() for gpu in self._asked]
        if not all(math.isfinite(norm.item()) for norm in self._norms):
            finite += [bool(norm.isfinite()) for norm in torch._foreach_norm(self._rest, ord=torch.inf)]
        self._asked, self._rest, self._norms = [], [], ()
        return all(finite)

"""Lanes as one program: the gradient passes of all lanes but the leader's, vectorized over the lanes.

A small network leaves a GPU idle: its time is that of launching kernels, as many for one lane as for five. `torch.func`
turns a closure into one that computes the losses and gradients of several lanes with one launch for all of them, if the
closure has nothing in it that stands in the way, such as reading a number from the device. The leader takes its pass as
always, so that what a closure logs or returns beside its loss is that of one lane.

Whether this is faster is found out once, in the first steps of a race, by doing both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap
from torch.nn.utils.stateless import _reparametrize_module

from hotswap.optim.adapters import Closure
from hotswap.optim.probing.closures import as_trial, unpack
from hotswap.optim.racing.lanes import Lane

__all__ = ["Passes", "Together", "Trying"]

Named = dict[str, Tensor]
Passes = list[tuple[float, dict[Tensor, Tensor]]]
"""Of each lane, the loss and the gradients by parameter."""


class Together:
    """Runs the gradient passes of several lanes as one.

    module: the model; every parameter that lanes differ in is in it.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, lanes: Sequence[Lane], closure: Closure) -> Passes:
        """The losses and gradients of parked lanes, whose buffers advance.

        Raises:
            Exception: Whatever torch says where the closure cannot be vectorized; nothing has changed then.
        """
        named = {name: p for name, p in self.module.named_parameters() if p in lanes[0].weights}
        if len(named) < len(lanes[0].weights):
            raise RuntimeError("some parameters are not in the module")
        copies = [lane.buffers.by_buffer() for lane in lanes]
        kept = {name: b for name, b in self.module.named_buffers() if b in copies[0]}
        weights = {name: torch.stack([lane.weights[p] for lane in lanes]) for name, p in named.items()}
        buffers = {name: torch.stack([copy[b] for copy in copies]) for name, b in kept.items()}

        def loss_of(weights: Named, buffers: Named) -> tuple[Tensor, Named]:
            both = {**weights, **buffers}
            with _reparametrize_module(self.module, both, tie_weights=True):
                loss, _ = unpack(closure())
            return loss, {name: both[name] for name in buffers}

        with torch.enable_grad(), as_trial():
            gradients, (losses, after) = vmap(grad_and_value(loss_of, has_aux=True), randomness="same")(
                weights, buffers
            )
        for number, copy in enumerate(copies):
            for name, buffer in kept.items():
                copy[buffer].copy_(after[name][number])
        return [
            (loss, {p: gradients[name][number] for name, p in named.items()})
            for number, loss in enumerate(losses.tolist())
        ]


WARM_UP, TIMED = 2, 3


class Trying:
    """Finds out whether lanes together are faster than in turn: some steps of either kind, then the faster one."""

    def __init__(self, together: Together) -> None:
        self.together = together
        self.choice: Together | None = None
        """What to go on with, when it is `decided`: None for in turn."""
        self.decided = False
        self.told = ""
        """The decision, in words."""
        self._times: dict[bool, list[float]] = {False: [], True: []}
        self._began = 0.0

    def next(self) -> Together | None:
        """What to do in the step that begins now."""
        if self.decided:
            return self.choice
        torch.cuda.synchronize()
        self._began = time.perf_counter()
        return self.together if len(self._times[False]) >= WARM_UP + TIMED else None

    def done(self, *, together: bool) -> None:
        """The step has come to its end."""
        if self.decided:
            return
        torch.cuda.synchronize()
        self._times[together].append(time.perf_counter() - self._began)
        if len(self._times[True]) == WARM_UP + TIMED:
            turn, one = (min(times[WARM_UP:]) for times in self._times.values())
            why = f"as one program a step took {1e3 * one:.2g} ms, in turn {1e3 * turn:.2g}"
            self._decide(self.together if one < turn else None, why)

    def failed(self, error: Exception) -> None:
        """The closure cannot be vectorized."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        self._decide(None, f"they cannot be one program: {lines[0]}")

    def _decide(self, choice: Together | None, why: str) -> None:
        self.choice, self.decided = choice, True
        self.told = f"Lanes run {'as one program' if choice else 'in turn'} ({why})."

"""SaLSa (Kenneweg, Kenneweg, Fumagalli, Hammer 2024), a stochastic line search, from `SaLSa-Optimizer`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.bench.methods.base import METHODS, Configuration, Method, Plain
from hotswap.bench.workloads import Batch, Task

__all__ = ["SaLSa"]


@METHODS.register("salsa")
class SaLSa(Method):
    """Adam's direction, and a step size by Armijo's rule on averages, which is looked for every few steps."""

    title = "SaLSa"
    package = ("SaLSa-Optimizer", "0.1.0")
    first = Configuration({}, "README: the defaults, as in its example")
    second = Configuration({"use_mv": True}, "docstring of SaLSA: use_mv=True is recommended, though not the default")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Searching:
        """See `Method.begin`."""
        from salsa.SaLSA import SaLSA  # noqa: PLC0415 (an optional package)

        return Searching(task, SaLSA(task.model.parameters(), **settings), seed)


class Searching(Plain):
    """The optimizer evaluates the loss itself, as often as it likes; each time is counted.

    It sets torch's seed to the seconds of the clock before each evaluation, so that all trials of a step see the same
    dropout. Here that seed comes from the run's, as for every other method, and is another one in every step.
    """

    def __init__(self, task: Task, optimizer: Optimizer, seed: int) -> None:
        super().__init__(task, optimizer)
        self.numbers = torch.Generator().manual_seed(seed)

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        here = int(torch.randint(2**31, (), generator=self.numbers))

        def closure(backwards: bool = False) -> Tensor:
            torch.manual_seed(here)
            loss = self.loss(batch)
            if backwards:
                loss.backward()  # type: ignore[no-untyped-call]  # torch's
            return loss

        self.optimizer.zero_grad()
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            self.optimizer.step(closure=closure)  # type: ignore[arg-type]  # it prints what it thinks of losses

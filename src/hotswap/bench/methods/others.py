"""Other people's methods: torch's own optimizers, those of packages, and vSGD, which hot swapping's paper cites."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from hotswap.bench.methods.base import (
    METHODS,
    Configuration,
    Method,
    Plain,
    WithClosure,
    calibrate,
    norms_of,
    warmup_and_cosine,
)
from hotswap.bench.vsgd import VSGD
from hotswap.bench.workloads import Batch, Measures, Task

__all__ = [
    "SGD",
    "AdaDelta",
    "AdamW",
    "AdamWCosine",
    "DAdaptation",
    "DoG",
    "MoMo",
    "Prodigy",
    "SaLSa",
    "ScheduleFree",
    "VSgd",
]


class Constructed(Method):
    """An optimizer that is made from the parameters and the settings, at a constant rate if nothing else is said."""

    optimizer: ClassVar[str]
    """The place to import its class from."""
    training: ClassVar[type[Plain]] = Plain

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        module, _, name = self.optimizer.rpartition(".")
        optimizer = getattr(import_module(module), name)(task.model.parameters(), **settings)
        return self.training(task, optimizer, self.schedule(optimizer, task))

    def schedule(self, optimizer: Optimizer, task: Task) -> LRScheduler | None:
        """The schedule of the rate, if it has one."""
        return None


class Falling(Constructed):
    """The rate falls to 0 along a cosine, over the whole run."""

    def schedule(self, optimizer: Optimizer, task: Task) -> LRScheduler:
        """See `Constructed.schedule`."""
        return CosineAnnealingLR(optimizer, T_max=task.steps)


@METHODS.register("d_adaptation")
class DAdaptation(Falling):
    """Adam, whose rate comes from a lower bound on the distance to the solution (Defazio, Mishchenko 2023)."""

    title = "D-Adaptation (Adam)"
    package = ("dadaptation", "3.2")
    optimizer = "dadaptation.DAdaptAdam"
    first = Configuration({"lr": 1.0}, "README: lr=1, with the schedule that one would use otherwise: a cosine")
    second = Configuration(
        {"lr": 1.0, "growth_rate": 1.02}, "docstring of DAdaptAdam: growth_rate=1.02 has the effect of a warm-up"
    )


@METHODS.register("dog")
class DoG(Method):
    """SGD, whose rate is the distance it has come over the gradients it has seen (Ivgi, Hinder, Carmon 2023)."""

    title = "DoG"
    package = ("dog-optimizer", "1.0.3")
    first = Configuration({}, "README: the defaults, with PolynomialDecayAverager at its own")
    second = Configuration({"reps_rel": 1e-4}, "README: a larger reps_rel, such as 1e-4, where the rate does not rise")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> WithAverager:
        """See `Method.begin`."""
        import dog  # noqa: PLC0415 (an optional package)

        training = WithAverager(task, dog.DoG(task.model.parameters(), **settings))
        training.averager = dog.PolynomialDecayAverager(task.model)
        return training


class WithAverager(Plain):
    """A training whose average of the weights is measured and handed over."""

    averager: Any

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        super().step(batch)
        self.averager.step()

    def measure(self) -> Measures:
        """See `Training.measure`."""
        model = self.task.model
        current = {name: value.clone() for name, value in model.state_dict().items()}
        model.load_state_dict(self.averager.averaged_model.state_dict())
        measures = super().measure()
        model.load_state_dict(current)
        return measures


class WithLoss(Plain):
    """The optimizer is told the loss."""

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.zero_grad()
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self.optimizer.step(loss=loss)  # type: ignore[call-overload]  # momo's own


@METHODS.register("momo")
class MoMo(Constructed):
    """Adam with Polyak's step size, for losses near a lower bound (Schaipp, Ohana, Eickenberg, Defazio, Gower 2024)."""

    title = "MoMo-Adam"
    package = ("momo-opt", "0.1.0")
    optimizer, training = "momo.MomoAdam", WithLoss
    first = Configuration({"lr": 1e-2}, "README: MomoAdam with lr=1e-2, constant, and a lower bound of 0")
    second = Configuration(
        {"lr": 1e-2, "lb": -10.0, "use_fstar": True},
        "README: use_fstar=True where the lower bound is not known; lb, which its estimate never crosses, is below all",
    )


@METHODS.register("prodigy")
class Prodigy(Falling):
    """Adam, whose rate comes from an estimate of the distance to the solution (Mishchenko, Defazio 2024)."""

    title = "Prodigy"
    package = ("prodigyopt", "1.1.2")
    optimizer = "prodigyopt.Prodigy"
    first = Configuration({"lr": 1.0}, "README: lr=1 for all networks, with cosine annealing over all steps")
    second = Configuration({"lr": 1.0, "d0": 1e-4}, "README: a larger d0, up to 1e-4, where a model is not training")


@METHODS.register("salsa")
class SaLSa(Method):
    """Adam's direction, and a step size by Armijo's rule on averages, which is looked for every few steps.

    It is of Kenneweg, Kenneweg, Fumagalli and Hammer (2024).
    """

    title = "SaLSa"
    package = ("SaLSa-Optimizer", "0.1.0")
    first = Configuration({}, "README: the defaults, as in its example")
    second = Configuration({"use_mv": True}, "docstring of SaLSA: use_mv=True is recommended, though not the default")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Searching:
        """See `Method.begin`."""
        from salsa.SaLSA import SaLSA  # noqa: PLC0415 (an optional package)

        training = Searching(task, SaLSA(task.model.parameters(), **settings))
        training.numbers = torch.Generator().manual_seed(seed)
        return training


class Searching(Plain):
    """The optimizer evaluates the loss itself, as often as it likes; each time is counted.

    It sets torch's seed to the seconds of the clock before each evaluation, so that all trials of a step see the same
    dropout. Here that seed comes from the run's, as for every other method, and is another one in every step.
    """

    numbers: torch.Generator

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


@METHODS.register("schedule_free")
class ScheduleFree(Method):
    """Averages of the weights stand in for a schedule.

    It is of Defazio, Yang, Mehta, Mishchenko, Khaled and Cutkosky (2024).
    """

    title = "Schedule-Free AdamW"
    package = ("schedulefree", "1.4.1")
    first = Configuration(
        {"warmup": 0.05}, "README: the default rate of 0.0025, and a warm-up, whose length it leaves open: 5 % of steps"
    )
    second = Configuration(
        {"warmup": 0.05, "lr": 1e-2}, "README: rates from 1 to 10 times those of AdamW with a schedule; 10 times 1e-3"
    )

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Averaged:
        """See `Method.begin`."""
        from schedulefree import AdamWScheduleFree  # noqa: PLC0415 (an optional package)

        rest = dict(settings)
        warmup = round(rest.pop("warmup") * task.steps)
        return Averaged(task, AdamWScheduleFree(task.model.parameters(), warmup_steps=warmup, **rest))


class Averaged(Plain):
    """Steps at one point, measures at another."""

    def step(self, batch: Batch) -> None:
        """See `Training.step`."""
        self.optimizer.train()  # type: ignore[attr-defined]  # schedulefree's own
        super().step(batch)

    def measure(self) -> Measures:
        """Measure the averaged weights with batch norm's statistics for them, then return to training.

        The statistics that training has gathered are put back: a user evaluates once, at the end.
        """
        if not self.optimizer.state:
            return super().measure()
        self.optimizer.eval()  # type: ignore[attr-defined]  # schedulefree's own
        norms = norms_of(self.task)
        kept = [{name: value.clone() for name, value in norm.state_dict().items()} for norm in norms]
        calibrate(self.task)  # as its README says
        measures = super().measure()
        self.optimizer.train()  # type: ignore[attr-defined]  # schedulefree's own
        for norm, state in zip(norms, kept, strict=True):
            for name, value in norm.named_buffers(recurse=False):
                value.copy_(state[name])
        return measures


@METHODS.register("sgd")
class SGD(Constructed):
    """Stochastic gradient descent with momentum."""

    title = "SGD"
    optimizer = "torch.optim.SGD"
    first = Configuration({"lr": 0.1, "momentum": 0.9}, "the example in the documentation of torch.optim.SGD")


@METHODS.register("adamw")
class AdamW(Constructed):
    """AdamW with torch's defaults, the usual first choice."""

    title = "AdamW"
    optimizer = "torch.optim.AdamW"
    first = Configuration({}, "the defaults of torch.optim.AdamW")


@METHODS.register("adamw_cosine")
class AdamWCosine(Method):
    """The same rate with the schedule that most training programs add: it needs to know the length."""

    title = "AdamW with cosine"
    first = Configuration(
        {"warmup": 0.05}, "the defaults of torch.optim.AdamW; warm-up over 5 % of steps and a cosine, as is usual"
    )

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> Plain:
        """See `Method.begin`."""
        optimizer = torch.optim.AdamW(task.model.parameters())
        return Plain(task, optimizer, warmup_and_cosine(optimizer, task, settings["warmup"]))


@METHODS.register("adadelta")
class AdaDelta(Constructed):
    """The paper's rival without a rate to choose."""

    title = "AdaDelta"
    optimizer = "torch.optim.Adadelta"
    first = Configuration({}, "the defaults of torch.optim.Adadelta")


@METHODS.register("vsgd")
class VSgd(Method):
    """A rate for each parameter, from the variance of its gradients and the curvature (`hotswap.bench.vsgd`)."""

    title = "vSGD-fd"
    first = Configuration({}, "the papers: there is nothing to set; the slow start is the first author's program's")
    second = Configuration({"slow_start": "tenth"}, "ICML 2013: a slow start by a tenth of the number of parameters")

    def begin(self, task: Task, settings: Mapping[str, Any], seed: int) -> WithClosure:
        """See `Method.begin`."""
        parameters = list(task.model.parameters())
        tenth = max(1.0, sum(parameter.numel() for parameter in parameters) / 10)
        slow = tenth if settings.get("slow_start") == "tenth" else 2.0
        return WithClosure(task, VSGD(parameters, module=task.model, slow=slow))

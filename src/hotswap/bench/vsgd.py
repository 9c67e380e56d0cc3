"""vSGD-fd as an optimizer: the baseline that hot swapping's paper cites, for one run at a time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from hotswap.ensemble.vsgd import SLOTS, begin_averages, shift_of, vsgd_step
from hotswap.errors import ClosureError, SettingError
from hotswap.optim.closures import Closure, as_trial, run_gradient_pass
from hotswap.optim.surroundings import Surroundings

__all__ = ["VSGD"]


class VSGD(Optimizer):
    """Stochastic gradient descent with a rate for each parameter that is estimated while training.

    `hotswap.ensemble.vsgd` has the formulae, the papers they are from (Schaul, Zhang and LeCun, 2013; Schaul
    and LeCun, 2013) and what was decided where these leave a detail open. There is no learning rate to set.

    A step evaluates the closure twice, with its backward: at θ, and at θ + ḡ on the same minibatch. Random numbers and
    buffers, such as batch norm's running statistics, are set back in between, so that both see the same dropout and
    the step leaves them as one evaluation would.

    Args:
        params: As for any optimizer.
        start: How many minibatches give the first averages; nothing moves in these steps.
        slow: What the mean square of the gradient is multiplied with then, so that rates begin too small.
        module: The model, if its buffers cannot be found from the parameters.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = VSGD(model.parameters())
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = model(torch.ones(8, 2)).square().mean()
        ...     loss.backward()
        ...     return loss
        >>> loss = optimizer.step(closure)
    """

    def __init__(self, params: ParamsT, *, start: int = 10, slow: float = 2.0, module: nn.Module | None = None) -> None:
        if isinstance(start, bool) or not isinstance(start, int) or start < 1:
            raise SettingError(f"VSGD(start={start!r}): start must be a whole number of at least 1.")
        if not 1 <= slow < float("inf"):
            raise SettingError(f"VSGD(slow={slow!r}): slow must be a finite number of at least 1.")
        super().__init__(params, {"start": start, "slow": slow})
        self._surroundings = Surroundings(module)

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Tensor:  # type: ignore[override]  # it cannot do without
        """Evaluate the closure at θ and nearby, and move; returns the loss at θ.

        The closure returns the loss; it may call `backward()` itself, as for any other optimizer, or leave that to the
        step. Afterwards `.grad` holds the gradients at θ.

        Raises:
            ClosureError: There is no closure, or no gradient reaches the parameters.
        """
        if closure is None:
            raise ClosureError("VSGD computes two gradients a step; give step() a closure that returns the loss.")
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        try:
            with self._surroundings.recording(parameters, restart=True):
                loss = run_gradient_pass(closure, parameters).loss
            gradients = {p: p.grad for p in parameters if p.grad is not None}
            places = [(p, group) for group in self.param_groups for p in group["params"] if p in gradients]
            means = {p: self._mean(p, gradients[p], group) for p, group in places}
            nearby = self._nearby(closure, parameters, means)
        finally:
            self._surroundings.finish()
        for parameter, group in places:
            gradient, other = gradients[parameter], nearby[parameter]
            self._move(parameter, means[parameter], gradient, gradient if other is None else other, group)
            parameter.grad = gradient
        return loss

    def _mean(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        """ḡ, along which the curvature is taken; while averages are begun, with this gradient."""
        state = self.state[parameter]
        if not state:
            state |= {"step": 0, **{name: torch.zeros_like(parameter) for name in SLOTS}}
        mean: Tensor = state["mean"]
        return mean.lerp(gradient, 1 / (state["step"] + 1)) if state["step"] < group["start"] else mean

    def _nearby(
        self, closure: Closure, parameters: list[Tensor], means: dict[Tensor, Tensor]
    ) -> dict[Tensor, Tensor | None]:
        """The gradients at θ + ḡ, on the same minibatch; θ stays what it is."""
        before = {parameter: parameter.clone() for parameter in means}
        try:
            for parameter, mean in means.items():
                parameter.add_(shift_of(mean))
            with self._surroundings.rewound(), as_trial():
                run_gradient_pass(closure, parameters)
        finally:
            for parameter, value in before.items():
                parameter.copy_(value)
        return {parameter: parameter.grad for parameter in means}

    def _move(self, parameter: Tensor, mean: Tensor, gradient: Tensor, nearby: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        state["step"] += 1
        state["mean"].copy_(mean)
        slots = {name: state[name] for name in SLOTS}
        if state["step"] > group["start"]:
            vsgd_step(parameter, gradient, nearby, slots)
        else:
            number = torch.tensor(state["step"], dtype=parameter.dtype, device=parameter.device)
            begin_averages(gradient, nearby, slots, number, group["start"], group["slow"])

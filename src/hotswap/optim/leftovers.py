"""Gradients that are in `.grad` before a step: left there by the step before, or added up by somebody else.

A closure that calls `backward()` itself adds to what it finds, unless it clears it first. What the last step left is of
no use to anybody. But where others ran `backward()` since, that closure is meant as the last of several minibatches,
and the search would judge on it alone: that is refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

from torch import Tensor

from hotswap.errors import UnsupportedError
from hotswap.optim.moves.shards import local

__all__ = ["Leftovers", "Watch", "refuse_addition"]


MARK = "_hotswap_used"


class Leftovers:
    """The gradients that the latest step left, as long as they are in `.grad` and nobody has written to them.

    Noted after steps whose closure ran its own backward. After others only the first of them is: such closures rarely
    come after them, and a step should not pay for all.
    """

    def __init__(self) -> None:
        self._step = object()
        """Stands for the latest step, in what is written on the gradients: a reference to them would be in the way of
        modules that exchange tensors."""
        self._first: int | None = None
        """The id of the one parameter that was noted; None if all were."""
        self._by_closure: bool | None = None

    def begin(self, *, by_closure: bool) -> None:
        """A step has its gradients, and knows who ran the backward."""
        self._by_closure = by_closure

    def note(self, parameters: list[Tensor]) -> None:
        """The end of a step: what is in `.grad` has been used, if the step came so far."""
        if self._by_closure is not None:
            first = None if self._by_closure else next((p for p in parameters if p.grad is not None), None)
            self._step = object()
            for parameter in parameters if first is None else [first]:
                if (gradient := parameter.grad) is not None:
                    setattr(gradient, MARK, (self._step, local(gradient)._version))
            self._first = None if first is None else id(first)
            self._by_closure = None

    def others(self, parameters: list[Tensor]) -> list[Tensor]:
        """The parameters in whose `.grad` somebody else has put something since."""
        return [
            parameter
            for parameter in parameters
            if (self._first is None or id(parameter) == self._first)
            and (gradient := parameter.grad) is not None
            and parameter.requires_grad
            and self._used(gradient) != local(gradient)._version
        ]

    def were_added_to(self, parameters: list[Tensor]) -> bool:
        """Whether a backward has added to what the latest step left, which nobody had cleared: one write, not two."""
        return any(
            (gradient := parameter.grad) is not None and self._used(gradient) == local(gradient)._version - 1
            for parameter in parameters
        )

    def _used(self, gradient: Tensor) -> int | None:
        """The version of a gradient that the latest step left; None of others."""
        step, version = getattr(gradient, MARK, (None, None))
        return version if step is self._step else None


class Watch:
    """Looks on while a closure runs: does it run a backward, and does it clear the gradient that was there before?"""

    def __init__(self, parameter: Tensor) -> None:
        self._parameter, self._gradient = parameter, parameter.grad
        self._version = self._now()
        self._sharded = local(parameter) is not parameter  # FSDP adds to its gradient without calling hooks
        self._kept: bool | None = None
        self._hook: Any = parameter.register_hook(self._reached)  # type: ignore[no-untyped-call]

    def _now(self) -> int:
        assert self._gradient is not None  # who has none is not watched
        return local(self._gradient)._version

    def _reached(self, _: Tensor) -> None:
        if self._kept is None:
            self._kept = self._is_there() and self._now() == self._version

    def _is_there(self) -> bool:
        return self._parameter.grad is self._gradient

    def end(self) -> None:
        """The closure has returned."""
        self._hook.remove()

    @property
    def saw_backward(self) -> bool:
        """Whether a backward pass reached the parameter."""
        if self._kept is not None:
            return True
        if self._is_there():
            return self._sharded and self._now() != self._version
        return self._parameter.grad is not None

    @property
    def kept(self) -> bool:
        """Whether the closure left what was there, or added to it."""
        if self._kept is not None:
            return self._kept
        return self._is_there() and (self._sharded or self._now() == self._version)


def refuse_addition() -> NoReturn:
    """What a closure that adds to the gradients of others is told."""
    raise UnsupportedError(
        "The closure calls backward() on top of gradients that were accumulated before this step, so the search would "
        "judge on the last minibatch only; give all of them to one step with hotswap.accumulate, or call "
        "optimizer.zero_grad() first if those gradients are not meant."
    )

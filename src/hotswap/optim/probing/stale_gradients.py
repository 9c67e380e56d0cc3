"""Stale gradients: those that are in `.grad` before a step, left there by the step before or put there by others.

A closure that calls `backward()` itself adds to what it finds in `.grad`, unless it clears it first. Gradients that the
last step has used are of no use to anybody. But where others ran `backward()` since, such a closure is meant as the
last of several minibatches, and the search would judge on that one alone: that is refused.

A step that computes its own gradients discards what it finds, and that is worth a word, unless another optimizer's pass
has left it: in every GAN the generator's backward reaches the discriminator, too.
"""

from __future__ import annotations

import weakref
from typing import Any, NoReturn

from torch import Tensor
from torch.optim import Optimizer

from hotswap.errors import UnsupportedError
from hotswap.optim.probing.modules import living
from hotswap.optim.probing.moves.shards import local

__all__ = ["GradientWatch", "OtherOptimizers", "StaleGradients", "refuse_addition"]


MARK = "_hotswap_used"


class StaleGradients:
    """Knows which gradients the latest step has used, as long as they are in `.grad` and nobody has written to them.

    After steps whose closure ran its own backward, all of them are marked. After other steps only the first is: a
    closure with its own backward rarely comes next, and a step should not pay for marking all.
    """

    def __init__(self) -> None:
        self.by_closure: bool | None = None
        """Whether the closure of this step ran its own backward; None as long as the step has no gradients."""
        self._step = object()
        """Stands for the latest step in the marks. A reference to the gradients themselves would keep modules from
        exchanging tensors."""
        self._first: tuple[int, int] | None = None
        """Place and id of the one parameter whose gradient is marked; None if all are."""

    def mark_used(self, parameters: list[Tensor]) -> None:
        """At the end of a step: it has used what is in `.grad`, if it came as far as to have gradients."""
        if self.by_closure is None:
            return
        self._step, self._first = object(), None
        for place, parameter in enumerate(parameters):
            if (gradient := parameter.grad) is not None:
                setattr(gradient, MARK, (self._step, _version(gradient)))
                if not self.by_closure:
                    self._first = place, id(parameter)
                    break
        self.by_closure = None

    def unused(self, parameters: list[Tensor]) -> list[Tensor]:
        """The parameters with a gradient in `.grad` that the latest step did not use, or that has changed since."""
        if self._first is not None:
            place, known = self._first
            there = parameters[place : place + 1]
            parameters = there if there and id(there[0]) == known else [p for p in parameters if id(p) == known]
        return [
            parameter
            for parameter in parameters
            if (gradient := parameter.grad) is not None
            and parameter.requires_grad
            and self._used_version(gradient) != _version(gradient)
        ]

    def were_added_to(self, parameters: list[Tensor]) -> bool:
        """Whether one backward has added to gradients that the latest step had used and nobody had cleared."""
        return any(
            (gradient := parameter.grad) is not None and self._used_version(gradient) == _version(gradient) - 1
            for parameter in parameters
        )

    def _used_version(self, gradient: Tensor) -> int | None:
        """The version of a gradient when the latest step used it; None if it did not."""
        step, version = getattr(gradient, MARK, (None, None))
        return version if step is self._step else None


class OtherOptimizers:
    """Tells whether optimizers of other parameters have taken a step since it was last asked.

    They are found among all living objects, once, and held weakly.
    """

    def __init__(self) -> None:
        self._versions: list[tuple[weakref.ref[Optimizer], int]] | None = None
        """Each with how often its parameters were written to; None before the first question."""

    def have_stepped(self, parameters: list[Tensor]) -> bool:
        """Whether any of them has; not the first time, when it is not known what was before."""
        if self._versions is None:
            own = set(map(id, parameters))
            others = [other for other in living(Optimizer) if own.isdisjoint(map(id, _parameters_of(other)))]
            self._versions = [(weakref.ref(other), _writes(other)) for other in others]
            return False
        alive = [(ref, before, other) for ref, before in self._versions if (other := ref()) is not None]
        now = [(ref, _writes(other)) for ref, _, other in alive]
        changed = any(before != writes for (_, before, _), (_, writes) in zip(alive, now, strict=True))
        self._versions = now
        return changed


def _parameters_of(optimizer: Optimizer) -> list[Tensor]:
    groups: list[dict[str, Any]] = getattr(optimizer, "param_groups", [])  # it may be in the making
    return [parameter for group in groups for parameter in group["params"]]


def _writes(optimizer: Optimizer) -> int:
    return sum(parameter._version for parameter in _parameters_of(optimizer) if not parameter.is_inference())


def _version(gradient: Tensor) -> int:
    """How often a gradient was written to."""
    return (gradient if type(gradient) is Tensor else local(gradient))._version


class GradientWatch:
    """Watches one parameter while a closure runs: is there a backward, and is the old gradient cleared before it?"""

    def __init__(self, parameter: Tensor) -> None:
        self._parameter, self._gradient = parameter, parameter.grad
        self._version = self._current_version()
        self._sharded = local(parameter) is not parameter  # FSDP adds to its gradient without calling hooks
        self._kept_at_backward: bool | None = None
        self._hook: Any = parameter.register_hook(self._on_backward)  # type: ignore[no-untyped-call]

    def _current_version(self) -> int:
        assert self._gradient is not None  # only parameters with a gradient are watched
        return _version(self._gradient)

    def _on_backward(self, _: Tensor) -> None:
        if self._kept_at_backward is None:
            self._kept_at_backward = self._is_there() and self._current_version() == self._version

    def _is_there(self) -> bool:
        return self._parameter.grad is self._gradient

    def end(self) -> None:
        """Stop watching: the closure has returned."""
        self._hook.remove()

    @property
    def saw_backward(self) -> bool:
        """Whether a backward pass reached the parameter."""
        if self._kept_at_backward is not None:
            return True
        if self._is_there():
            return self._sharded and self._current_version() != self._version
        return self._parameter.grad is not None

    @property
    def kept(self) -> bool:
        """Whether the closure did not clear the old gradient, or added to it."""
        if self._kept_at_backward is not None:
            return self._kept_at_backward
        return self._is_there() and (self._sharded or self._current_version() == self._version)


def refuse_addition() -> NoReturn:
    """Raise for a closure whose backward adds to gradients that no step has used."""
    raise UnsupportedError(
        "The closure calls backward() on top of gradients that were accumulated before this step, so a search would "
        "judge on the last minibatch only; give all of them to one step with hotswap.accumulate, or call "
        "optimizer.zero_grad() first if those gradients are not meant."
    )

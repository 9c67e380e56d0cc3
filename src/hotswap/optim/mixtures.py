"""What trials are judged on: the minibatch of the gradient, another one, or both."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from hotswap.errors import ClosureError, SettingError
from hotswap.optim.probing.closures import unpack

__all__ = ["mixture"]


def mixture(same: Callable[[], object], other: Callable[[], object], weight: float = 0.5) -> Callable[[], Tensor]:
    """A trial closure whose loss is `(1 − weight) · same() + weight · other()`.

        closure = lambda: loss_fn(model(x), y)
        following = lambda: loss_fn(model(next_x), next_y)
        optimizer.step(closure, trial_closure=hotswap.mixture(closure, following, weight=0.5))

    Trials can be judged in three ways. On the minibatch of the gradient, as in the paper: `optimizer.step(closure)`. It
    costs least, but a small minibatch rewards rates that suit it alone. On the next minibatch,
    `optimizer.step(closure, trial_closure=following)`: what helps one minibatch and harms the next is not taken, and
    rates become small. Or on both, here: two forwards for every trial, and two more at the start point.

    Random numbers and buffers are those of any trial: each evaluation begins with the dropout masks of the gradient
    pass, and leaves batch-norm statistics alone.

    Args:
        same: computes the loss of the gradient's minibatch, forward only; or the pair `(loss, anything)`.
        other: computes another loss, of the next minibatch say, in the same way.
        weight: what `other` counts, from 0 to 1; with 0 it is not evaluated, and with 1 `same` is not.
    """
    for name, function in (("same", same), ("other", other)):
        if not callable(function):
            raise ClosureError(
                f"mixture({name}=...) must be a function that computes a loss, but it is of type "
                f"{type(function).__name__}."
            )
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
        raise SettingError(f"mixture(weight={weight!r}): weight must be a number from 0 to 1.")

    def loss() -> Tensor:
        if weight == 0:
            return unpack(same())[0]
        if weight == 1:
            return unpack(other())[0]
        return (1 - weight) * unpack(same())[0] + weight * unpack(other())[0]

    return loss

"""The warnings that users get where something works, but costs more or means less than they may think."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping

__all__ = [
    "HotSwapWarning",
    "warn",
    "warn_of_added_gradients",
    "warn_of_another_loss",
    "warn_of_discarded_gradients",
    "warn_of_no_search",
    "warn_of_numbers_between",
    "warn_of_other_parts",
    "warn_of_own_backward",
    "warn_of_raising_trial",
    "warn_of_the_same_loss",
    "warn_of_the_top",
]

OURS = ("hotswap", "torch", "contextlib")


class HotSwapWarning(UserWarning):
    """Something works, but costs more or means less than the user may think."""


def warn(message: str) -> None:
    """Warn, naming the line outside of hotswap and torch that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HotSwapWarning, stacklevel=level)


def warn_of_own_backward() -> None:
    """A closure that runs its own backward makes every trial pay for it."""
    warn(
        "The closure calls backward() itself. That works, but every trial then pays for a backward pass that nothing "
        "uses: return the loss without calling backward(), and the optimizer runs it once per step."
    )


def warn_of_another_loss(first: float, again: float, *, recorded: bool) -> None:
    """A closure that gives another loss at the same parameters makes a search meaningless."""
    advice = (
        "load and augment the minibatch outside of it, draw random numbers with torch's default generator, which a "
        "step rewinds every time, return a hidden state that goes on beside the loss instead of setting it, and "
        "leave model.train() and model.eval() to the loop."
        if recorded
        else "call the model and backward() inside `with optimizer.gradient_pass():`, so that trials see the same "
        "dropout masks and buffers, and pass the loss of the same minibatch."
    )
    warn(
        f"The closure gave a loss of {first:g} and then, at the same parameters, {again:g}. A search compares losses, "
        f"so it needs a closure that computes the same one every time: {advice}"
    )


def warn_of_the_same_loss(trials: int) -> None:
    """The loss does not depend on where the parameters are."""
    warn(
        f"All {trials} trials had exactly the loss of the start point, so the closure does not see that the parameters "
        "move: call the model inside of it, optimizer.step(lambda: loss_fn(model(x), y)), and not before."
    )


def warn_of_raising_trial(values: Iterable[tuple[str, object]], error: Exception) -> None:
    """The closure has raised at a trial."""
    warn(
        f"The closure raised {_text(error)} at a trial with {_shown(values)}. Such a trial counts as one whose loss is "
        "infinite, and the training goes on; this is said once. If it is not the rate's doing, call the closure "
        "outside of a step, or leave the largest rates out."
    )


def _text(error: Exception) -> str:
    """An exception as one line that is not too long."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    return f"{type(error).__name__}({text[:200]!r})" if text else type(error).__name__


def warn_of_the_top(values: Iterable[tuple[str, object]]) -> None:
    """The largest rate is taken again and again, and the loss does not fall."""
    warn(
        f"The rate has sat at the top of its grid, {_shown(values)}, for 200 steps, and the loss does not fall. Such a "
        "step lowers the loss of its own minibatch, and may spoil the rest: give smaller rates in arms, and watch a "
        "validation loss. This is said once."
    )


def warn_of_no_search(values: Iterable[tuple[str, object]]) -> None:
    """A step without a closure searches for nothing."""
    warn(
        "step() was called without a closure, so nothing is searched and nothing learned: what the latest search chose "
        f"applies, {_shown(values)}. Pass the loss as a function, optimizer.step(lambda: loss_fn(model(x), y)); the "
        "optimizer does the backward. Where a framework calls step(), use hotswap.integrations, or "
        "optimizer.search_with before."
    )


def _shown(values: Iterable[tuple[str, object]]) -> str:
    return ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in values)


def warn_of_discarded_gradients() -> None:
    """Gradients from before the step are not used."""
    warn(
        "There were gradients in .grad before this step, and they are discarded: with a closure, a step computes its "
        "own. For several minibatches use hotswap.accumulate; otherwise leave out the backward() before the step, or "
        "call optimizer.zero_grad() if it is meant for others."
    )


def warn_of_added_gradients() -> None:
    """Gradients of several steps add up."""
    warn(
        "backward() has added to the gradient that the step before had used, so the directions of all steps pile up: "
        "call optimizer.zero_grad() before each backward."
    )


def warn_of_numbers_between() -> None:
    """Trials cannot repeat the random numbers of several gradient passes."""
    warn(
        "Random numbers were drawn between two gradient passes of one step, so its trials see other dropout masks than "
        "all but the first of them: load all minibatches before, or use hotswap.accumulate."
    )


def warn_of_other_parts(saved: Mapping[str, str], now: Mapping[str, str]) -> None:
    """A checkpoint was written with other settings, so the training does not resume exactly."""
    others = [f"{name}={saved[name]}, now {now[name]}" for name in now if saved.get(name, now[name]) != now[name]]
    if others:
        warn(
            f"The checkpoint was written with {'; '.join(others)}. What was learned goes on with the new settings; to "
            "resume exactly, construct the optimizer with the old ones."
        )

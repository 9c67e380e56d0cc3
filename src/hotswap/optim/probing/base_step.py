"""The base optimizer's own step, at the price of that step alone.

torch wraps the `step` of every class of optimizers: hooks run, and the step is marked for the profiler. A hot-swapped
step has that wrapper already. Around the base's it would do the same once more, and take as long as the bandit does.
"""

from __future__ import annotations

from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

__all__ = ["TORCHS_WRAPPER", "step_of_base"]

TORCHS_WRAPPER = Optimizer.profile_hook_step(lambda: None).__code__
"""What is run for a step that torch has wrapped, and that nobody has wrapped once more."""


def step_of_base(base: Optimizer) -> None:
    """Let the base take a step: as torch calls it, unless it would find no hook to run."""
    step = type(base).step
    replaced = "step" in vars(base) or getattr(step, "__code__", None) is not TORCHS_WRAPPER
    own_hooks = base._optimizer_step_pre_hooks or base._optimizer_step_post_hooks
    if replaced or own_hooks or _global_optimizer_pre_hooks or _global_optimizer_post_hooks:
        base.step()
    else:
        step.__wrapped__(base)  # type: ignore[attr-defined]  # torch's wrapper has it

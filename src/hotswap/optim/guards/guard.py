"""What a step's trials must share, and must not change: random numbers and buffers.

All evaluations of one step are of one function, so they see the same dropout masks and the same buffers; and a step
leaves both as one ordinary forward at the start point would have left them. `Guard` keeps what that takes:

    with guard.gradient_pass(θ):    before and after are remembered
        ...
    with guard.trial():             begins where the gradient pass began
        ...
    guard.end()                     and afterwards everything is as the gradient pass left it

Where the gradients were there already, `guard.start_here()` takes the place of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from hotswap.errors import UnsupportedError
from hotswap.optim.guards.buffers import Page
from hotswap.optim.guards.modules import Parts, Roots
from hotswap.optim.guards.randomness import Randomness
from hotswap.optim.warned import warn_of_numbers_between

__all__ = ["Guard"]

UNTOUCHED = nullcontext()


class Guard:
    """Random numbers and buffers of the model that one optimizer trains."""

    def __init__(self, module: nn.Module | None = None) -> None:
        self._roots, self._parts = Roots(module), Parts([])
        self._surveyed = self._parts  # before the gradient pass, which may make modules
        self._randomness = Randomness()
        self._random: tuple[list[Tensor], list[Tensor]] | None = None
        self._before, self._after = Page(), Page()
        self._resized = self._told = False

    @contextmanager
    def gradient_pass(self, parameters: list[Tensor]) -> Iterator[None]:
        """Remember what is before and after it; of several passes of one step, before the first and after the last."""
        if self._random is None:
            self._survey(parameters)
            before = self._randomness.read()
        else:
            before, after = self._random
            if not self._randomness.is_at(after) and not self._told:
                self._told = True
                warn_of_numbers_between()
        self._parts.look_at_still()
        self._roots.in_step = True
        try:
            with self._shared_dropout():
                yield
        finally:
            self._roots.in_step = False
        after = self._randomness.read()
        self._parts.refuse_changed()
        self._read_after(parameters)
        self._random = before, after

    def start_here(self, parameters: list[Tensor]) -> None:
        """The step ends with what is there now, and so do its trials begin, unless a gradient pass was watched."""
        if self._random is None:
            self._survey(parameters)
        now = self._randomness.read()
        self._read_after(parameters)
        self._random = now if self._random is None else self._random[0], now

    def _read_after(self, parameters: list[Tensor]) -> None:
        """A forward may have made modules, and first buffers of modules that had none."""
        self._before.know_empty(self._surveyed.buffers())
        self._roots.adopt()
        self._parts = self._roots.parts(parameters, self._parts)
        owners = self._parts.buffers()
        self._after.read(owners, parameters)
        if owners:
            self._after.note_versions()
            self._resized = self._before.sizes() != self._after.sizes()

    @property
    def watched(self) -> bool:
        """Whether a gradient pass has been seen, of which no step has come yet."""
        return self._random is not None

    def drop(self) -> None:
        """Forget a gradient pass that no step will come of."""
        self._random = None

    def _survey(self, parameters: list[Tensor]) -> None:
        """What there is to look after."""
        self._randomness.survey({parameter.device for parameter in parameters})
        self._parts = self._roots.parts(parameters, self._parts)
        for replica in self._parts.replicas:  # as it would itself, in the forward to come
            if replica._join_config.enable:
                raise UnsupportedError(
                    "A model in join() keeps processes going that have run out of data, but they could not take "
                    "part in a search; give all processes the same number of minibatches."
                )
            if replica.will_sync_module_buffers():  # type: ignore[no-untyped-call]
                replica._sync_buffers()  # type: ignore[no-untyped-call]
        if self._parts.flattened:
            raise UnsupportedError(
                "FullyShardedDataParallel, torch's first way of sharding, would show trials the parameters of before; "
                "shard the model with torch.distributed.fsdp.fully_shard."
            )
        self._surveyed = self._parts
        self._before.read(self._parts.buffers(), parameters)

    def trial(self) -> AbstractContextManager[object]:
        """Begin where the gradient pass began."""
        self._roots.in_step = True
        if self._random is not None:
            self._randomness.write(self._random[0])
            self._before.write(resized=self._resized)
        self._reshard()
        return self._alone() if self._parts.replicas or self._parts.private_dropout() else UNTOUCHED

    @contextmanager
    def _alone(self) -> Iterator[None]:
        replicas = self._parts.replicas
        flags = [(replica.require_forward_param_sync, replica.require_backward_grad_sync) for replica in replicas]
        for replica in replicas:  # a trial exchanges one number, and does not change what is exchanged next
            replica.require_forward_param_sync = replica.require_backward_grad_sync = False
        try:
            with self._shared_dropout():
                yield
        finally:
            for replica, (forward, backward) in zip(replicas, flags, strict=True):
                replica.require_forward_param_sync, replica.require_backward_grad_sync = forward, backward

    def _shared_dropout(self) -> AbstractContextManager[object]:
        """cuDNN's recurrent networks draw masks from a generator that nobody can set back; torch's own do not."""
        if not self._parts.private_dropout():
            return UNTOUCHED
        without: AbstractContextManager[object] = torch.backends.cudnn.flags(enabled=False)
        return without

    def _reshard(self) -> None:
        """What FSDP gathered before the parameters moved is stale, and it would use it again."""
        for module in self._parts.sharded:
            module.reshard()

    def end(self) -> None:
        """Leave everything as the gradient pass left it, except that the parameters have moved."""
        self._roots.in_step = False
        self._reshard()
        if self._random is not None:
            self._randomness.write(self._random[1])
            self._after.write(resized=self._resized)
            self._after.restore_versions()
        self.drop()

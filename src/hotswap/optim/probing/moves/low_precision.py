"""Parameters in low precision (bfloat16, float16) and their master weights in float32.

Most steps of a search are smaller than the rounding of such a parameter, and would vanish in it. In float16 the base
optimizer's own numbers would vanish too: Adam's squares, and its eps of 1e-8, are zero there. So the base steps master
weights in float32, its state is in float32, and the parameters are the master weights, rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from hotswap.optim.probing.moves.shards import local, sharded_like

__all__ = ["LOW_PRECISION", "MasterWeights", "restore_state", "standing_in", "widen"]

LOW_PRECISION = (torch.bfloat16, torch.float16)
NO_CONTEXT = nullcontext()


class MasterWeights:
    """A float32 value of each parameter in low precision, of which the parameter is the rounding."""

    def __init__(self) -> None:
        self._by_id: dict[int, Tensor] = {}

    def follow(self, owner: Tensor) -> Tensor:
        """A parameter's master weights; where others have changed the parameter since, they start again from it."""
        known, parameter = self._by_id.get(id(owner)), local(owner)
        if known is None or known.shape != parameter.shape or known.device != parameter.device:
            known = parameter.detach().float()
        else:
            torch.where(known.to(parameter.dtype) == parameter, known, parameter.float(), out=known)
        self._by_id[id(owner)] = known
        return known

    def stepped(self, base: Optimizer, unrounded: Mapping[int, Tensor]) -> AbstractContextManager[object]:
        """The base steps the master weights, and the parameters become their rounding.

        `unrounded` has gradients in float32, by the parameter's id, where `.grad` is rounded.
        """
        found = [
            p for group in base.param_groups for p in group["params"] if p.dtype in LOW_PRECISION and p.grad is not None
        ]
        return self._stepped(base, found, unrounded) if found else NO_CONTEXT

    @contextmanager
    def _stepped(self, base: Optimizer, found: list[Tensor], unrounded: Mapping[int, Tensor]) -> Iterator[None]:
        masters = [self.follow(owner) for owner in found]
        stand_ins = [sharded_like(owner, value) for owner, value in zip(found, masters, strict=True)]
        for owner, stand_in in zip(found, stand_ins, strict=True):
            assert owner.grad is not None  # only such are found
            stand_in.grad = unrounded[id(owner)] if id(owner) in unrounded else owner.grad.float()
        with standing_in(base, found, stand_ins):
            yield
        for owner, value in zip(found, masters, strict=True):
            local(owner).copy_(value)

    def read(self, parameters: list[Tensor]) -> dict[int, Tensor]:
        """Copies by the parameters' places, for a checkpoint.

        Also of parameters that have not moved yet: a distributed checkpoint is loaded into the tensors that it finds.
        """
        found = {}
        for place, owner in enumerate(parameters):
            known = self._by_id.get(id(owner))
            if known is not None:
                found[place] = sharded_like(owner, known.clone())
            elif owner.dtype in LOW_PRECISION and owner.requires_grad and not is_lazy(owner):
                found[place] = sharded_like(owner, local(owner).detach().float())
        return found

    def write(self, parameters: list[Tensor], values: dict[int, Tensor]) -> None:
        """The reverse of `read`. Values that do not round to their parameter are replaced when they are next used."""
        self._by_id = {
            id(parameters[place]): local(value).to(local(parameters[place]).device).float().clone()
            for place, value in values.items()
        }


@contextmanager
def standing_in(base: Optimizer, owners: list[Tensor], stand_ins: list[Tensor]) -> Iterator[None]:
    """Let the base step `stand_ins`, with their `.grad`, in place of `owners`, under which its state is kept."""
    if not owners:
        yield
        return
    by_id = {id(owner): stand_in for owner, stand_in in zip(owners, stand_ins, strict=True)}
    own = [group["params"] for group in base.param_groups]
    for group in base.param_groups:
        group["params"] = [by_id.get(id(parameter), parameter) for parameter in group["params"]]
    for owner, stand_in in zip(owners, stand_ins, strict=True):
        if owner in base.state:
            widen(base.state[owner])
            base.state[stand_in] = base.state[owner]
    try:
        yield
    finally:
        for group, parameters in zip(base.param_groups, own, strict=True):
            group["params"] = parameters
        for owner, stand_in in zip(owners, stand_ins, strict=True):
            stand_in.grad = None
            state = base.state.pop(stand_in, None)
            if state:
                base.state[owner] = state


def widen(state: dict[str, Any]) -> None:
    """Convert a parameter's state to float32: a base that stepped before, or was loaded into, has it in less."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.dtype in LOW_PRECISION:
            state[name] = value.float()


def restore_state(base: Optimizer, saved: dict[str, Any]) -> None:
    """After `base.load_state_dict(saved)`, which rounds state to the parameter's type: restore what was saved."""
    places = [place for group in saved["param_groups"] for place in group["params"]]
    parameters = [parameter for group in base.param_groups for parameter in group["params"]]
    for place, parameter in zip(places, parameters, strict=True):
        if parameter.dtype in LOW_PRECISION and parameter in base.state:
            state, exact = base.state[parameter], saved["state"].get(place, {})
            for name, value in state.items():
                if isinstance(value, Tensor) and value.dtype in LOW_PRECISION:
                    state[name] = exact.get(name, value).detach().to(value.device, torch.float32, copy=True)

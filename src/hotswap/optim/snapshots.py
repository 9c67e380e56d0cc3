"""Everything that a step changes, kept and put back, bit for bit.

That is the parameters and their master weights, the base optimizer's state, what the base writes into its parameter
groups, and the buffers of the modules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from hotswap.optim.probing import Probe
from hotswap.optim.probing.buffers import cannot_be_written
from hotswap.optim.probing.modules import BufferDict
from hotswap.optim.probing.moves.shards import local, sharded_like
from hotswap.optim.probing.moves.states import copied, loose_entries

__all__ = ["Snapshot", "values_of_groups"]


@dataclass
class Snapshot:
    """Copies of everything that a step changes. Parameters are known by their place, so that copies can be loaded."""

    parameters: list[Tensor]
    """Of sharded parameters, this process's part."""
    state: dict[int, dict[str, Any]]
    """The base optimizer's, by the parameter's place."""
    groups: list[dict[str, Any]]
    """The values of the parameter groups."""
    masters: dict[int, Tensor]
    buffers: dict[str, Tensor]
    loose: dict[Any, Any] = field(default_factory=dict)
    """What the base's state has beside that of the parameters."""

    @classmethod
    def of(cls, probe: Probe) -> Snapshot:
        """A snapshot of everything as it is."""
        parameters, state = probe.parameters(), probe.base.state
        return cls(
            [local(parameter).detach().clone() for parameter in parameters],
            {place: copied(state[p]) for place, p in enumerate(parameters) if p in state},
            values_of_groups(probe),
            probe.move.masters.read(parameters),
            {name: owner[key].detach().clone() for name, owner, key in _places(probe.buffers())},  # type: ignore[union-attr]
            loose_entries(state),
        )

    def restore(self, probe: Probe, written: set[str]) -> None:
        """Make everything as it was; of the parameter groups, the values that are `written` by the base itself."""
        parameters, state = probe.parameters(), probe.base.state
        for place, (parameter, saved) in enumerate(zip(parameters, self.parameters, strict=False)):
            local(parameter).copy_(saved)
            if place in self.state:
                state[parameter] = _placed(copied(self.state[place]), parameter, state.get(parameter, {}))
            else:
                state.pop(parameter, None)
        for key in loose_entries(state):
            del state[key]
        state.update(loose_entries(self.loose))
        for group, values in zip(probe.base.param_groups, self.groups, strict=False):
            for name in written - set(values):
                group.pop(name, None)  # the base has put it there since
            group.update(copied({name: value for name, value in values.items() if name in written}))
        probe.move.masters.write(parameters, self.masters)
        for name, owner, key in _places(probe.buffers()):
            buffer, kept = owner[key], self.buffers.get(name)
            if buffer is None or kept is None:
                continue
            if buffer.shape == kept.shape:
                buffer.copy_(kept)
            else:
                owner[key] = kept.to(buffer.device, copy=True)

    def packed(self, parameters: list[Tensor]) -> dict[str, Any]:
        """As it is stored: dictionaries of tensors and plain values."""
        pairs = zip(parameters, self.parameters, strict=False)
        loose = {"loose": dict(self.loose)} if self.loose else {}
        return loose | {
            "parameters": {str(place): sharded_like(owner, part) for place, (owner, part) in enumerate(pairs)},
            "state": {str(place): dict(values) for place, values in self.state.items()},
            "groups": [dict(values) for values in self.groups],
            "masters": {str(place): value for place, value in self.masters.items()},
            "buffers": dict(self.buffers),
        }

    @classmethod
    def unpacked(cls, stored: dict[str, Any]) -> Snapshot:
        """The reverse, with tensors of its own."""
        parts = stored["parameters"]
        return cls(
            [local(parts[str(place)]).clone() for place in range(len(parts))],
            {int(place): copied(values) for place, values in stored["state"].items()},
            [copied(values) for values in stored["groups"]],
            {int(place): value.clone() for place, value in stored["masters"].items()},
            {name: buffer.clone() for name, buffer in stored["buffers"].items()},
            loose_entries(stored.get("loose", {})),
        )


def values_of_groups(probe: Probe) -> list[dict[str, Any]]:
    """Copies of all values in the base's parameter groups."""
    return [
        copied({name: value for name, value in group.items() if name != "params"}) for group in probe.base.param_groups
    ]


def _places(owners: list[BufferDict]) -> list[tuple[str, BufferDict, str]]:
    """A name for each buffer that can be written to, and where it is."""
    return [
        (f"{number}.{key}", owner, key)
        for number, owner in enumerate(owners)
        for key, buffer in owner.items()
        if buffer is not None and not is_lazy(buffer) and not cannot_be_written(buffer)
    ]


def _placed(values: dict[str, Any], parameter: Tensor, now: dict[str, Any]) -> dict[str, Any]:
    """State on the devices where it is now; what is not there now goes where torch has it, beside the parameter."""

    def device(name: str, value: Tensor) -> torch.device:
        like = now.get(name)
        return like.device if isinstance(like, Tensor) else value.device if name == "step" else parameter.device

    return {
        name: value.to(device(name, value)) if isinstance(value, Tensor) else value for name, value in values.items()
    }

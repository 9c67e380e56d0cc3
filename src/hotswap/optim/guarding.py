"""The guard of an optimizer: what it remembers, the snapshot, and the way back to it.

`hotswap.guards` decides when to go back. Here is what that means: parameters and their master weights, the base
optimizer's state, what the base writes into its parameter groups, and the buffers of the modules are again, bit for
bit, what they were at the snapshot. What the bandit has learned, random numbers and schedulers go on.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from hotswap.guards import Guard, GuardState, Judgement
from hotswap.optim.probing import Probe
from hotswap.optim.probing.buffers import cannot_be_written
from hotswap.optim.probing.modules import BufferDict
from hotswap.optim.probing.moves.shards import local, sharded_like
from hotswap.rewards import Reward

__all__ = ["Guarding", "Snapshot"]

NO_SNAPSHOT = GuardState(steps=-1, above=0, mean=0.0, lowest=0.0, kept=0.0, ceiling=0)
"""Before the first step: `Guard.start` for one run, as plain numbers."""


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

    @classmethod
    def of(cls, probe: Probe) -> Snapshot:
        """A snapshot of everything as it is."""
        parameters, state = probe.parameters(), probe.base.state
        return cls(
            [local(parameter).detach().clone() for parameter in parameters],
            {place: _copied(state[p]) for place, p in enumerate(parameters) if p in state},
            _groups_of(probe),
            probe.move.masters.read(parameters),
            {name: owner[key].detach().clone() for name, owner, key in _places(probe.buffers())},  # type: ignore[union-attr]
        )

    def restore(self, probe: Probe, written: set[str]) -> None:
        """Make everything as it was; of the parameter groups, the values that are `written` by the base itself."""
        parameters, state = probe.parameters(), probe.base.state
        for place, (parameter, saved) in enumerate(zip(parameters, self.parameters, strict=False)):
            local(parameter).copy_(saved)
            if place in self.state:
                state[parameter] = _placed(_copied(self.state[place]), parameter, state.get(parameter, {}))
            else:
                state.pop(parameter, None)
        for group, values in zip(probe.base.param_groups, self.groups, strict=False):
            group.update(_copied({name: value for name, value in values.items() if name in written}))
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
        return {
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
            {int(place): _copied(values) for place, values in stored["state"].items()},
            [_copied(values) for values in stored["groups"]],
            {int(place): value.clone() for place, value in stored["masters"].items()},
            {name: buffer.clone() for name, buffer in stored["buffers"].items()},
        )


@dataclass
class Guarding:
    """A guard at work. It changes in place."""

    guard: Guard
    state: GuardState = NO_SNAPSHOT
    snapshot: Snapshot | None = None
    rollbacks: int = 0
    """How often the run went back."""
    written: set[str] = field(default_factory=set)
    """Names of values in the parameter groups that the base's step itself was seen to change."""

    def judge(self, loss: float, arm: int, row: int, reward: Reward, scale: float) -> Judgement:
        """Look at the loss of one more step, see `Guard.judge`; `arm` was taken last."""
        judgement = self.guard.judge(self.state, loss, arm % row, row, reward, scale)
        self.state = judgement.state
        return judgement

    def keep(self, probe: Probe) -> None:
        """Take a snapshot, in place of the one before."""
        self.snapshot = None  # its memory is free for the new one
        self.snapshot = Snapshot.of(probe)

    def watch_the_base(self, probe: Probe) -> None:
        """At the end of the step that took a snapshot: what has changed in the groups since, the base has written."""
        if self.snapshot is not None:
            for saved, now in zip(self.snapshot.groups, _groups_of(probe), strict=False):
                self.written |= {name for name in now if not _equal(now[name], saved.get(name))}

    def go_back(self, probe: Probe) -> None:
        """Make everything as it was at the snapshot."""
        assert self.snapshot is not None  # the guard does not go back before there is one
        self.snapshot.restore(probe, self.written)
        self.rollbacks += 1

    def allowed(self, arm: int, row: int) -> int:
        """The arm, or the one that may be taken in its place, see `Guard.lowered`."""
        return int(self.guard.lowered(self.state, arm, row))

    def packed(self, parameters: list[Tensor]) -> dict[str, Any]:
        """As it is stored."""
        return {
            "state": list(self.state),
            "rollbacks": self.rollbacks,
            "written": sorted(self.written),
            "snapshot": {} if self.snapshot is None else self.snapshot.packed(parameters),
        }

    def load(self, stored: dict[str, Any] | None) -> None:
        """The reverse. Without a snapshot, the next step takes one.

        A distributed checkpoint loads only what the optimizer has already, so no snapshot where there was none.
        """
        self.state, self.snapshot, self.rollbacks, self.written = NO_SNAPSHOT, None, 0, set()
        if stored is not None:
            self.rollbacks, self.written = int(stored["rollbacks"]), set(stored["written"])
            if stored["snapshot"]:
                self.snapshot = Snapshot.unpacked(stored["snapshot"])
                self.state = GuardState(*stored["state"])


def _groups_of(probe: Probe) -> list[dict[str, Any]]:
    return [
        _copied({name: value for name, value in group.items() if name != "params"}) for group in probe.base.param_groups
    ]


def _places(owners: list[BufferDict]) -> list[tuple[str, BufferDict, str]]:
    """A name for each buffer that can be written to, and where it is."""
    return [
        (f"{number}.{key}", owner, key)
        for number, owner in enumerate(owners)
        for key, buffer in owner.items()
        if buffer is not None and not is_lazy(buffer) and not cannot_be_written(buffer)
    ]


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else deepcopy(value) for name, value in values.items()
    }


def _placed(values: dict[str, Any], parameter: Tensor, now: dict[str, Any]) -> dict[str, Any]:
    """State on the devices where it is now; what is not there now goes where torch has it, beside the parameter."""

    def device(name: str, value: Tensor) -> torch.device:
        like = now.get(name)
        return like.device if isinstance(like, Tensor) else value.device if name == "step" else parameter.device

    return {
        name: value.to(device(name, value)) if isinstance(value, Tensor) else value for name, value in values.items()
    }


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    same: bool = type(value) is type(other) and value == other
    return same

"""The lanes of a race: each has weights, optimizer state and buffers of its own.

One of them at a time is on the **track**: the model holds its weights and buffers, its base optimizer its state. The
others are parked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hotswap.optim.probing import Probe
from hotswap.optim.probing.buffers import BufferSnapshot
from hotswap.optim.probing.moves.low_precision import MasterWeights
from hotswap.optim.probing.moves.shards import local, sharded_like
from hotswap.optim.probing.moves.states import copied, loose_entries
from hotswap.optim.racing.bases import Driver
from hotswap.optim.snapshots import placed

__all__ = ["Lane", "watched"]


def _no_state() -> dict[Any, Any]:
    return defaultdict(dict)  # as torch's optimizers have it


@dataclass(eq=False)
class Lane:
    """A copy of the run.

    Weights and buffers are copied onto the track and back, because others may hold the model's tensors: data parallel
    replicas, recurrent networks with all weights in one piece. The optimizer's state is handed over as it is.
    """

    number: int
    """The arm whose values it has."""
    driver: Driver = field(repr=False)
    """The base optimizer that steps it."""
    offload: bool = False
    """Whether it is parked in the host's memory."""
    weights: dict[Tensor, Tensor] = field(default_factory=dict, repr=False)
    """By the parameter; those that nothing moves are left out."""
    state: dict[Any, Any] = field(default_factory=_no_state, repr=False)
    """The base optimizer's."""
    written: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """What the base itself has written into each parameter group."""
    absent: list[set[str]] = field(default_factory=list, repr=False)
    """What other lanes of this base have put into each parameter group, and this one's step has yet to."""
    masters: MasterWeights = field(default_factory=MasterWeights, repr=False)
    buffers: BufferSnapshot = field(default_factory=BufferSnapshot, repr=False)

    def park(self, probe: Probe) -> None:
        """Keep what is on the track."""
        there, kept = [], []
        for parameter in probe.parameters():
            if parameter.requires_grad:
                there.append(local(parameter))
                kept.append(self._place_for(parameter))
        torch._foreach_copy_(kept, there, non_blocking=self.offload)
        if owners := probe.buffers():
            self.buffers.read(owners, probe.parameters())
        if self.offload:
            self._move_state("cpu")

    def lacks_weights(self, probe: Probe) -> bool:
        """Whether there are parameters that move and that it has nothing of, because they did not move before."""
        return any(parameter.requires_grad and parameter not in self.weights for parameter in probe.parameters())

    def enter(self, probe: Probe) -> None:
        """Bring what was kept onto the track."""
        self.put_back(probe)
        if self.offload:
            self._move_state(None)
        self.hand_over(probe)

    def put_back(self, probe: Probe) -> None:
        """Give the model the weights and buffers that were kept."""
        there, kept = [], []
        for parameter in probe.parameters():
            if (weight := self.weights.get(parameter)) is not None:
                there.append(local(parameter))
                kept.append(weight)
        torch._foreach_copy_(there, kept, non_blocking=self.offload)
        if self.buffers.owners:
            self.buffers.write(resized=True)

    def hand_over(self, probe: Probe) -> None:
        """Let the base go on with this lane's state."""
        self.driver.enter(probe)
        probe.base.state = self.state  # type: ignore[assignment]  # a defaultdict, as it was
        probe.move.masters = self.masters
        for group, values in zip(probe.base.param_groups, self.written, strict=False):
            group.update(values)
        for group, names in zip(probe.base.param_groups, self.absent, strict=False):
            for name in names:
                group.pop(name, None)

    def packed(self, parameters: list[Tensor]) -> dict[str, Any]:
        """As it is stored while it is parked: the tensors themselves, by the places of their parameters."""
        pairs = [(str(place), parameter) for place, parameter in enumerate(parameters)]
        loose = loose_entries(self.state)
        return ({"loose": loose} if loose else {}) | {
            "weights": {place: sharded_like(p, self.weights[p]) for place, p in pairs if p in self.weights},
            "state": {place: dict(self.state[p]) for place, p in pairs if p in self.state},
            "written": [dict(values) for values in self.written],
            "masters": {str(place): value for place, value in self.masters.read(parameters).items()},
            "buffers": self.buffers.copies(),
        }

    def load(self, stored: dict[str, Any], probe: Probe) -> None:
        """The reverse, with tensors of its own."""
        parameters = probe.parameters()
        for place, value in stored["weights"].items():
            self._place_for(parameters[int(place)]).copy_(local(value))
        for place, values in stored["state"].items():
            self.state[parameters[int(place)]] = placed(copied(values), parameters[int(place)], {})
        self.state.update(loose_entries(stored.get("loose", {})))
        self.written = [copied(values) for values in stored["written"]]
        self.masters.write(parameters, {int(place): value for place, value in stored["masters"].items()})
        if owners := probe.buffers():
            self.buffers.read(owners, parameters)
            self.buffers.overwrite(stored["buffers"])
        if self.offload:
            self._move_state("cpu")

    def _place_for(self, parameter: Tensor) -> Tensor:
        """Memory for a parameter's weights."""
        known, here = self.weights.get(parameter), local(parameter)
        if known is None or known.shape != here.shape:
            if self.offload:
                known = torch.empty(here.shape, dtype=here.dtype, device="cpu", pin_memory=here.is_cuda)
            else:
                known = torch.empty_like(here, requires_grad=False)
            self.weights[parameter] = known
        return known

    def _move_state(self, device: str | None) -> None:
        """Move the optimizer's state to the host, or (None) to the devices of its parameters.

        Tensors of one number stay where they are: torch keeps counters of steps on the host.
        """
        for parameter, values in self.state.items():
            if not isinstance(parameter, Tensor):
                continue
            to = torch.device(device) if device is not None else local(parameter).device
            for name, value in values.items():
                if isinstance(value, Tensor) and value.dim():
                    values[name] = value.to(to)


def watched(lane: Lane, lanes: Sequence[Lane], step: Callable[[], None]) -> None:
    """A step of the base for one of the lanes, after which it is known what the base writes into its groups."""
    groups = lane.driver.base.param_groups
    before = [dict(group) for group in groups]
    step()
    for place, (group, old) in enumerate(zip(groups, before, strict=True)):
        for name, value in group.items():
            if value is not old.get(name) and name != "params":
                lane.driver.written.add(name)
                for other in lanes:
                    if other.driver is lane.driver:
                        _have_own(other, place, name, old)
                lane.written[place][name] = value
                lane.absent[place].discard(name)


def _have_own(lane: Lane, place: int, name: str, before: Mapping[str, Any]) -> None:
    """From now on the lane has its own value in a parameter group: what was there `before`, or nothing."""
    lane.written += [{} for _ in range(place + 1 - len(lane.written))]  # for groups that were added since
    lane.absent += [set() for _ in range(place + 1 - len(lane.absent))]
    if name in before:
        lane.written[place].setdefault(name, before[name])
    elif name not in lane.written[place]:
        lane.absent[place].add(name)

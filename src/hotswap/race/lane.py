"""Lanes: the optimizers that race, and everything that belongs to one of them while another one has the model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from hotswap.errors import SettingError
from hotswap.race.average import Average
from hotswap.race.memory import Blocks, hosted
from hotswap.race.muon import Muon, told, trained
from hotswap.race.processes import local, reshard
from hotswap.race.snapshots import Host, copied, on_host, restore_optimizer, saved_optimizer, size_of, wrapped

__all__ = ["Lane", "Seat", "lanes", "named", "scheduled"]

MUON_RATES = (1.2e-2, 4e-3, 3.6e-2, 1.3e-3)
ADAMW_RATES = (1e-2, 3e-3, 3e-2)
SGD_RATES = (0.3, 0.1, 1.0)


def lanes(model: nn.Module, muon: Literal["auto"] | bool = "auto") -> list[Optimizer]:
    """The optimizers that race by default; runs that are too short for all of them race the first ones.

    Args:
        model: the network.
        muon: whether lanes of `Muon` race. "auto" races them on an accelerator: on a CPU, orthogonalizing takes longer
            than the forward and backward pass of a small network.
    """
    if muon not in ("auto", True, False):
        raise SettingError(f"lanes(muon={muon!r}): choose 'auto', True or False.")
    if not isinstance(model, nn.Module):
        raise SettingError(f"lanes() needs the model, and was given {told(model)}; write lanes(model).")
    parameters = trained(model, "lanes")
    matrices = Muon(model).has_matrices()
    if matrices and (muon is True or (muon == "auto" and any(p.device.type != "cpu" for p in parameters))):
        return [Muon(model, lr=rate) for rate in MUON_RATES]
    found: list[Optimizer] = [AdamW(_groups(parameters), lr=rate) for rate in ADAMW_RATES]
    if not matrices:
        found += [SGD(parameters, lr=rate, momentum=0.9, nesterov=True) for rate in SGD_RATES]
    return found


def _groups(parameters: Sequence[Tensor]) -> list[dict[str, Any]]:
    """One group, or a second one without weight decay for vectors."""
    vectors = [p for p in parameters if p.ndim <= 1]
    others = [p for p in parameters if p.ndim > 1]
    groups = [{"params": others}] if others else []
    return groups + ([{"params": vectors, "weight_decay": 0.0}] if vectors else [])


@dataclass(eq=False)
class Lane:
    """One optimizer in a race."""

    name: str
    optimizer: Optimizer
    own: bool = False
    """Whether the user brought the optimizer to race beside the default lanes."""
    rates: list[float | None] = field(default_factory=list)
    """The rate of each of the optimizer's groups, before any schedule."""
    scheduler: LRScheduler | None = None
    steps: int = 0
    losses: list[float] = field(default_factory=list)
    """The losses of the lane's steps in the round so far."""
    loss: float | None = None
    """The mean by which the race judged the lane last."""
    dropped: str = ""
    """The reason why the lane was dropped; empty while it races."""
    dropped_at: int | None = None
    """The step of the run at which it was dropped."""
    failures: int = 0
    """Turns in a row that were lost because something was not finite."""
    average: Average | None = None
    parked: dict[str, Any] | None = None
    """All that it is, in the host's memory, as it was when its last turn ended; None before its first one."""

    blocks: Blocks = field(default_factory=Blocks)
    """The memory in which it is parked."""
    factor: float = math.nan
    """The factor by which the lane's rates have been multiplied; not a number if the next step has to set them."""

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no pinned memory yet."""
        return {**vars(self), "blocks": Blocks()}

    def free(self) -> None:
        """Give up the memory that it needs to train."""
        self.parked, self.blocks = None, Blocks()
        self.optimizer.state.clear()
        if self.average is not None:
            self.average = Average()

    @property
    def group(self) -> object:
        """Lanes of one kind of optimizer are compared early; the user's own is a kind of its own."""
        return self.own or type(self.optimizer)

    def is_larger_than(self, other: Lane) -> bool:
        """Whether its rate is larger than another lane's and its updates have a fixed length, as Muon's have."""
        mine, others = self.rates[0], other.rates[0]
        return isinstance(self.optimizer, Muon) and mine is not None and others is not None and mine > others

    def scale(self, factor: float) -> None:
        """Set its rates, to its own rates times a factor."""
        self.factor = factor
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if rate is None:
                continue
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def add(self, group: dict[str, Any], rate: float | None) -> None:
        """Add a group of parameters, here and in the parked copy; without a rate it has the optimizer's default one."""
        known, new = self.optimizer.defaults, list(group["params"])
        values = {name: v for name, v in group.items() if name in known and name != "lr"} if self.own else {}
        self.optimizer.add_param_group({**values, **({} if rate is None else {"lr": rate}), "params": new})
        added = self.optimizer.param_groups[-1]
        self.rates.append(added.get("lr"))
        self.factor = math.nan
        if self.average is not None and self.average.tensors:
            self.average.tensors += Average.first(new)
        if self.parked is None:
            return
        self.parked["optimizer"]["groups"].append({k: v for k, v in added.items() if k != "params"})
        if self.parked["model"] is not None:
            self.parked["model"]["weights"] += on_host(new)
        if self.parked["average"] is not None and self.parked["average"]["count"]:
            self.parked["average"]["tensors"] += on_host(Average.first(new))


class Seat:
    """The model, which one lane has at a time: its trained weights, its buffers, and further tensors of a lane."""

    def __init__(self, model: nn.Module, weights: Sequence[Tensor], also: Sequence[Tensor]) -> None:
        self.model, self.weights, self.also = model, list(weights), list(also)
        self.names = self._names(weights)

    def add(self, weights: Sequence[Tensor]) -> None:
        """Take in further weights that are trained."""
        self.weights += weights
        self.names += self._names(weights)

    def _names(self, weights: Sequence[Tensor]) -> list[str]:
        """The names that weights have in the model."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        return [names.get(id(p), "") for p in weights]

    def saved(self, old: dict[str, Any] | None = None, host: Host = hosted) -> dict[str, Any]:
        """The values of the model as they are now, in the host's memory."""
        now: dict[str, Any] = copied(self._values(), host, old)
        return now

    def _values(self) -> dict[str, Any]:
        return {"weights": self.weights, "buffers": dict(self.model.named_buffers()), "also": self.also}

    def size(self, lane: Lane, here: Lane) -> int:
        """The bytes that a lane will take in the host's memory, judged by the lane that trains now."""
        state = size_of(list(here.optimizer.state.values()))
        if type(lane.optimizer) is not type(here.optimizer):
            state = max(state, 2 * size_of(self.weights))
        if lane is not here and not local(self.weights[0]).is_cuda:
            state *= 2  # in its optimizer and parked
        return size_of(self._values()) + state + (size_of(self.weights) if lane.average is not None else 0)

    @torch.no_grad()
    def load(self, saved: dict[str, Any]) -> None:
        """Write saved values into the model, in place."""
        for tensor, value in zip([*self.weights, *self.also], [*saved["weights"], *saved["also"]], strict=True):
            local(tensor).copy_(value, non_blocking=True)
        self.load_buffers(saved["buffers"])
        reshard(self.model)

    @torch.no_grad()
    def load_buffers(self, saved: dict[str, Tensor]) -> None:
        """Write saved buffers into the model; one whose shape has changed is replaced."""
        for name, buffer in self.model.named_buffers():
            value = saved.get(name)
            if value is None:
                continue
            if local(buffer).shape == value.shape and buffer.dtype == value.dtype:
                local(buffer).copy_(value, non_blocking=True)
            else:
                path, _, last = name.rpartition(".")
                self.model.get_submodule(path)._buffers[last] = value.to(buffer.device, copy=True)

    def adopt(self, groups: Sequence[dict[str, Any]], optimizers: Sequence[Optimizer]) -> None:
        """Before the first step, take over parameters that stand in the place of those that the race was made with.

        Sharding makes new ones, and so does loading with `assign=True`. Accelerate puts them into the race's `groups`.
        """
        reshard(self.model)
        named, given = dict(self.model.named_parameters()), [p for group in groups for p in group["params"]]
        new: dict[int, Tensor] = {}
        for name, old, now in zip(self.names, self.weights, given, strict=True):
            new[id(old)] = new[id(now)] = now if now is not old else named.get(name, old)
        self.weights = [new[id(p)] for p in self.weights]
        inner = [one for optimizer in optimizers for _, one in wrapped(optimizer)]
        for group in [*groups, *(group for optimizer in [*optimizers, *inner] for group in optimizer.param_groups)]:
            group["params"] = [new.get(id(p), p) for p in group["params"]]

    def magnitude(self, lane: Lane) -> Tensor:
        """One number, which is finite if the weights are, and the tensors of their shapes in the lane's optimizer."""
        state = lane.optimizer.state
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for weight in self.weights:
            for value in (weight, *state.get(weight, {}).values()):
                if isinstance(value, Tensor) and value.shape == weight.shape and value.layout == torch.strided:
                    part = local(value)
                    if part.numel() and (part.is_floating_point() or part.is_complex()):
                        kinds.setdefault((part.device, part.dtype), []).append(part)
        device = self.weights[0].device
        sums = [_magnitude(tensors).to(device, torch.float32) for tensors in kinds.values()]
        return sum(sums, torch.zeros(1, device=device))

    def park(self, lane: Lane) -> None:
        """Copy all that the lane is from the model and the device into the host's memory."""
        old = lane.parked or {}
        average, host = lane.average.saved() if lane.average else None, lane.blocks.hosted
        lane.blocks.expected = lane.blocks.expected or self.size(lane, lane)
        lane.parked = {
            "steps": lane.steps,
            "model": self.saved(old.get("model"), host),
            "optimizer": saved_optimizer(lane.optimizer, old.get("optimizer"), host),
            "average": copied(average, host, old.get("average")),
            "scheduler": None if lane.scheduler is None else dict(lane.scheduler.state_dict()),
        }

    def unused(self, lane: Lane) -> dict[str, Any]:
        """A lane before its first turn, as `park` would have parked it; its model is the one before the first step."""
        return {
            "steps": 0,
            "model": None,
            "optimizer": saved_optimizer(lane.optimizer),
            "average": None if lane.average is None else {"count": 0, "tensors": []},
            "scheduler": None if lane.scheduler is None else dict(lane.scheduler.state_dict()),
        }

    def release(self, lane: Lane) -> None:
        """Free what a parked lane still has on the device."""
        if any(p.device.type != "cpu" for p in self.weights):
            lane.optimizer.state.clear()
        if lane.average:
            lane.average.tensors = []

    def bring(self, lane: Lane, start: dict[str, Any]) -> None:
        """Put a parked lane into the model; `start` is the model before the first step, for a lane that is new."""
        assert lane.parked is not None
        self.load(lane.parked["model"] or start)
        restore_optimizer(lane.optimizer, lane.parked["optimizer"])
        lane.steps, lane.factor = lane.parked["steps"], math.nan
        if lane.scheduler is not None:
            lane.scheduler.load_state_dict(dict(lane.parked["scheduler"]))
        if lane.average is not None:
            lane.average.load(copied(lane.parked["average"], self.on_device))

    def on_device(self, saved: Tensor, _: object) -> Tensor:
        """A copy of a saved tensor beside the weights."""
        return saved.to(self.weights[0].device, copy=True, non_blocking=True)


@torch.no_grad()
def _magnitude(tensors: list[Tensor]) -> Tensor:
    """One number, which is finite if tensors of one type are; no squares, which overflow early."""
    first = tensors[0]
    wide = torch.float32 if first.dtype in (torch.float16, torch.bfloat16) else first.dtype
    if first.is_cuda and not first.is_complex():  # one launch for many tensors
        return torch.stack(torch._foreach_norm(tensors, 1, wide)).sum()
    return torch.stack([tensor.sum(dtype=wide).abs() for tensor in tensors]).sum()


def named(optimizers: Sequence[Optimizer], own: Optimizer | None) -> list[Lane]:
    """A lane for each optimizer, with a name that tells it from the others."""
    found: list[Lane] = []
    for optimizer in optimizers:
        rate = optimizer.param_groups[0].get("lr")
        name = type(optimizer).__name__ + ("" if rate is None else f" {float(rate):.3g}")
        same = sum(lane.name.split(" #")[0] == name for lane in found)
        found.append(
            Lane(
                f"{name} #{same + 1}" if same else name,
                optimizer,
                own=optimizer is own,
                rates=[float(group["lr"]) if "lr" in group else None for group in optimizer.param_groups],
            )
        )
    return found


def scheduled(lane: Lane, make: Callable[[Optimizer], LRScheduler]) -> None:
    """Give a lane a scheduler of the user's."""
    scheduler = lane.scheduler = make(lane.optimizer)
    if not isinstance(scheduler, LRScheduler) or getattr(scheduler, "optimizer", None) is not lane.optimizer:
        raise SettingError(
            f"Race(schedule=...) returned {scheduler!r}: the function must return a torch scheduler of the optimizer "
            "that it is given."
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        raise SettingError(
            "Race(schedule=...) returned a ReduceLROnPlateau, which needs a loss at each step; put it around the race: "
            "ReduceLROnPlateau(race)."
        )

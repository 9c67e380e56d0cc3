"""The optimizers of a race, and which of them drives which lane.

All bases step the same parameters and share one list of parameter groups, the race's, on which schedulers and loggers
rely. One base at a time is on the track: that of the lane that is there. Its hyperparameters are in the groups, and
those of the others wait. `lr` stays, and so does what schedulers write beside it: it is the user's scale of all rates,
in units of the first base's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from hotswap.arms import Arms, Value
from hotswap.errors import SettingError, UnsupportedError
from hotswap.optim.probing import Probe
from hotswap.optim.probing.moves.base import ParamGroup
from hotswap.optim.probing.moves.exact import Exact
from hotswap.optim.probing.moves.low_precision import MasterWeights
from hotswap.optim.probing.moves.states import copied, loose_entries
from hotswap.optim.racing.grids import Choices, JoinedArms, arms_of_bases
from hotswap.optim.records import applied
from hotswap.optim.wrapper import Wrapper
from hotswap.races import nearest

__all__ = ["Bases", "Driver"]

SHARED = frozenset({"params", "param_names", "lr", "initial_lr"})
"""What is in a parameter group whoever drives."""


@dataclass(eq=False)
class Driver(Exact):
    """A base of a race, and how it takes the steps of its lanes."""

    name: str = ""
    first: int = 0
    """The number of its first lane."""
    rates: list[float] = field(default_factory=list)
    """The `lr` of each of its own parameter groups, before any scheduler has changed it."""
    units: list[float] = field(default_factory=list)
    """The same of the first base, in units of which the user's scale is written."""
    waiting: list[ParamGroup] = field(default_factory=list, repr=False)
    """Its values in each parameter group while another base is on the track. Of those that it writes itself, the values
    before the first step: each lane has its own."""
    loose: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What its state has before the first step."""
    written: set[str] = field(default_factory=set, repr=False)
    """Names of values in the parameter groups that its steps change."""

    def base_values(self, arm: int) -> dict[str, Any]:
        """See `Move.base_values`; `arm` is the number of a lane. The `lr` of the groups is of use to the first base
        alone."""
        values = super().base_values(arm - self.first)
        return {"lr": self.initial_lr, **values} if self.first else values

    def scale(self, group: ParamGroup) -> float:
        """See `Move.scale`: the share that its own group has, times what a scheduler has changed since."""
        if not self.first:
            return super().scale(group)
        groups, place, now = self.base.param_groups, 0, float(group["lr"])
        while groups[place] is not group:
            place += 1
        if place >= len(self.rates):  # a group that was added since, for all bases alike
            return now / self.units[0]
        changed = now / self.units[place] if self.units[place] else 1.0
        return self.rates[place] / self.rates[0] * changed

    def enter(self, probe: Probe) -> None:
        """Let this base take the steps from now on, in place of the one that has done so."""
        before = probe.move
        if before is self:
            return
        assert isinstance(before, Driver)  # as all moves of a race are
        before.leave()
        self.base.param_groups = before.base.param_groups
        for group, values in zip(self.base.param_groups, self.waiting, strict=True):
            group.update(values)
        probe.base, probe.move = self.base, self

    def leave(self) -> None:
        """Take its values out of the parameter groups, and let go of the state of the lane that it has stepped."""
        for group, values in zip(self.base.param_groups, self.waiting, strict=True):
            for name in [name for name in group if name in values or name in self.written]:
                value = group.pop(name)
                if name not in self.written:
                    values[name] = value
        self.forget_lane()

    def forget_lane(self) -> None:
        """Have the state that it had before the first step."""
        self.base.state = defaultdict(dict, loose_entries(self.loose))
        self.masters = MasterWeights()

    def own_values(self, group: ParamGroup) -> ParamGroup:
        """Copies of what is its own in a parameter group."""
        return copied({name: value for name, value in group.items() if name not in SHARED})


class Bases:
    """The bases of a race. With one of them, it is on the track from the beginning to the end."""

    def __init__(self, bases: Sequence[Optimizer], arms: Sequence[Arms]) -> None:
        names = [type(base).__name__ for base in bases]
        rates = [[_rate_of(group) for group in base.param_groups] for base in bases]
        self.drivers: list[Driver] = []
        self.arms: Arms | JoinedArms = arms[0] if len(arms) == 1 else JoinedArms(tuple(arms))
        """Of all lanes."""
        first = 0
        for place, (base, name, part) in enumerate(zip(bases, names, arms, strict=True)):
            own, which = rates[place], f" {names[: place + 1].count(name)}" if names.count(name) > 1 else ""
            self.drivers.append(Driver(base, part, own[0], name=name + which, first=first, rates=own, units=rates[0]))
            first += len(part)

    @classmethod
    def of(cls, given: object, arms: Choices | Sequence[Choices | None] | None) -> Bases:
        """The bases that a user has given, one or several, with the values of their lanes."""
        bases: Sequence[Any] = given if isinstance(given, list | tuple) else [given]
        if not bases:
            raise SettingError("Race([]): there is no base; give one, such as torch.optim.AdamW(model.parameters()).")
        for base in bases:
            _check_base_of_race(base)
        for place, base in enumerate(bases):
            for before in bases[:place]:
                _check_that_they_go_together(before, base, place + 1)
        return cls(bases, arms_of_bases(bases, arms))

    @property
    def several(self) -> bool:
        """Whether there are lanes of different bases."""
        return len(self.drivers) > 1

    def driver(self, lane: int) -> Driver:
        """The base that steps a lane."""
        return next(driver for driver in reversed(self.drivers) if driver.first <= lane)

    def nearest(self) -> int:
        """The lane that leads before any was judged: that of the first base whose rate is nearest to the base's own."""
        first = self.drivers[0]
        rate, arms = first.initial_lr, first.arms
        rates = [float(arms.values(arm).get("lr", rate)) for arm in range(len(arms))]  # type: ignore[arg-type]
        return nearest(rates, rate)

    def applied(self, lane: int, scale: float) -> dict[str, Value]:
        """What a lane's step sets, by name, in a parameter group whose rate is `scale` times the lane's."""
        driver = self.driver(lane)
        return applied(driver.arms, lane - driver.first, scale)

    def join(self) -> None:
        """From now on the groups of the first base are those of all."""
        if not self.several:
            return
        for driver in self.drivers:
            driver.waiting = [driver.own_values(group) for group in driver.base.param_groups]
            driver.loose = loose_entries(driver.base.state)
        self.share(self.drivers[0])

    def share(self, on_track: Driver) -> None:
        """Let all bases have the groups of the one that is on the track."""
        for driver in self.drivers:
            if driver is not on_track:
                driver.base.param_groups = on_track.base.param_groups
                driver.forget_lane()

    def add_group(self, group: ParamGroup, on_track: Optimizer) -> None:
        """Add a group to all bases, each with its own defaults; of `lr` it is that of the first base."""
        if not self.drivers[0].waiting:  # there is one base, or they are not joined yet
            on_track.add_param_group(group)
            return
        if isinstance(group["params"], Iterator):
            group["params"] = list(group["params"])
        group.setdefault("lr", self.drivers[0].base.defaults["lr"])
        given, shared = dict(group), on_track.param_groups
        on_track.add_param_group(group)
        for driver in self.drivers:
            if driver.base is not on_track:
                driver.base.param_groups = []
                driver.base.add_param_group(dict(given))
            driver.waiting.append(driver.own_values(driver.base.param_groups[-1]))
            driver.base.param_groups = shared

    def packed(self) -> dict[str, Any]:
        """What they remember, in a checkpoint; nothing where there is one."""
        if not self.several:
            return {}
        rows = [{"rates": list(one.rates), "values": [dict(group) for group in one.waiting]} for one in self.drivers]
        return {"bases": rows}

    def load(self, initial_lr: float, rows: Sequence[dict[str, Any]], written: set[str]) -> None:
        """The reverse; `written` has the names of all bases."""
        self.drivers[0].initial_lr = initial_lr
        for driver, row in zip(self.drivers, rows, strict=False):
            driver.rates, driver.units = list(row["rates"]), list(rows[0]["rates"])
            driver.initial_lr = driver.rates[0]
            driver.waiting = [copied(group) for group in row["values"]]
        for driver in self.drivers:
            driver.written = set(written)

    def __repr__(self) -> str:
        told = []
        for driver in self.drivers:
            axes = zip(driver.arms.names, driver.arms.axes, strict=True)
            told.append(f"{driver.name}, lanes: {' x '.join(f'{len(axis)} {name}' for name, axis in axes)}")
        return "; ".join(told)


def _rate_of(group: ParamGroup) -> float:
    return float(group["initial_lr"] if "initial_lr" in group else group.get("lr", 1.0))


def _check_base_of_race(base: object) -> None:
    if not isinstance(base, Optimizer):
        raise SettingError(
            f"Race: the base is of type {type(base).__name__}, not a torch.optim.Optimizer, such as "
            "torch.optim.AdamW(model.parameters())."
        )
    if isinstance(base, Wrapper):
        raise UnsupportedError(f"Race cannot be around a {type(base).__name__}; give it the base of that.")
    if isinstance(base, torch.optim.LBFGS):
        raise UnsupportedError("Race cannot be around LBFGS, which evaluates the closure itself, as often as it likes.")
    entries = [entry for key, entry in base.state.items() if isinstance(key, Tensor) and entry]
    if entries and not any(entry.get("step", 1) for entry in entries):
        raise UnsupportedError(
            f"Race cannot be around {type(base).__name__}, which makes its state when it is constructed: lanes begin "
            "with none. Race another optimizer, such as torch.optim.RMSprop."
        )
    if entries:
        raise SettingError(
            f"Race: the base, {type(base).__name__}, has state already, of steps before; a race begins at the "
            "beginning, so give it a new optimizer."
        )


def _check_that_they_go_together(first: Optimizer, base: Optimizer, number: int) -> None:
    who = f"Race: base {number}, {type(base).__name__},"
    if base is first or any(one is other for one in first.param_groups for other in base.param_groups):
        raise SettingError(
            f"{who} has the parameter groups of one before it, the very same dictionaries, and so its values; "
            "make the groups anew for each optimizer."
        )
    for optimizer in (first, base):
        if any("lr" not in group for group in optimizer.param_groups):
            raise SettingError(
                f"Race: {type(optimizer).__name__} has no lr, by which the rates of all bases would be scaled; race it "
                "alone."
            )
    parameters = [[[id(p) for p in group["params"]] for group in one.param_groups] for one in (first, base)]
    if parameters[0] != parameters[1]:
        raise SettingError(
            f"{who} has other parameters than {type(first).__name__}, or has them in other groups; all "
            "bases step the same, in the same groups and in the same order."
        )

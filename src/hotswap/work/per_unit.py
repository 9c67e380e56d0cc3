"""The resources that one unit needs of a node: cores, GPUs or a share of one, and others that nodes have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from hotswap.errors import SettingError

__all__ = ["PerUnit"]

_ITS_NAME = {"cpu": "CPU", "gpu": "GPU"}  # as Ray calls them


@dataclass(frozen=True, kw_only=True)
class PerUnit:
    """The resources that one unit needs.

    Attributes:
        cpu: Cores; a unit computes in so many threads.
        gpu: GPUs; a fraction lets several units share one.
        others: Resources that the cluster's nodes were started with, as pairs of name and amount.
    """

    cpu: float = 1.0
    gpu: float = 0.0
    others: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, amount in self.needs().items():
            if not math.isfinite(amount) or amount < 0:
                raise SettingError(f"PerUnit: {name} is {amount}; it must be a finite number, 0 or more.")
            if amount > 1 and amount != int(amount):
                raise SettingError(f"PerUnit: {name} is {amount}; above 1 it must be a whole number.")
        if not any(self.needs().values()):
            raise SettingError("PerUnit: a unit needs something, or all units would run at once; give cpu or gpu.")

    @classmethod
    def parse(cls, texts: Iterable[str], *, device: str = "cpu") -> Self:
        """From the command line's `gpu=0.5,cpu=2`. A unit on a GPU has one, if nothing else is said."""
        amounts: dict[str, float] = {"cpu": 1.0, "gpu": 0.0 if device == "cpu" else 1.0}
        for text in (part.strip() for whole in texts for part in whole.split(",")):
            name, _, amount = text.partition("=")
            try:
                amounts[name.strip()] = float(amount)
            except ValueError:
                raise SettingError(
                    f"--per-unit {text}: give a name and an amount, such as gpu=0.5 or cpu=2, or both: gpu=1,cpu=4."
                ) from None
        cpu, gpu = amounts.pop("cpu"), amounts.pop("gpu")
        return cls(cpu=cpu, gpu=gpu, others=tuple(sorted(amounts.items())))

    @property
    def threads(self) -> int:
        """In how many threads a unit computes."""
        return max(1, int(self.cpu))

    def needs(self) -> dict[str, float]:
        """By name, as it was asked for."""
        return {"cpu": self.cpu, "gpu": self.gpu, **dict(self.others)}

    def options(self) -> dict[str, Any]:
        """The same as the options of a Ray task."""
        return {"num_cpus": self.cpu, "num_gpus": self.gpu, "resources": dict(self.others)}

    def room(self, node: Mapping[str, float]) -> int:
        """How many units a node with these resources has room for at once."""
        needs = {_ITS_NAME.get(name, name): amount for name, amount in self.needs().items() if amount}
        return min(math.floor(node.get(name, 0.0) / amount + 1e-9) for name, amount in needs.items())

    def check(self, nodes: Iterable[Mapping[str, float]]) -> None:
        """Raise a SettingError if no node will ever have room for a unit."""
        nodes = list(nodes)
        if any(self.room(node) for node in nodes):
            return
        for name, amount in self.needs().items():
            most = max((node.get(_ITS_NAME.get(name, name), 0.0) for node in nodes), default=0.0)
            if most < amount:
                has = "has none" if not most else f"has at most {most:g} on a node"
                raise SettingError(
                    f"A unit is to have {name}={amount:g}, but the cluster {has}; ask for less with --per-unit, or add "
                    "nodes that have it."
                )
        raise SettingError(f"No node of the cluster has all of {self}; ask for less with --per-unit.")

    def __str__(self) -> str:
        return ",".join(f"{name}={amount:g}" for name, amount in self.needs().items() if amount)

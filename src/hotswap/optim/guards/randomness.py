"""Random numbers: the states of torch's default generators, to be read and gone back to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Randomness"]


class Randomness:
    """The default generators of the CPU and of the devices that the parameters are on.

    The generators themselves are asked: torch's functions around them take several times as long, in every trial.
    """

    def __init__(self) -> None:
        self._devices: set[torch.device] = set()
        self._generators = [torch.default_generator]

    def survey(self, devices: Iterable[torch.device]) -> None:
        """Whose generators there are; a model may have moved."""
        devices = set(devices)
        if devices != self._devices:
            others = sorted((device for device in devices if device.type not in ("cpu", "meta")), key=str)
            self._generators = [torch.default_generator, *(_generator(device) for device in others)]
            self._devices = devices

    def read(self) -> list[Tensor]:
        """The states now."""
        return [generator.get_state() for generator in self._generators]

    def is_at(self, states: list[Tensor]) -> bool:
        """Whether nothing was drawn since these were read."""
        return all(map(torch.equal, self.read(), states))

    def write(self, states: list[Tensor]) -> None:
        """Go back to what was read."""
        for generator, state in zip(self._generators, states, strict=True):
            generator.set_state(state)


def _generator(device: torch.device) -> torch.Generator:
    module: Any = torch.get_device_module(device)
    if device.type == "mps":
        found: torch.Generator = module._get_default_mps_generator()
    else:
        found = module.default_generators[device.index]
    return found

"""The guard of an optimizer: what it remembers, the snapshot, and the way back to it.

`hotswap.guards` decides when to go back. Here is what that means: parameters and their master weights, the base
optimizer's state, what the base writes into its parameter groups, and the buffers of the modules are again, bit for
bit, what they were at the snapshot. What the bandit has learned, random numbers and schedulers go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hotswap.guards import Guard, GuardState, Judgement
from hotswap.optim.probing import Probe
from hotswap.optim.snapshots import Snapshot, values_of_groups
from hotswap.rewards import Reward

__all__ = ["Guarding"]

NO_SNAPSHOT = GuardState(steps=-1, above=0, mean=0.0, lowest=0.0, kept=0.0, ceiling=0)
"""Before the first step: `Guard.start` for one run, as plain numbers."""


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
            for saved, now in zip(self.snapshot.groups, values_of_groups(probe), strict=False):
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
                steps, above, mean, lowest, kept, ceiling = stored["state"]
                self.state = GuardState(steps, above, float(mean), float(lowest), float(kept), ceiling)


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, Tensor) and isinstance(other, Tensor):
        return torch.equal(value, other)
    same: bool = type(value) is type(other) and value == other
    return same

"""What every update of an ensemble is: the parameters of R runs, the pieces of a step, and sums over an epoch.

Every tensor that outlives a step is kept and written in place, so that a step can be captured once in a CUDA graph and
replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from hotswap.ensemble.model import Model
from hotswap.errors import CheckpointError

__all__ = ["Tally", "Update", "copy_by_name"]


@dataclass
class Tally:
    """Sums over the steps of an epoch, one value per run, float64."""

    sums: dict[str, Tensor]
    """`(R,)` each: what the update has declared, such as `mean_lr` and `trials`; the engine divides by the steps."""
    norm: Tensor
    """`(R,)` the sum of the gradient norms."""
    norms: Tensor
    """`(R,)` how many gradient norms were summed."""
    arms: Tensor
    """`(R, K)` how often each arm was taken; K = 0 for algorithms without arms."""
    totals: dict[str, Tensor] = field(default_factory=dict)
    """`(R,)` each: sums over the whole run, which no epoch clears; an update keeps them in its state."""

    @classmethod
    def zero(cls, runs: int, arms: int, names: Sequence[str], device: torch.device) -> Tally:
        """Nothing counted yet."""
        norm, norms, *sums = torch.zeros(2 + len(names), runs, dtype=torch.float64, device=device).unbind()
        taken = torch.zeros(runs, arms, dtype=torch.float64, device=device)
        return cls(dict(zip(names, sums, strict=True)), norm, norms, taken)

    def clear(self) -> None:
        """Start a new epoch."""
        for tensor in (self.norm, self.norms, self.arms, *self.sums.values()):
            tensor.zero_()

    def add_norm_of(self, direction: Tensor) -> None:
        """Count the Euclidean norm of the gradients `(R, P)` of a step."""
        self.norm += torch.linalg.vector_norm(direction, dim=1)
        self.norms += 1


class Update(ABC):
    """The parameters of R runs and what trains them. `theta` has a row for each run."""

    def __init__(self, model: Model, theta: Tensor, sums: Sequence[str] = (), arms: int = 0) -> None:
        self.model, self.theta = model, theta
        self.watched = True
        self.tally = Tally.zero(len(theta), arms, sums, theta.device)

    def begin(self, steps: int) -> None:  # noqa: B027  # most do not care
        """Called by the ensemble before anything is trained: an epoch has so many steps."""

    @abstractmethod
    def parts(self) -> dict[str, Callable[[Tensor, Tensor], None]]:
        """The pieces of a step, each of which can be captured in a graph of its own; called with a minibatch."""

    looks_ahead: bool = False
    """Whether a step reads `next_minibatch`, inputs and labels of the minibatch after its own."""
    next_minibatch: tuple[Tensor, Tensor]

    openings: frozenset[str]
    """The pieces with one of which a step begins: they are given the next minibatch."""

    @abstractmethod
    def step(self, run: Callable[[str], None], number: int) -> None:
        """One step: `run(name)` executes a piece. `number` counts the steps of an epoch."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Every tensor that decides what the next steps do; the very tensors, so that copying into them restores."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from the tensors of a snapshot, by the names that `state` gave them.

        Raises:
            CheckpointError: One of them is missing or has another shape.
        """
        copy_by_name(tensors, self.state())

    def begin_epoch(self, epoch: int, *, watched: bool = True) -> None:
        """Called before the steps of epoch number `epoch`, counted from 0; `watched`: its tally will be read."""
        self.watched = watched
        self.tally.clear()


def copy_by_name(saved: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy the tensors of a snapshot into those of a state, all of them or none.

    Raises:
        CheckpointError: One of them is missing or has another shape.
    """
    for name, tensor in state.items():
        if name not in saved:
            raise CheckpointError(
                f"The snapshot is of another algorithm or network: it has no {name!r}; continue with what wrote it."
            )
        if saved[name].shape != tensor.shape:
            raise CheckpointError(
                f"The snapshot is of other runs: its {name!r} has the shape {tuple(saved[name].shape)}, but "
                f"{tuple(tensor.shape)} is needed; continue with the runs that it was written with."
            )
    for name, tensor in state.items():
        tensor.copy_(saved[name])

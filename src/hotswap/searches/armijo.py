"""The sufficient-decrease rule of stochastic line searches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hotswap.arrays import Array
from hotswap.errors import SettingError
from hotswap.searches.base import SEARCHES
from hotswap.searches.downward import DownwardSearch, Walk

__all__ = ["Armijo"]


@dataclass(frozen=True)
class _Slope:
    """The field `slope`, in a class of its own so that it comes before those of `DownwardSearch`."""

    slope: float = 0.1


@SEARCHES.register("armijo")
@dataclass(frozen=True)
class Armijo(DownwardSearch, _Slope):
    """Take the first rate that lowers the loss by enough: `f(θ′) ≤ f(θ) − slope · ⟨g, θ − θ′⟩`.

    ⟨g, θ − θ′⟩ is by how much the loss would fall from θ to the trial's θ′ if it were linear. g is the gradient of the
    closure's loss, clipped where the optimizer clips, and without weight decay; θ − θ′ is all of the step. A rate must
    lower the loss in any case: where ⟨g, θ − θ′⟩ is not positive, as momentum may have it, any decrease is enough.
    Unlike `FirstDecrease` it goes past rates that gain much less than they promise.

    If no rate is enough, `when_stuck` decides, also where some rate lowered the loss a little.

    slope: the share of the expected decrease that is asked for, between 0 and 1; the paper uses 0.1 for networks.

    After Vaswani, Mishkin, Laradji, Schmidt, Gidel, Lacoste-Julien, "Painless Stochastic Gradient: Interpolation,
    Line-Search, and Convergence Rates" (2019).
    """

    needs_slope: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.slope, int | float) or not 0 < self.slope < 1:
            raise SettingError(f"Armijo(slope={self.slope!r}): slope must be in (0, 1); 0.1 is a good first choice.")

    def is_enough(self, walk: Walk, loss: Array, expected: Array | None) -> Array:
        """See `DownwardSearch.is_enough`."""
        if expected is None:
            raise SettingError(
                "Armijo.observe(walk, loss) needs the expected decrease: pass it to searches that have needs_slope."
            )
        return (loss < walk.loss_before) & (loss <= walk.loss_before - self.slope * expected)

    def is_last(self, improved: Array, previous: Array, loss: Array) -> Array:
        """See `DownwardSearch.is_last`."""
        return improved

"""No adaptation: the same arm in every step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hotswap.arms import Arms
from hotswap.arrays import Array, Device, namespace, places
from hotswap.bandits.base import BANDITS, Bandit, BanditState
from hotswap.errors import SettingError
from hotswap.states import State, replaced

__all__ = ["FixedArm"]


@BANDITS.register("fixed_arm")
@dataclass(frozen=True)
class FixedArm(Bandit):
    """Propose the same arm in every step, whatever it pays: what is left of hot swapping without a bandit.

    Give its number, `FixedArm(arm=12)`, where arm 0 is the largest rate; or, where `lr` is all that is swapped, a
    rate: `FixedArm(rate=0.1)` is the arm whose rate is nearest to it on a logarithmic scale. Which one that is turns
    out when the bandit is told its arms (`Bandit.knowing`).

    A search may still walk from there to other arms. All trials are counted, and means are kept, for tables of
    statistics; nothing is discounted. The index is 1 for the arm that it proposes and 0 for all others, and it is
    never unsure. There are no defaults: no arm is a good choice for every problem, which is why there are bandits.
    """

    arm: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if (self.arm is None) == (self.rate is None):
            raise SettingError(
                f"FixedArm(arm={self.arm!r}, rate={self.rate!r}): name the arm by its number or by its rate; give "
                "one of them."
            )
        arm: object = self.arm
        if arm is not None and (isinstance(arm, bool) or not isinstance(arm, int) or arm < 0):
            raise SettingError(f"FixedArm(arm={arm!r}): arm must be a whole number of at least 0.")
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise SettingError(f"FixedArm(rate={self.rate!r}): rate must be positive and finite.")

    def knowing(self, arms: Arms) -> FixedArm:
        """See `Bandit.knowing`: the number of the arm whose rate is nearest to `rate`."""
        if self.rate is None:
            return self
        if arms.names != ("lr",):
            raise SettingError(
                f"FixedArm(rate={self.rate!r}): a rate names no arm where {' and '.join(arms.names)} are swapped; "
                "give the number of the arm, arm=..., as Arms.values numbers them."
            )
        wanted = math.log(self.rate)
        rates = [rate for rate in arms.axes[0] if isinstance(rate, float)]  # all of them: lr has no tuples
        return FixedArm(arm=min(range(len(rates)), key=lambda arm: abs(math.log(rates[arm]) - wanted)))

    def start(self, runs: int, arms: int, device: Device = None) -> BanditState:
        """See `Bandit.start`.

        Raises:
            SettingError: There is no such arm, or it is not known yet which one it is.
        """
        if self.arm is None:
            raise SettingError(
                f"FixedArm(rate={self.rate!r}): it has not been told what its arms stand for; call knowing(arms) "
                "first, or give the number of the arm, arm=...."
            )
        if self.arm >= arms:
            raise SettingError(f"FixedArm(arm={self.arm}): there is no such arm; they are numbered 0 to {arms - 1}.")
        state: BanditState = super().start(runs, arms, device)
        return state

    def propose(self, state: State) -> tuple[Array, State]:
        """See `Bandit.propose`."""
        return namespace(state.step).full_like(state.step, self.arm), replaced(state, step=state.step + 1)

    def index(self, state: State) -> Array:
        """See `Bandit.index`: 1 for the arm that it proposes, 0 for all others."""
        return 0.0 * state.counts + (places(state.counts.shape[1], state.counts) == self.arm)

    def unsure(self, state: State) -> Array:
        """See `Bandit.unsure`: never, since nothing that it could learn would change what it proposes."""
        return state.step < 0

"""M, the model of how well each arm has done lately: one policy a file."""

from hotswap.bandits.base import BANDITS, Bandit, BanditState
from hotswap.bandits.discounted_ucb import DiscountedUCB

__all__ = ["BANDITS", "Bandit", "BanditState", "DiscountedUCB"]

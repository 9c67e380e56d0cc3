"""M, the model of how well each arm has done lately: one policy a file."""

from hotswap.bandits.base import BANDITS, Bandit, BanditState
from hotswap.bandits.discounted_ucb import DiscountedUCB
from hotswap.bandits.epsilon_greedy import EpsilonGreedy
from hotswap.bandits.exp3s import Exp3S
from hotswap.bandits.factored import FactoredBandit
from hotswap.bandits.fixed_arm import FixedArm
from hotswap.bandits.sliding_window_ucb import SlidingWindowUCB
from hotswap.bandits.smoothed_ucb import SmoothedUCB
from hotswap.bandits.thompson_sampling import ThompsonSampling
from hotswap.bandits.ucb1 import UCB1

__all__ = [
    "BANDITS",
    "UCB1",
    "Bandit",
    "BanditState",
    "DiscountedUCB",
    "EpsilonGreedy",
    "Exp3S",
    "FactoredBandit",
    "FixedArm",
    "SlidingWindowUCB",
    "SmoothedUCB",
    "ThompsonSampling",
]

"""U, the update: hot swapping as a `torch.optim.Optimizer`, a thin shell over a bandit and a search."""

from hotswap.optim.accumulation import accumulate
from hotswap.optim.hotswap import HotSwap
from hotswap.optim.mixtures import mixture
from hotswap.optim.probing.closures import in_trial
from hotswap.optim.racing import Cost, LaneStanding, Race, RaceStep, Standings
from hotswap.optim.records import ArmStatistics, Statistics, StepRecord
from hotswap.optim.sgd import HotSwapSGD
from hotswap.optim.user_warnings import HotSwapWarning

__all__ = [
    "ArmStatistics",
    "Cost",
    "HotSwap",
    "HotSwapSGD",
    "HotSwapWarning",
    "LaneStanding",
    "Race",
    "RaceStep",
    "Standings",
    "Statistics",
    "StepRecord",
    "accumulate",
    "in_trial",
    "mixture",
]

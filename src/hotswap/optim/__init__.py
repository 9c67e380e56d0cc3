"""U, the update: hot swapping as a `torch.optim.Optimizer`, a thin shell over a bandit and a search."""

from hotswap.optim.accumulation import accumulate
from hotswap.optim.closures import in_trial
from hotswap.optim.hotswap import HotSwap
from hotswap.optim.records import ArmStatistics, Statistics, StepRecord
from hotswap.optim.sgd import HotSwapSGD
from hotswap.optim.user_warnings import HotSwapWarning

__all__ = [
    "ArmStatistics",
    "HotSwap",
    "HotSwapSGD",
    "HotSwapWarning",
    "Statistics",
    "StepRecord",
    "accumulate",
    "in_trial",
]

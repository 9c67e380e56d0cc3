"""A few minutes on a laptop: the paper's network, trained by whom nobody gives a learning rate, at the same cost."""

from hotswap.demo.optimizers import PRODIGY_IS_MISSING, Contender, Rate, contenders
from hotswap.demo.training import DemoSettings, Outcome, Point, budget, load_data, train
from hotswap.demo.verdict import Verdict, judge

__all__ = [
    "PRODIGY_IS_MISSING",
    "Contender",
    "DemoSettings",
    "Outcome",
    "Point",
    "Rate",
    "Verdict",
    "budget",
    "contenders",
    "judge",
    "load_data",
    "train",
]

"""The search: tries arms on the minibatch, from the proposed one on, and takes one of them."""

from hotswap.searches.armijo import Armijo
from hotswap.searches.base import SEARCHES, Search
from hotswap.searches.both_ways import BothWays
from hotswap.searches.downward import Backtracking, DownwardSearch, FirstDecrease, Walk, WhenStuck
from hotswap.searches.no_search import NoSearch

__all__ = [
    "SEARCHES",
    "Armijo",
    "Backtracking",
    "BothWays",
    "DownwardSearch",
    "FirstDecrease",
    "NoSearch",
    "Search",
    "Walk",
    "WhenStuck",
]

"""The search: tries arms on the minibatch, from the proposed one on, and takes one of them. One search a file."""

from hotswap.searches.armijo import Armijo
from hotswap.searches.backtracking import Backtracking
from hotswap.searches.base import SEARCHES, Search
from hotswap.searches.both_ways import BothWays
from hotswap.searches.downward import DownwardSearch, Walk, WhenStuck
from hotswap.searches.first_decrease import FirstDecrease
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

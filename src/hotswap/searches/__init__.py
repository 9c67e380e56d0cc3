"""The search: tries arms on the minibatch, from the proposed one on, and takes one of them. One search a file."""

from hotswap.searches.backtracking import Backtracking
from hotswap.searches.base import SEARCHES, Search
from hotswap.searches.downward import DownwardSearch, Walk, WhenStuck
from hotswap.searches.first_decrease import FirstDecrease

__all__ = ["SEARCHES", "Backtracking", "DownwardSearch", "FirstDecrease", "Search", "Walk", "WhenStuck"]

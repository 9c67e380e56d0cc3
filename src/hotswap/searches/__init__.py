"""The search: walks from the proposed arm to smaller ones, trying each on the minibatch. One search a file."""

from hotswap.searches.backtracking import Backtracking
from hotswap.searches.base import Search, Walk, WhenStuck
from hotswap.searches.first_decrease import FirstDecrease

__all__ = ["Backtracking", "FirstDecrease", "Search", "Walk", "WhenStuck"]

"""Races of an optimizer: copies of a run on the same minibatches, of which the worse are dropped."""

from hotswap.optim.racing.race import Race
from hotswap.optim.racing.records import Cost, LaneStanding, RaceStep, Standings

__all__ = ["Cost", "LaneStanding", "Race", "RaceStep", "Standings"]

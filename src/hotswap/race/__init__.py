"""Races: optimizers take turns in one training run, the worse ones are dropped early, the best one goes on."""

from hotswap.race.lane import Lane, lanes
from hotswap.race.muon import Muon
from hotswap.race.race import Race
from hotswap.race.standings import Standing, Standings

__all__ = ["Lane", "Muon", "Race", "Standing", "Standings", "lanes"]

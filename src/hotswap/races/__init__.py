"""Races: hot swapping with a long horizon.

Copies of a run, its **lanes**, train side by side on the same minibatches, each with hyperparameters of its own. At the
end of each **round** they are ranked by their training loss, and only the best go on, until one is left. That is
successive halving (Jamieson and Talwalkar 2016) within one run that is never restarted.

Here is what decides a race: its rounds, its schedule and its ranking. `hotswap.Race` is the optimizer, and
`hotswap.ensemble.Raced` trains the lanes of several runs as one tensor program.
"""

from hotswap.races.cost import race_passes, race_steps
from hotswap.races.ranking import FIRST, highest_loss, nearest, ranked, typical
from hotswap.races.rounds import ROUNDS, STEPS, Round, plan_rounds
from hotswap.races.schedule import Schedule

__all__ = [
    "FIRST",
    "ROUNDS",
    "STEPS",
    "Round",
    "Schedule",
    "highest_loss",
    "nearest",
    "plan_rounds",
    "race_passes",
    "race_steps",
    "ranked",
    "typical",
]

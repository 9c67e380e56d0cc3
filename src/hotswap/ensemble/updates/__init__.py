"""What trains the runs of an ensemble: one kind of update a file."""

from hotswap.ensemble.updates.base import Tally, Update
from hotswap.ensemble.updates.directions import AdamDirection, Direction, Momentum, Plain
from hotswap.ensemble.updates.elementwise import Elementwise, UpdateRule
from hotswap.ensemble.updates.hot_swapped import HotSwapped
from hotswap.ensemble.updates.sgd import Sgd
from hotswap.ensemble.updates.variants import Variant
from hotswap.ensemble.updates.vsgd import Vsgd

__all__ = [
    "AdamDirection",
    "Direction",
    "Elementwise",
    "HotSwapped",
    "Momentum",
    "Plain",
    "Sgd",
    "Tally",
    "Update",
    "UpdateRule",
    "Variant",
    "Vsgd",
]

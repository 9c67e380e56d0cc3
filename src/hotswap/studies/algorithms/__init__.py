"""The algorithms that a study can train, one to a file; each file registers what it defines.

A further algorithm is a further file, and its line here. What a user's own file registers is as good.
"""

from hotswap.studies.algorithms.base import ALGORITHMS, Family, Look, family_from_dict
from hotswap.studies.algorithms.sgd import SgdFamily

from hotswap.studies.algorithms.adadelta import AdaDeltaFamily  # isort: skip  # the order in which files are shown
from hotswap.studies.algorithms.hot_swapping import DucbFamily, HotSwapFamily  # isort: skip
from hotswap.studies.algorithms.adam import AdamFamily  # isort: skip
from hotswap.studies.algorithms.vsgd import VsgdFamily  # isort: skip

__all__ = [
    "ALGORITHMS",
    "AdaDeltaFamily",
    "AdamFamily",
    "DucbFamily",
    "Family",
    "HotSwapFamily",
    "Look",
    "SgdFamily",
    "VsgdFamily",
    "family_from_dict",
]

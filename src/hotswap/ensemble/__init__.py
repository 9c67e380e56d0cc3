"""Many runs as one tensor program on one device: they share each minibatch and differ in everything else."""

from hotswap.ensemble.elementwise import Elementwise, UpdateRule
from hotswap.ensemble.engine import Ensemble, EpochTally, Measured, TrainingData, Update, allow_tf32
from hotswap.ensemble.functional import FunctionalModel
from hotswap.ensemble.hot_swapped import HotSwapped
from hotswap.ensemble.mlp import Mlp
from hotswap.ensemble.model import Model
from hotswap.ensemble.sgd import Sgd
from hotswap.ensemble.variants import AdamDirection, Direction, Momentum, Plain, Variant
from hotswap.ensemble.vsgd import Vsgd

__all__ = [
    "AdamDirection",
    "Direction",
    "Elementwise",
    "Ensemble",
    "EpochTally",
    "FunctionalModel",
    "HotSwapped",
    "Measured",
    "Mlp",
    "Model",
    "Momentum",
    "Plain",
    "Sgd",
    "TrainingData",
    "Update",
    "UpdateRule",
    "Variant",
    "Vsgd",
    "allow_tf32",
]

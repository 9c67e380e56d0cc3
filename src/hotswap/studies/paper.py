"""The paper's study, and the numbers that the paper prints about it.

Bache, DeCoste and Smyth, "Hot Swapping for Online Adaptation of Optimization Hyperparameters", 2015. Its grids give
1,080 SGD runs (360 settings from three initialisations), 15 of AdaDelta and 15 of hot-swapped DUCB, 1,110 in all. The
paper's own counts do not add up: "all 380 algorithms" are 370 settings, the "1125 other algorithms" of Figure 1 are
1,095 runs, and "75:1" is 72 to 1.

What the paper leaves open, such as the constants of the bandit and the first weights, has the values that its
first author's later public code or the custom of its time suggest.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from hotswap.studies.algorithms import AdaDeltaFamily, DucbFamily, SgdFamily
from hotswap.studies.networks import NetworkSpec
from hotswap.studies.study import StudySpec

__all__ = [
    "ADADELTA_TOP_SHARE",
    "BEST_TEST_ERROR",
    "COST_RATIO",
    "DUCB_LEADS_AFTER_SECONDS",
    "MEDIAN_TEST_ERROR",
    "PAPER",
    "TABLE_1",
    "TABLE_2",
    "Timing",
]

PAPER = StudySpec(
    name="paper",
    dataset="mnist",
    train_images=50_000,
    network=NetworkSpec(hidden=(500, 300), unit="sigmoid", init="glorot"),
    families=(
        SgdFamily(
            lr=(1.0, 0.3, 0.1, 0.03, 0.01, 0.003),
            lr_decay=(0.99, 0.995, 1.0),
            momentum=(0.0, 0.5, 0.7, 0.9),
        ),
        AdaDeltaFamily(rho=0.95, eps=1e-6),
        DucbFamily(high=1e2, low=1e-6, count=33, discount=0.99, exploration=1e-8),
    ),
    batch_sizes=(64, 128, 256, 512, 1024),
    seeds=(0, 1, 2),
    epochs=500,
)
"""Section "Initial Results": every run of Figures 1 and 2."""


class Timing(NamedTuple):
    """One row of Table 1 or 2; DUCB's cost changes over training, so it has three columns."""

    sgd: float
    adadelta: float
    ducb_epoch_100: float
    ducb_epoch_300: float
    ducb_epoch_500: float

    def of(self, algorithm: str, epoch: int) -> float | None:
        """The time of an algorithm at an epoch, 0 where it does not depend on the epoch; None if it is not printed."""
        return self._asdict().get(f"{algorithm}_epoch_{epoch}" if epoch else algorithm)

    @property
    def ducb(self) -> tuple[float, float, float]:
        """DUCB's three columns, by epoch."""
        return self.ducb_epoch_100, self.ducb_epoch_300, self.ducb_epoch_500


TABLE_1: Mapping[int, Timing] = MappingProxyType(
    {
        64: Timing(11.9, 12.1, 30.1, 40.2, 42.4),
        128: Timing(13.0, 13.2, 20.3, 38.8, 43.7),
        256: Timing(16.8, 16.7, 26.4, 39.7, 49.2),
        512: Timing(24.7, 25.5, 37.9, 38.2, 56.2),
        1024: Timing(39.2, 40.8, 60.2, 60.4, 63.3),
    }
)
"""Table 1 (Appendix 1): milliseconds per minibatch, by batch size."""

TABLE_2: Mapping[int, Timing] = MappingProxyType(
    {
        64: Timing(9.3, 9.4, 23.5, 31.4, 33.2),
        128: Timing(5.1, 5.2, 7.9, 15.2, 17.1),
        256: Timing(3.3, 3.3, 5.2, 7.8, 9.6),
        512: Timing(2.4, 2.5, 3.7, 3.7, 5.5),
        1024: Timing(1.9, 2.0, 3.0, 3.0, 3.1),
    }
)
"""Table 2 (Appendix 1): seconds per epoch, by batch size."""

MEDIAN_TEST_ERROR: Mapping[str, float] = MappingProxyType({"ducb": 0.0185, "adadelta": 0.0197, "sgd": 0.0235})
"""Section "Initial Results", after Figure 1 is introduced: "(1.85% vs 1.97% for AdaDelta and 2.35% for SGD)"."""

BEST_TEST_ERROR = 0.0163
"""The same sentence: "the best single test performance overall (1.63% error rate)", a run of DUCB."""

ADADELTA_TOP_SHARE = 0.30
"""The paragraph after it: AdaDelta does as well as "the top 30% of the SGD algorithms"."""

DUCB_LEADS_AFTER_SECONDS = 1000.0
"""The discussion of Figure 2: "by 1000 seconds" DUCB with batch size 64 has the best test error of all."""

COST_RATIO = (1.6, 3.6)
"""Appendix 1: DUCB takes "between 1.6 and 3.6 times as long per minibatch as SGD and AdaDelta"."""

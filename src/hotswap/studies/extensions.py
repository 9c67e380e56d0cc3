"""Studies of the questions that the paper leaves open, on its own problem.

The paper ends with "different meta-models, swapping new optimization or regularization hyper parameters, swapping
multiple parameters at once, and reducing the frequency of line search". Each family of `EXTENSIONS` changes one thing
about the paper's algorithm, which is the family `paper`; those at the end of the list change the base optimizer and the
search together, which is where combinations were looked for that are ahead early and late.

`CONFIRMATION` trains what was chosen from those results once more, from first weights that had no part in the choice.
`FIRST` sets the search of the paper's prose beside that of its pseudo-code. `CITED` has what the paper cites, beside
AdaDelta, for choosing rates by itself, and does not compare with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hotswap.bandits import (
    UCB1,
    EpsilonGreedy,
    Exp3S,
    FixedArm,
    SlidingWindowUCB,
    SmoothedUCB,
    ThompsonSampling,
)
from hotswap.searches import Armijo, Backtracking, BothWays, FirstDecrease, NoSearch
from hotswap.studies.algorithms import AdaDeltaFamily, HotSwapFamily, VsgdFamily
from hotswap.studies.paper import PAPER
from hotswap.studies.study import StudySpec

__all__ = ["CITED", "CONFIRMATION", "EXTENSIONS", "FIRST", "STUDIES"]

FIRST_ENOUGH = Armijo(0.3, when_stuck="smallest")
ADAM = HotSwapFamily(name="adam_armijo", base="adam", high=1.0, search=FIRST_ENOUGH)

BANDITS = (
    HotSwapFamily(name="paper"),
    HotSwapFamily(name="ucb1", bandit=UCB1()),
    HotSwapFamily(name="sliding_window", bandit=SlidingWindowUCB()),
    HotSwapFamily(name="thompson", bandit=ThompsonSampling()),
    HotSwapFamily(name="exp3s", bandit=Exp3S()),
    HotSwapFamily(name="epsilon_greedy", bandit=EpsilonGreedy()),
    HotSwapFamily(name="smoothed", bandit=SmoothedUCB()),
    HotSwapFamily(name="fixed_arm", bandit=FixedArm(rate=1.0)),
)
"""Other meta-models."""

PACES = (
    HotSwapFamily(name="every_5", search_every=5),
    HotSwapFamily(name="every_20", search_every=20),
    HotSwapFamily(name="unsure", search_every=0, search_when="unsure"),
    HotSwapFamily(name="risen", search_every=0, search_when="risen"),
)
"""Fewer searches."""

SEARCHES = (
    HotSwapFamily(name="headroom", search=Backtracking(headroom=1)),
    HotSwapFamily(name="armijo", search=Armijo()),
    HotSwapFamily(name="both_ways", search=BothWays()),
    HotSwapFamily(name="no_search", search=NoSearch()),
)
"""Other searches, and none."""

BASES = (
    HotSwapFamily(name="nesterov_armijo", base="nesterov", momentum=(0.9,), search=FIRST_ENOUGH),
    ADAM,
    replace(ADAM, name="rmsprop_armijo", beta1=0.0, beta2=0.99),
    replace(ADAM, name="adam_05", beta1=0.5, beta2=0.99, search=Backtracking()),
    replace(ADAM, name="adam_05_armijo", beta1=0.5, beta2=0.99),
    replace(ADAM, name="adam_07_armijo", beta1=0.7, beta2=0.99),
)
"""Other base optimizers, with the search that suits them, and one of them with the paper's."""

JUDGES = (
    HotSwapFamily(name="judged_by_half", next_weight=0.5),
    HotSwapFamily(name="judged_by_next", next_weight=1.0),
)
"""Trials judged by the next minibatch."""

SEVERAL = (
    HotSwapFamily(name="momenta", momentum=(0.0, 0.5, 0.9)),
    HotSwapFamily(name="momenta_factored", momentum=(0.0, 0.5, 0.9), factored=True),
    HotSwapFamily(name="decays", weight_decay=(0.0, 1e-5, 1e-4)),
    HotSwapFamily(name="decays_factored", weight_decay=(0.0, 1e-5, 1e-4), factored=True),
)
"""Several hyperparameters at once."""

GUARDED = HotSwapFamily(name="guarded", search=NoSearch(), guard=2.0)
"""No search, and a way back when the loss had risen: of the results, and not trained any more."""

EXTENSIONS = replace(
    PAPER,
    name="extensions",
    families=(*BANDITS, *PACES, *SEARCHES, *BASES, *JUDGES, *SEVERAL),
    set_aside=(GUARDED,),
)
"""Each extension, where the paper's algorithm was measured: five batch sizes, three first weights, 500 epochs."""

CONFIRMATION = replace(
    PAPER,
    name="confirmation",
    families=(BANDITS[0], *BASES[-2:], AdaDeltaFamily(rho=0.95, eps=1e-6)),
    seeds=(3, 4, 5),
)
"""The candidates for a preset, and whom they have to beat, from other first weights."""

FIRST = replace(
    PAPER,
    name="first_decrease",
    families=(
        BANDITS[0],
        HotSwapFamily(name="first_decrease", search=FirstDecrease()),
        HotSwapFamily(name="first_headroom", search=FirstDecrease(headroom=1)),
        AdaDeltaFamily(rho=0.95, eps=1e-6),
    ),
)
"""The paper's algorithm with the first rate that lowers the loss, from the proposal and from one rate above it."""

CITED = replace(PAPER, name="cited", families=(VsgdFamily(),))
"""vSGD where the paper's algorithm was measured."""

STUDIES: Mapping[str, StudySpec] = MappingProxyType(
    {study.name: study for study in (PAPER, EXTENSIONS, CONFIRMATION, FIRST, CITED)}
)
"""The studies that come with hotswap, by name."""

"""What a study is made of: a network, and families of runs, one for each algorithm; frozen and checked when made."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, get_args

from hotswap.arms import log_grid
from hotswap.errors import SettingError
from hotswap.studies.specification.settings import Check, build, number, one_of, whole

__all__ = [
    "ALGORITHMS",
    "COUNT",
    "FACTOR",
    "FAMILIES",
    "MOMENTUM",
    "POSITIVE",
    "AdaDeltaFamily",
    "Algorithm",
    "DucbFamily",
    "Family",
    "NetworkSpec",
    "SgdFamily",
    "constants_of",
    "family_from_dict",
    "family_to_dict",
    "listed",
    "plain",
    "settings_of",
]

Algorithm = Literal["sgd", "adadelta", "ducb"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
"""Every algorithm that a study can run."""

HiddenUnit = Literal["sigmoid", "tanh", "relu"]
Init = Literal["glorot", "sparse"]
SearchName = Literal["backtracking", "first_decrease"]

POSITIVE = number("a positive, finite number", lambda x: 0 < x < float("inf"))
NOT_NEGATIVE = number("a finite number, 0 or more", lambda x: 0 <= x < float("inf"))
FACTOR = number("a number in (0, 1]", lambda x: 0 < x <= 1)
DECAY = number("a number in (0, 1)", lambda x: 0 < x < 1)
MOMENTUM = number("a number in [0, 1)", lambda x: 0 <= x < 1)
COUNT = whole(1)


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """A multilayer perceptron: fully connected layers, ended by a softmax over the classes.

    Attributes:
        hidden: The sizes of the hidden layers, from the inputs on.
        unit: What a hidden unit does with its input.
        init: How weights begin: `"glorot"` is uniform with a width that depends on the layer's size, `"sparse"` gives
            each unit a few Gaussian weights. Biases begin at zero.
    """

    hidden: tuple[int, ...] = (500, 300)
    unit: HiddenUnit = "sigmoid"
    init: Init = "glorot"

    def __post_init__(self) -> None:
        check = Check(self)
        check.several("hidden", COUNT, distinct=False)
        check.one("unit", one_of(get_args(HiddenUnit)))
        check.one("init", one_of(get_args(Init)))


@dataclass(frozen=True, kw_only=True)
class SgdFamily:
    """Stochastic gradient descent at every combination of three lists.

    Attributes:
        lr: Rates of the first epoch.
        lr_decay: What the rate is multiplied with after each epoch.
        momentum: The share of the velocity that is kept.
    """

    lr: tuple[float, ...]
    lr_decay: tuple[float, ...]
    momentum: tuple[float, ...]

    algorithm: ClassVar[Algorithm] = "sgd"
    name: ClassVar[str] = "sgd"
    measures: ClassVar[tuple[str, ...]] = ("mean_lr",)

    @classmethod
    def varied(cls) -> dict[str, str]:
        """The settings that vary between runs, and how the ids of runs abbreviate them."""
        return {"lr": "lr", "lr_decay": "decay", "momentum": "mom"}

    def arms(self) -> tuple[float, ...]:
        """The learning rates it chooses among: none."""
        return ()

    def __post_init__(self) -> None:
        check = Check(self)
        check.several("lr", POSITIVE)
        check.several("lr_decay", FACTOR)
        check.several("momentum", MOMENTUM)


@dataclass(frozen=True, kw_only=True)
class AdaDeltaFamily:
    """AdaDelta (Zeiler, 2012) with one setting.

    Attributes:
        rho: How much of the running averages is kept at each step.
        eps: What is added under the square roots.
        lr: What its step is multiplied with; 1 in the original.
    """

    rho: float = 0.95
    eps: float = 1e-6
    lr: float = 1.0

    algorithm: ClassVar[Algorithm] = "adadelta"
    name: ClassVar[str] = "adadelta"
    measures: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def varied(cls) -> dict[str, str]:
        """The settings that vary between runs: none."""
        return {}

    def arms(self) -> tuple[float, ...]:
        """The learning rates it chooses among: none."""
        return ()

    def __post_init__(self) -> None:
        check = Check(self)
        check.one("rho", DECAY)
        check.one("eps", POSITIVE)
        check.one("lr", POSITIVE)


@dataclass(frozen=True, kw_only=True)
class DucbFamily:
    """Hot-swapped stochastic gradient descent: a discounted UCB bandit proposes a rate, a search protects the step.

    Attributes:
        high: The largest rate.
        low: The smallest rate.
        count: How many rates there are, evenly spaced on a logarithmic scale.
        discount: γ, how much of what the bandit knows is kept at each step.
        exploration: c, the weight of the bandit's confidence widths.
        search: How it walks from the proposed rate to smaller ones.
        headroom: How many rates above the proposed one a walk begins.
    """

    high: float = 1e2
    low: float = 1e-6
    count: int = 33
    discount: float = 0.99
    exploration: float = 1e-8
    search: SearchName = "backtracking"
    headroom: int = 0

    algorithm: ClassVar[Algorithm] = "ducb"
    name: ClassVar[str] = "ducb"
    measures: ClassVar[tuple[str, ...]] = ("mean_lr", "trials")

    @classmethod
    def varied(cls) -> dict[str, str]:
        """The settings that vary between runs: none."""
        return {}

    def arms(self) -> tuple[float, ...]:
        """The learning rates it chooses among, large to small."""
        return self.rates

    def __post_init__(self) -> None:
        check = Check(self)
        check.one("high", POSITIVE)
        check.one("low", POSITIVE)
        check.one("count", COUNT)
        check.one("discount", FACTOR)
        check.one("exploration", NOT_NEGATIVE)
        check.one("search", one_of(get_args(SearchName)))
        check.one("headroom", whole(0))
        if self.low > self.high or (self.low == self.high and self.count > 1):
            raise check.error("low", f"is {self.low!r}; it must be smaller than high, which is {self.high!r}.")
        if len(set(self.rates)) < self.count:
            raise check.error("count", f"is {self.count}; there are not so many different rates from high to low.")

    @property
    def rates(self) -> tuple[float, ...]:
        """The arms, from large to small."""
        return log_grid(self.high, self.low, self.count)


Family = SgdFamily | AdaDeltaFamily | DucbFamily
"""An algorithm with everything about it that a study fixes or varies."""

FAMILIES: Mapping[str, type[Family]] = {kind.algorithm: kind for kind in (SgdFamily, AdaDeltaFamily, DucbFamily)}


def settings_of(family: Family) -> list[dict[str, float]]:
    """What varies between the runs of one family, batch size and seed."""
    if not isinstance(family, SgdFamily):
        return [{}]
    grid = itertools.product(family.lr, family.lr_decay, family.momentum)
    return [{"lr": lr, "lr_decay": lr_decay, "momentum": momentum} for lr, lr_decay, momentum in grid]


def constants_of(family: Family) -> dict[str, Any]:
    """What all runs of a family share: its tuples are grids, whose values stand in each run's id instead."""
    return {name: value for name, value in asdict(family).items() if not isinstance(value, tuple)}


def family_to_dict(family: Family) -> dict[str, Any]:
    """For JSON."""
    return {"algorithm": family.algorithm, **plain(asdict(family))}


def family_from_dict(stored: object, owner: str) -> Family:
    """The reverse; `owner` is whose table it is, for a sentence about what is wrong with it."""
    table = dict(stored) if isinstance(stored, Mapping) else {}
    algorithm = table.pop("algorithm", None)
    if not isinstance(algorithm, str) or algorithm not in FAMILIES:
        raise SettingError(f"{owner} algorithm is {algorithm!r}; it must be one of {listed(ALGORITHMS)}.")
    return build(FAMILIES[algorithm], table, owner)


def plain(value: Any) -> Any:
    """Tuples as lists, which is how JSON returns them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def listed(values: Iterable[object]) -> str:
    """In a sentence."""
    return ", ".join(str(value) for value in values)

"""The hot-swapping families of a study: which one is the paper's algorithm, and what each of the others changes in it.

Nothing here knows a study by name. What a family changes is read from its settings, so that a study of one's own is
told about in the same words as the one that comes with hotswap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hotswap.report.extensions.words import listed
from hotswap.report.looks import families_of
from hotswap.report.results import Results
from hotswap.studies.algorithms import DucbFamily, Family, HotSwapFamily

__all__ = ["GROUPS", "changes", "group_of", "paper_among", "readable", "variants_of"]

PAPER = "paper"
"""What a family is called that stands for the paper's algorithm, whatever its settings are."""


def variants_of(results: Results) -> list[HotSwapFamily]:
    """The families of the algorithm `hotswap` that have runs, in the order of the study."""
    there = set(results.metrics["algorithm"])
    return [f for f in families_of(results.specs) if isinstance(f, HotSwapFamily) and f.name in there]


def paper_among(results: Results) -> Family | None:
    """The family of a study that is the paper's algorithm; None if there is none.

    It is the one that is called "paper", or else the first hot swapping without a setting of its own, or else DUCB.
    """
    there = set(results.metrics["algorithm"])
    families = [family for family in families_of(results.specs) if family.name in there]
    rules: tuple[Callable[[Family], bool], ...] = (
        lambda family: isinstance(family, HotSwapFamily) and family.name == PAPER,
        lambda family: isinstance(family, HotSwapFamily) and family == HotSwapFamily(name=family.name),
        lambda family: isinstance(family, DucbFamily),
    )
    return next((family for rule in rules for family in families if rule(family)), None)


def readable(name: str) -> str:
    """A family's name for a figure: `sliding_window` is "sliding window"."""
    return name.replace("_", " ")


# --- what a family changes --------------------------------------------------------------------------------------------


def changes(family: HotSwapFamily, paper: Family | None = None) -> str:
    """What a family has that the paper's algorithm does not have, in words, with code between backticks."""
    plain = paper if isinstance(paper, HotSwapFamily) else HotSwapFamily()
    found = [words for tell in _TELLING if (words := tell(family, plain))]
    return listed(found) if found else "nothing"


def _combination(family: HotSwapFamily, plain: HotSwapFamily) -> str:
    parts = []
    for name in ("momentum", "weight_decay"):
        values: tuple[float, ...] = getattr(family, name)
        if family.combined and values not in ((0.0,), getattr(plain, name)):
            parts.append(f"{readable(name)} {_either(values)} beside the rate")
    if family.factored and not plain.factored:
        parts.append("one bandit for each")
    return listed(parts) if parts else ""


def _base(family: HotSwapFamily, plain: HotSwapFamily) -> str:
    if family.base == "adam":
        mine, its = ((f.base, f.beta1, f.beta2) for f in (family, plain))
        if mine == its:
            return ""
        if family.beta1 == 0:
            return f"RMSprop's direction (β₂ {family.beta2:g})"
        return f"Adam's direction (β₁ {family.beta1:g}, β₂ {family.beta2:g})"
    if family.combined or (family.base, family.momentum) == (plain.base, plain.momentum):
        return ""
    return f"{'Nesterov ' if family.base == 'nesterov' else ''}momentum {family.momentum[0]:g}"


def _judge(family: HotSwapFamily, plain: HotSwapFamily) -> str:
    if family.next_weight == plain.next_weight:
        return ""
    if family.next_weight == 1:
        return "trials judged by the next minibatch alone"
    return f"trials judged by the next minibatch too, which counts {family.next_weight:g}"


def _pace(family: HotSwapFamily, plain: HotSwapFamily) -> str:
    if (family.search_every, family.search_when) == (plain.search_every, plain.search_when):
        return ""
    when = {"never": "", "unsure": "while the bandit is unsure", "risen": "when the loss has risen"}[family.search_when]
    if family.search_every == 0:
        return f"a search only {when}"
    every = "in every step" if family.search_every == 1 else f"in one of {family.search_every} steps"
    return f"a search {every}" + (f" and {when}" if when else "")


def _guard(family: HotSwapFamily, plain: HotSwapFamily) -> str:
    if family.guard == plain.guard:
        return ""
    return f"a guard that goes back when the loss has risen {family.guard:g} times" if family.guard else "no guard"


def _part(name: str) -> Callable[[HotSwapFamily, HotSwapFamily], str]:
    def tell(family: HotSwapFamily, plain: HotSwapFamily) -> str:
        if getattr(family, name) == getattr(plain, name):
            return ""
        settings = {key: value for key, value in family.constants()[name].items() if key != "name"}
        inside = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        return f"the {name} `{type(getattr(family, name)).__name__}({inside})`"

    return tell


def _rates(family: HotSwapFamily, plain: HotSwapFamily) -> str:
    if family.rates == plain.rates:
        return ""
    return f"{family.count} rates from {family.high:g} to {family.low:g}"


def _either(values: Sequence[float]) -> str:
    """`0, 0.5 or 0.9`."""
    texts = [f"{value:g}" for value in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


_TELLING = (
    _combination,
    _base,
    _judge,
    _pace,
    _part("search"),
    _guard,
    _part("bandit"),
    _part("reward"),
    _rates,
)

# --- families that belong together ------------------------------------------------------------------------------------

GROUPS = {
    "bandits": "Other bandits",
    "paces": "Fewer searches",
    "searches": "Other searches, and none",
    "bases": "Other base optimizers",
    "judges": "Trials judged by the next minibatch",
    "several": "Several hyperparameters at once",
    "rest": "Other rewards and rates",
}
"""What a family changes first of all: a word for its figure's file, and a heading. In the order of the report."""

_FIRST = (
    ("several", (_combination,)),
    ("bases", (_base,)),
    ("judges", (_judge,)),
    ("paces", (_pace,)),
    ("searches", (_part("search"), _guard)),
    ("bandits", (_part("bandit"),)),
)  # a family that changes several things belongs to the first of these


def group_of(family: HotSwapFamily, paper: Family | None = None) -> str:
    """Which of the `GROUPS` a family belongs to."""
    plain = paper if isinstance(paper, HotSwapFamily) else replace(HotSwapFamily(), name=family.name)
    return next((group for group, tells in _FIRST if any(tell(family, plain) for tell in tells)), "rest")

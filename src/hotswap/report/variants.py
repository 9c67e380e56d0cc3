"""The hot-swapping families of a study: which one is the paper's algorithm, and the settings that others change."""

from __future__ import annotations

from collections.abc import Callable, KeysView
from dataclasses import fields

from hotswap.report.looks import families_of
from hotswap.report.results import Results
from hotswap.studies.algorithms import DucbFamily, Family, HotSwapFamily

__all__ = ["GROUPS", "changes", "group_of", "paper_among", "readable", "variants_of"]

PAPER = "paper"
"""The name of a family that stands for the paper's algorithm, whatever its settings are."""

GROUPS = {
    "bandits": "Other bandits",
    "paces": "Fewer searches",
    "searches": "Other searches, and none",
    "bases": "Other base optimizers",
    "judges": "Trials judged by the next minibatch",
    "several": "Several hyperparameters at once",
    "rest": "Other rewards and rates",
}
"""Variants that belong together: a word for the file of their figure, and a heading, in the order of the report."""

FIRST = (
    ("bases", {"base", "momentum", "weight_decay", "beta1", "beta2"}),
    ("judges", {"next_weight"}),
    ("paces", {"search_every", "search_when"}),
    ("searches", {"search", "guard"}),
    ("bandits", {"bandit"}),
)
"""The group of a family that changes one of these settings; of several groups, the first."""


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


def changes(family: HotSwapFamily, paper: Family | None = None) -> str:
    """The settings in which a family differs from the paper's algorithm, as code: `search=Armijo(slope=0.3)`."""
    return ", ".join(f"`{name}={_code(family, name)}`" for name in _changed(family, paper)) or "nothing"


def group_of(family: HotSwapFamily, paper: Family | None = None) -> str:
    """The one of `GROUPS` that a family belongs to."""
    changed = _changed(family, paper)
    if "factored" in changed or (family.combined and changed & {"momentum", "weight_decay"}):
        return "several"
    return next((group for group, settings in FIRST if changed & settings), "rest")


def _changed(family: HotSwapFamily, paper: Family | None) -> KeysView[str]:
    plain = paper if isinstance(paper, HotSwapFamily) else HotSwapFamily()
    names = [field.name for field in fields(family) if field.name != "name"]
    return {name: None for name in names if getattr(family, name) != getattr(plain, name)}.keys()


def _code(family: HotSwapFamily, name: str) -> str:
    value = getattr(family, name)
    if isinstance(stored := family.constants().get(name), dict):
        settings = ", ".join(f"{key}={value!r}" for key, value in stored.items() if key != "name")
        return f"{type(value).__name__}({settings})"
    return repr(value[0] if isinstance(value, tuple) and len(value) == 1 else value)

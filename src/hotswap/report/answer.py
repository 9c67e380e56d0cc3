"""The answer with which a page opens: the cases of a question, by outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from hotswap.report.tables import Grid

__all__ = ["Answer", "Case", "Group", "Sign"]

Sign = Literal["good", "part", "even", "bad", "unknown"]


class Case(NamedTuple):
    """One claim, workload or variant."""

    text: str
    detail: str = ""
    """The numbers that decide."""
    doubt: str = ""
    """A reason not to be sure; empty where there is none."""
    weight: float = 0.0
    """The length of the bar beside the case, at most 1; 0 for no bar."""


@dataclass(frozen=True)
class Group:
    """The cases that share an outcome."""

    outcome: str
    sign: Sign
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Answer:
    """A question, and its cases by outcome, the best outcome first."""

    question: str
    place: str
    """The section of the page that tells more."""
    noun: str
    """The word for one case."""
    groups: tuple[Group, ...]
    note: str = ""
    grid: Grid | None = None
    """A table that says more."""

    def sentence(self) -> str:
        """`Of 8 claims: 3 reproduced, 2 partly reproduced, 3 not reproduced.`."""
        count = sum(len(group.cases) for group in self.groups)
        counts = ", ".join(f"{len(group.cases)} {group.outcome}" for group in self.groups)
        return f"Of {count} {self.noun}{'' if count == 1 else 's'}: {counts}."

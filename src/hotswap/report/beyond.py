"""Beyond the paper: the verdict on the variants of a study, and the tables about them.

A variant wins if it is ahead of three rivals, early and late, at every batch size, at equal cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hotswap.report.answer import Answer, Case, Group, Sign
from hotswap.report.comparison import RIVALS, Comparison, Rival
from hotswap.report.tables import Grid, escaped, markdown
from hotswap.report.variants import GROUPS, changes, group_of, readable
from hotswap.studies.algorithms import HotSwapFamily

__all__ = [
    "DECIDING",
    "Margin",
    "Outcome",
    "Prize",
    "Standing",
    "beyond_text",
    "epoch_grid",
    "error_grid",
    "in_groups",
    "method",
    "objective_grid",
    "prize",
    "prize_grid",
    "variant_grid",
    "variants_answer",
]

DECIDING = RIVALS[:3]
"""The rivals whom a variant has to be ahead of."""
EVERYONE = "the paper's algorithm, AdaDelta and the median of the best tenth of SGD's settings"


@dataclass(frozen=True)
class Margin:
    """A variant and a rival at one batch size and cost."""

    rival: Rival
    batch_size: int
    cost: int
    lead: float
    """The rival's objective over the variant's: above 1 the variant is ahead. NaN where it cannot be known."""


@dataclass(frozen=True)
class Standing:
    """A variant against all who decide."""

    variant: str
    margins: tuple[Margin, ...]

    @property
    def known(self) -> tuple[Margin, ...]:
        """The comparisons that can be made."""
        return tuple(margin for margin in self.margins if not math.isnan(margin.lead))

    @property
    def whole(self) -> bool:
        """Whether every comparison can be made."""
        return bool(self.margins) and len(self.known) == len(self.margins)

    @property
    def leads(self) -> int:
        """The number of comparisons in which the variant is ahead; as good is not ahead."""
        return sum(margin.lead > 1 for margin in self.known)

    @property
    def ahead(self) -> bool:
        """Whether the variant is ahead of everyone everywhere."""
        return self.whole and self.leads == len(self.margins)

    def first(self, batch_size: int, cost: int) -> bool:
        """Whether the variant is ahead of all who decide at this batch size and cost."""
        leads = [m.lead for m in self.margins if (m.batch_size, m.cost) == (batch_size, cost)]
        return bool(leads) and all(lead > 1 for lead in leads)

    @property
    def worst(self) -> Margin:
        """The comparison in which the lead is smallest."""
        return min(self.known, key=lambda margin: margin.lead)


class Outcome(StrEnum):
    """The verdict on all variants, with its sentence."""

    LACKING = "No variant can be judged, because there are no runs of {names}."
    SHORT = "No variant was trained for long enough to be judged at the costs of {moments} plain epochs."
    WON = "Ahead of {everyone} at every batch size, at the costs of {moments} plain epochs: {names}."
    NOBODY = (
        "No variant is ahead of {everyone} at every batch size, at the costs of {moments} plain epochs. "
        "The nearest is {names}."
    )


@dataclass(frozen=True)
class Prize:
    """The verdict on all variants of a study."""

    standings: tuple[Standing, ...]
    """From the smallest lead that is largest; variants that cannot be judged come last."""
    moments: tuple[int, ...]
    lacking: tuple[Rival, ...]
    """The rivals who decide but have no runs on this problem."""

    @property
    def winners(self) -> tuple[Standing, ...]:
        """The variants that are ahead of everyone everywhere, the clearest first."""
        return tuple(standing for standing in self.standings if standing.ahead)

    @property
    def outcome(self) -> Outcome:
        """The kind of the verdict."""
        if self.lacking:
            return Outcome.LACKING
        if self.winners:
            return Outcome.WON
        return Outcome.NOBODY if any(standing.whole for standing in self.standings) else Outcome.SHORT

    def of(self, variant: str) -> Standing | None:
        """The standing of one variant."""
        return next((standing for standing in self.standings if standing.variant == variant), None)

    def sentence(self) -> str:
        """The verdict in words."""
        named = [f"`{standing.variant}`" for standing in self.winners or self.standings[:1]]
        names = ", ".join([rival.whole for rival in self.lacking] or named)
        moments = " and ".join(map(str, self.moments))
        return self.outcome.format(everyone=EVERYONE, moments=moments, names=names)


def prize(comparison: Comparison) -> Prize:
    """Judge every variant but the paper's own algorithm."""
    there = {rival.key for rival in comparison.present}
    lacking = tuple(rival for rival in DECIDING if rival.key not in there)
    standings = [_standing(comparison, family.name) for family in comparison.others]
    return Prize(tuple(sorted(standings, key=_rank)), comparison.moments, lacking)


def _rank(standing: Standing) -> tuple[bool, float]:
    return not standing.whole, -standing.worst.lead if standing.known else math.inf


def _standing(comparison: Comparison, name: str) -> Standing:
    ratios = {
        (rival, size, cost): comparison.ratio(name, size, cost, rival.key)
        for rival in DECIDING
        for size in comparison.batch_sizes
        for cost in comparison.moments
    }
    return Standing(name, tuple(Margin(*key, math.inf if ratio == 0 else 1 / ratio) for key, ratio in ratios.items()))


def variants_answer(comparison: Comparison) -> Answer:
    """How many variants are ahead of everyone, and which."""
    verdict, found = prize(comparison), {outcome: list[Case]() for outcome in AHEAD}
    for standing in verdict.standings:
        detail = f"{standing.leads} of {len(standing.margins)}" if standing.leads else ""
        found[_outcome(standing)].append(Case(readable(standing.variant), detail))
    groups = tuple(Group(outcome, sign, tuple(found[outcome])) for outcome, sign in AHEAD.items() if found[outcome])
    moments = " and ".join(map(str, verdict.moments))
    note = f"Compared with {EVERYONE}: at each batch size, at the costs of {moments} plain epochs."
    return Answer("Which variants are ahead of everyone, everywhere?", "beyond", "variant", groups, note)


AHEAD: dict[str, Sign] = {
    "ahead in every comparison": "good",
    "ahead in some": "part",
    "ahead in none": "bad",
    "not judged": "unknown",
}


def _outcome(standing: Standing) -> str:
    every, some, none, unknown = AHEAD
    if not standing.whole:
        return unknown
    return every if standing.ahead else some if standing.leads else none


# --- tables -----------------------------------------------------------------------------------------------------------


def in_groups(comparison: Comparison) -> dict[str, list[HotSwapFamily]]:
    """The variants by group, in the order of `GROUPS`, the paper's own algorithm left out."""
    found: dict[str, list[HotSwapFamily]] = {group: [] for group in GROUPS}
    for family in comparison.others:
        found[group_of(family, comparison.paper)].append(family)
    return {group: families for group, families in found.items() if families}


def prize_grid(verdict: Prize, most: int = 10) -> Grid:
    """The number of comparisons in which each variant is ahead, and where it is worst; the nearest first."""
    rows = [
        (f"`{s.variant}`", f"{s.leads} of {len(s.margins)}", _ratio(s.worst.lead), _place(s.worst))
        for s in verdict.standings[:most]
        if s.whole
    ]
    title = "Who came nearest; a lead is the rival's objective over the variant's, so that above 1 the variant is ahead"
    return Grid(title, ("variant", "ahead in", "smallest lead", "over whom, and where"), tuple(rows), left=4)


def _place(margin: Margin) -> str:
    return f"{margin.rival.whole}, batch {margin.batch_size}, cost {margin.cost}"


def variant_grid(comparison: Comparison) -> Grid:
    """A table of each variant: its change, its results and its cost, each number over all batch sizes."""
    rows = [(rival.whole, "", rival.key) for rival in comparison.present if rival.key != "paper"]
    if comparison.paper is not None:
        rows.insert(0, (f"`{comparison.paper.name}`", "the paper's algorithm", comparison.paper.name))
    for families in in_groups(comparison).values():
        rows += [(f"`{f.name}`", changes(f, comparison.paper), f.name) for f in families]
    moments, last = comparison.moments, comparison.moments[-1]
    title = (
        "The variants; objectives over that of the paper's algorithm, the geometric mean over batch sizes; test "
        "errors, trials and costs, the median"
    )
    heads = ("variant", "with", *(f"objective at {cost}" for cost in moments), f"test error at {last}")
    return Grid(
        title,
        (*heads, "trials per step", "cost of an epoch"),
        tuple((name, change, *_in_short(comparison, who)) for name, change, who in rows),
        left=2,
    )


def _in_short(comparison: Comparison, who: str) -> list[str]:
    sizes, last = comparison.batch_sizes, comparison.moments[-1]
    key = "paper" if comparison.paper is not None and who == comparison.paper.name else who
    with np.errstate(divide="ignore"):
        logs = [np.log([comparison.ratio(key, size, cost) for size in sizes]) for cost in comparison.moments]
    errors = [comparison.value(key, size, last, "test_error") for size in sizes]
    efforts = ([measure(who, size) for size in sizes] for measure in (comparison.trials, comparison.relative_cost))
    return [
        *(_shown(float(np.exp(np.mean(some))), _ratio) for some in logs),
        _shown(float(np.median(errors)), "{:.2%}".format),
        *(_shown(float(np.median(some)), "{:.2f}".format) for some in efforts),
    ]


def objective_grid(comparison: Comparison, cost: int) -> Grid:
    """Objectives at a cost, by batch size, and how many times that of the paper's algorithm they are.

    Bold is what is ahead of all who decide.
    """
    title = (
        f"Training objective at the cost of {cost} plain epochs; in brackets, how many times that of the paper's "
        "algorithm; bold, what is ahead of all three who decide"
    )
    return _at_cost(comparison, title, lambda who, size: _objective(comparison, who, size, cost))


def error_grid(comparison: Comparison, cost: int) -> Grid:
    """Test errors at a cost, by batch size."""

    def cell(who: str, size: int) -> str:
        return _shown(comparison.value(who, size, cost, "test_error"), "{:.2%}".format)

    return _at_cost(comparison, f"Test error at the cost of {cost} plain epochs", cell)


def _at_cost(comparison: Comparison, title: str, cell: Callable[[str, int], str]) -> Grid:
    rows = [(rival.whole, rival.key) for rival in comparison.present]
    rows += [(f"`{family.name}`", family.name) for families in in_groups(comparison).values() for family in families]
    sizes = comparison.batch_sizes
    heads = ("", *(f"batch {size}" for size in sizes))
    return Grid(title, heads, tuple((label, *(cell(who, size) for size in sizes)) for label, who in rows))


def _objective(comparison: Comparison, who: str, size: int, cost: int) -> str:
    ratio = comparison.ratio(who, size, cost)
    text = _shown(comparison.value(who, size, cost), "{:.1e}".format)
    if who == "paper" or not math.isfinite(ratio):
        return text
    first = all(comparison.ratio(who, size, cost, rival.key) < 1 for rival in DECIDING)
    ahead = first and who not in {rival.key for rival in RIVALS}
    return f"**{text} ({_ratio(ratio)})**" if ahead else f"{text} ({_ratio(ratio)})"


def epoch_grid(comparison: Comparison, families: Sequence[HotSwapFamily], title: str) -> Grid:
    """Objective and test error epoch by epoch, whatever they cost, with trials per step and the cost of an epoch."""
    heads = ("variant", "batch", *(f"epoch {e}" for e in comparison.epochs), "trials per step", "cost of an epoch")
    rows = []
    for name in (family.name for family in families):
        for size in comparison.batch_sizes:
            cells = [_moment(comparison, name, size, epoch) for epoch in comparison.epochs]
            efforts = (comparison.trials(name, size), comparison.relative_cost(name, size))
            rows.append((f"`{name}`", str(size), *cells, *(_shown(value, "{:.2f}".format) for value in efforts)))
    return Grid(title, heads, tuple(rows))


def _moment(comparison: Comparison, name: str, size: int, epoch: int) -> str:
    key = (name, size, epoch)
    if key not in comparison.by_epoch.index:
        return "–"
    row = comparison.by_epoch.loc[key]
    return f"{_shown(row['train_nll'], '{:.1e}'.format)}, {_shown(row['test_error'], '{:.2%}'.format)}"


def _ratio(ratio: float) -> str:
    """With two digits or so: 0.09, 1.30, 24, 1,300; above a million as a power of ten."""
    if not math.isfinite(ratio):
        return "–"
    if ratio < 9.95:
        return f"{ratio:.2f}" if ratio >= 0.095 else f"{ratio:.1g}"
    digits = 10 ** max(0, math.floor(math.log10(ratio)) - 1)
    return f"{round(ratio / digits) * digits:,.0f}" if ratio < 1e6 else f"{ratio:.0e}"


def _shown(value: float, text: Callable[[float], str]) -> str:
    """A number; a dash for what is not known, and a word for what has diverged."""
    if math.isnan(value):
        return "–"
    return text(value) if math.isfinite(value) else "diverged"


# --- all of it --------------------------------------------------------------------------------------------------------

METHOD = (
    "Medians over seeds {seeds}. Cost is counted in plain epochs, those of SGD or AdaDelta: a step is a forward and a "
    "backward pass, which counts as two more, and a trial is another forward. Between recorded epochs the logarithm of "
    "a value is taken to be on a straight line over the cost; nothing is guessed beyond them."
)
TENTH = " The best tenth of SGD's settings are {} of {}, chosen anew at each batch size and cost."
BORROWED = " Trained in the paper's study: {}."
UNFINISHED = " Not trained to the end yet: {}."


def method(comparison: Comparison) -> str:
    """How variants were compared, in a paragraph: the unit of cost, the rivals, and where these come from."""
    labels = {"adadelta": "AdaDelta", "sgd": "SGD", "paper": "the paper's algorithm"}
    lasts = [f"`{name}` at batch {size} (epoch {last})" for (name, size), last in comparison.unfinished.items()]
    parts = [METHOD.format(seeds=", ".join(map(str, comparison.seeds)))]
    parts += [TENTH.format(*comparison.settings)] if comparison.settings[0] else []
    parts += [BORROWED.format(", ".join(labels[key] for key in comparison.borrowed))] if comparison.borrowed else []
    return "".join(parts + ([UNFINISHED.format(", ".join(lasts))] if lasts else []))


def beyond_text(comparison: Comparison) -> str:
    """`beyond-the-paper.md`: the verdict and all tables."""
    verdict, last = prize(comparison), comparison.moments[-1]
    grids = [prize_grid(verdict), variant_grid(comparison)]
    grids += [*(objective_grid(comparison, cost) for cost in comparison.moments), error_grid(comparison, last)]
    grids += [
        epoch_grid(comparison, families, f"{GROUPS[group]}, epoch by epoch: objective and test error")
        for group, families in in_groups(comparison).items()
    ]
    title = f"# Beyond the paper: the study {escaped(comparison.name)}"
    parts = [title, escaped(verdict.sentence()), escaped(method(comparison)), *(markdown(grid) for grid in grids)]
    return "\n\n".join(part.strip() for part in parts) + "\n"

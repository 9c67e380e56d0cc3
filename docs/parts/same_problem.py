"""Studies of the paper's problem that are not in the report, as Markdown: vSGD, and the search of the prose.

Each is beside the paper's algorithm, AdaDelta and SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
from beyond import NOT_YET
from beyond import results as study
from measured import table
from tuning_free import against

from hotswap.report.extensions.comparison import compare, tenth
from hotswap.report.extensions.costs import PASSES
from hotswap.report.origin import origin_of
from hotswap.report.results import Results
from hotswap.report.summaries import settings_among

MEASURES = {"train_nll": "training objective", "test_error": "test error"}
NOWHERE = "at no batch size"


def vsgd() -> str:
    """vSGD after as many epochs as the others, early and late; or a sentence."""
    results, shipped = study("cited"), study("paper")
    if results is None or shipped is None:
        return NOT_YET
    parts = []
    for epochs in (50, results.planned_epochs):
        rows = _rows("vSGD", epochs, results, shipped)
        parts += [_table(epochs, rows), _told(epochs, rows)]
    return "\n\n".join([*parts, f"*Source: `results/cited`. {origin_of(results).sentence()}*"])


def first_decrease() -> str:
    """Both searches at equal cost, and their trials; or a sentence."""
    results = study("first_decrease")
    found = None if results is None else compare(results, study("paper"))
    if results is None or found is None:
        return NOT_YET
    searches = {"paper": "`Backtracking()`", "first_decrease": "`FirstDecrease()`"}
    searches["first_headroom"] = "`FirstDecrease(headroom=1)`"
    sizes = found.batch_sizes
    rows = [
        (title, what, *(f"{read(who, size):{form}}" for size in sizes))
        for who, title in searches.items()
        for what, form, read in (
            *(
                (f"objective at the cost of {cost} plain epochs", ".1e", partial(found.value, cost=cost))
                for cost in found.moments
            ),
            ("trials per step", ".2f", found.trials),
        )
    ]
    parts = [table(("search", "", *(f"batch {size}" for size in sizes)), rows, left=2)]
    for cost in found.moments:
        ahead = [str(size) for size in sizes if found.ratio("first_decrease", size, cost) < 1]
        parts.append(f"At the cost of {cost} plain epochs `FirstDecrease()` is ahead {_at(ahead, len(sizes))}.")
    parts += [told] if (told := against("first_decrease", "hotswap_sgd")) else []
    return "\n\n".join([*parts, f"*Source: `results/first_decrease`. {origin_of(results).sentence()}*"])


def _rows(name: str, epochs: int, results: Results, shipped: Results) -> dict[str, pd.DataFrame]:
    """What each had after so many epochs, the one with the `name` first; of SGD, one row a setting."""
    ours, theirs = (found.metrics[found.metrics["epoch"] == epochs] for found in (results, shipped))
    rows = {name: ours, "the paper's algorithm": theirs[theirs["algorithm"] == "ducb"]}
    rows["AdaDelta"] = theirs[theirs["algorithm"] == "adadelta"]
    sgd = theirs[theirs["algorithm"] == "sgd"]
    settings = sgd.groupby(settings_among(sgd), dropna=False)[["train_nll", "test_error"]].median().reset_index()
    ranked = settings.sort_values("train_nll").groupby("batch_size")
    rows["the median of the best tenth of SGD's settings"] = ranked.head(tenth(len(settings) // len(_sizes(rows))))
    rows["the best of SGD's settings"] = ranked.head(1)
    return rows


def _sizes(rows: dict[str, pd.DataFrame]) -> list[int]:
    return sorted(int(size) for size in next(iter(rows.values()))["batch_size"].unique())


def _table(epochs: int, rows: dict[str, pd.DataFrame]) -> str:
    sizes = _sizes(rows)
    cells = [
        (who, *(_cell(found[found["batch_size"] == size]) for size in sizes), _cost(found, epochs))
        for who, found in rows.items()
    ]
    title = f"**{epochs} epochs: training objective and test error, medians over seeds**"
    return f"{title}\n\n" + table(("", *(f"batch {size}" for size in sizes), "cost of an epoch"), cells)


def _told(epochs: int, rows: dict[str, pd.DataFrame]) -> str:
    """At which batch sizes the first of them has the lowest value of all."""
    who = next(iter(rows))
    places = {name: _where(rows, column) for column, name in MEASURES.items()}
    if set(places.values()) == {NOWHERE}:
        return f"After {epochs} epochs others are ahead of {who} at every batch size, by both."
    return f"After {epochs} epochs {who} has {' and '.join(f'the lowest {name} {at}' for name, at in places.items())}."


def _where(rows: dict[str, pd.DataFrame], column: str) -> str:
    medians = pd.DataFrame({who: found.groupby("batch_size")[column].median() for who, found in rows.items()})
    sizes, first = _sizes(rows), next(iter(rows))
    return _at([str(size) for size in sizes if medians.loc[size].idxmin() == first], len(sizes))


def _at(ahead: list[str], all_of_them: int) -> str:
    if len(ahead) == all_of_them:
        return "at every batch size"
    *most, last = ahead or [""]
    return f"at batch {', '.join(most)}{' and ' if most else ''}{last}" if ahead else NOWHERE


def _cell(rows: pd.DataFrame) -> str:
    return f"{rows['train_nll'].median():.1e}, {rows['test_error'].median():.2%}"


def _cost(rows: pd.DataFrame, epochs: int) -> str:
    """Forward passes over those of plain epochs; of the paper's algorithm, by its trials in that epoch."""
    if "passes" in rows and rows["passes"].notna().all():
        return f"{(rows['passes'] / (PASSES * rows['steps'])).median():.2f}"
    trials = rows["trials"].median() if "trials" in rows else 0.0
    return f"{1 + trials / PASSES:.2f}"


BLOCKS: dict[str, Callable[[], str]] = {"vsgd": vsgd, "first decrease": first_decrease}

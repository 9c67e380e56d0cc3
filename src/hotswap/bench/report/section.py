"""The page's data on a benchmark, as plain JSON: numbers and tables, nothing drawn yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hotswap.bench.methods import SECOND
from hotswap.bench.methods.tuned import REFERENCE
from hotswap.bench.plan import chosen_settings
from hotswap.bench.report.comparing import best_first, contests, duels, scored
from hotswap.bench.report.figures import MOST
from hotswap.bench.report.methods import (
    appearances,
    configuration_grid,
    is_ours,
    label,
    origins,
    settings_text,
    three_digits,
    title_of,
)
from hotswap.bench.report.text import cautions, contest_answer, coverage, hindsight, lead_grid, standing_grid
from hotswap.bench.runs import PERCENTS, Result, troubles
from hotswap.bench.scores import EARLY, Key, Overall, Score, curve, overall, profile, reported, scores, untrained
from hotswap.bench.workloads import WORKLOADS
from hotswap.report.page.data import plain

__all__ = ["section_data"]

FEW = 3
"""So many of the others are drawn to begin with, beside AdamW."""


def section_data(results: Mapping[str, Result]) -> dict[str, Any] | None:
    """Everything that the page's script needs; None where nothing has ended."""
    runs, found = reported(results), scores(results)
    if not found:
        return None
    starts, made = untrained(runs), origins(results.values())
    levels = {score.workload: score.median for score in found if score.method == REFERENCE}
    section: dict[str, Any] = plain(
        {
            "percents": PERCENTS,
            "early": EARLY,
            "cautions": cautions(results, found),
            "coverage": coverage(results, found),
            "grids": [grid for grid in (standing_grid(found), lead_grid(results, found)) if grid.rows],
            "hindsight": hindsight(results),
            "answers": [contest_answer(found)] if contests(found) else [],
            "methods": _methods(found),
            "scored": scored(found),
            "workloads": [
                _workload(name, results, runs, found, starts.get(name, math.nan), levels.get(name, math.nan))
                for name in sorted({score.workload for score in found}, key=_place)
            ],
            "overall": [_overall(row) for row in overall(found)],
            "profile": _profile(found),
            "duels": duels(found),
            "troubles": troubles(results.values()),
            "unfinished": sum(result.state != "finished" for result in results.values()),
            "configurations": configuration_grid(found),
            "origins": [origin.sentence() for origin in made],
            "commands": sorted({command for origin in made for command in origin.commands}),
        }
    )
    return section


def _overall(row: Overall) -> dict[str, Any]:
    """A row of the table of scores."""
    early = {str(percent): mean for percent, mean in row.early.items()}
    means = {"mean": row.mean, "again": row.second, "worst": row.worst, **early}
    texts = {name: three_digits(mean) for name, mean in means.items()}
    return asdict(row) | {"second": False, "again": row.second, "texts": texts}


def _place(workload: str) -> tuple[int, str]:
    """The small workloads first; each kind by name."""
    return int(workload in WORKLOADS and WORKLOADS[workload].wants_gpu), workload


def _methods(found: Sequence[Score]) -> dict[str, dict[str, Any]]:
    """How each is called and drawn: ours first, then the reference, then the others, the best mean first."""
    drawn = appearances(score.method for score in found)
    means = {row.method: place for place, row in enumerate(best_first(found))}
    best = [name for name in means if not is_ours(name)][:FEW]
    order = sorted(drawn, key=lambda name: (not is_ours(name), name != REFERENCE, means.get(name, len(means)), name))
    return {
        name: {
            **asdict(drawn[name].look),
            "label": label(name),
            "ours": is_ours(name),
            "reference": name == REFERENCE,
            "shown": is_ours(name) or name in (REFERENCE, "adamw", *best) or len(drawn) <= 2 * FEW,
        }
        for name in order
    }


def _workload(
    name: str,
    results: Mapping[str, Result],
    runs: Mapping[Key, Sequence[Result]],
    found: Sequence[Score],
    start: float,
    level: float,
) -> dict[str, Any]:
    """One workload: its reference, and a line for every configuration of a method, the best first."""
    title, measured = title_of(name)
    own = sorted((score for score in found if score.workload == name), key=lambda score: (score.median, score.method))
    return {
        "name": name,
        "title": title,
        "measured": measured,
        "error": measured.endswith("error"),
        "start": start,
        "level": level,
        "reference": settings_text(chosen_settings(name, results)),
        "lines": [_line(score, runs[score.workload, score.method, score.configuration], start) for score in own],
    }


def _line(score: Score, runs: Sequence[Result], start: float) -> dict[str, Any]:
    """Medians, least and greatest by percent of the budget, and all that there is about the end."""
    bands = curve(runs, start)
    median, low, high = zip(*(bands[percent] for percent in PERCENTS), strict=True)
    return asdict(score) | {
        "second": score.configuration == SECOND,
        "label": label(score.method, score.configuration),
        "median": median,
        "low": low,
        "high": high,
        "text": three_digits(score.ratio),
        "texts": {percent: three_digits(score.early[percent]) for percent in EARLY},
        "time": "never" if math.isinf(score.time) else score.time,
        "missed": score.missed,
    }


def _profile(found: Sequence[Score]) -> dict[str, Any]:
    """The levels at which a share of workloads changes, up to the farthest that is drawn, and the shares there."""
    ratios = {score.ratio for score in found if score.ratio <= MOST}
    levels = sorted({min([0.8, *ratios]), *ratios, MOST})
    return {"levels": levels, "shares": profile(found, levels)}

"""The numbers behind figures, tables, claims and scores, from the results in the repository.

    python -m tests.goldens.report      write report.json anew

The numbers depend on the results alone, so a change of code must leave them equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pandas as pd

from hotswap.bench.exchange import read_results
from hotswap.bench.report.comparing import contests, duels, leads
from hotswap.bench.scores import Score, in_hindsight, overall, profile, scores
from hotswap.report import judge, load_results
from hotswap.report.beyond import prize
from hotswap.report.comparison import compare
from hotswap.report.figures.paper import figure_1_data
from hotswap.report.origin import origin_of
from hotswap.report.results import Results
from hotswap.report.summaries import chosen, trials_per_step
from hotswap.report.tables import timing_grid
from hotswap.report.tuning import MEASURES, price_of_tuning
from hotswap.report.variants import group_of

FILE = Path(__file__).with_name("report.json")
RESULTS = Path(__file__).parents[2] / "results"
NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
LONGEST = 20


def goldens() -> dict[str, Any]:
    """Everything, as plain JSON."""
    paper = load_results(RESULTS / "paper")
    found = {"scores": _scores(), "paper": _paper(paper)}
    found |= {name: _variants(load_results(RESULTS / name), paper) for name in ("extensions", "confirmation")}
    whole: dict[str, Any] = json.loads(json.dumps(found))  # tuples become lists, keys become text
    return whole


def _scores() -> dict[str, Any]:
    results = {one.run.id: one for one in read_results(RESULTS / "tuning_free")}
    every = scores(results)
    levels = [0.8, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0]
    return {
        "scores": {f"{s.workload}/{s.method}/{s.configuration}": _score(s) for s in every},
        "overall": {row.method: astuple(row)[1:] for row in overall(every)},
        "order": [row.method for row in overall(every)],
        "profile": profile(every, levels),
        "duels": {f"{one.ours}/{one.other}": (one.ahead, one.level, one.surely, one.of) for one in duels(every)},
        "contests": {c.workload: (c.ours.method, c.other.method, c.lead, c.standing) for c in contests(every)},
        "leads": {
            f"{one.ours}/{one.other}": (one.ratio, one.low, one.high, one.without, one.then, one.few)
            for one in leads(results, every)
            if one.ratio < 1
        },
        "in hindsight": in_hindsight(results),
    }


def _score(s: Score) -> tuple[Any, ...]:
    measures = (s.median, s.low, s.high, s.seconds, s.ratio, *s.early.values(), s.time, s.nearest)
    return (s.seeds, s.unfinished, s.spoiled, *measures)


def _paper(results: Results) -> dict[str, Any]:
    origin = origin_of(results)
    return {
        "verdicts": [claim.verdict for claim in judge(results)],
        "numbers of claims": [sorted(NUMBER.findall(f"{c.paper} {c.ours}")) for c in judge(results)],
        "figure 1": {epoch: _thin(table) for epoch, table in figure_1_data(results.metrics).items()},
        "figure 2": {run: _thin(rows) for run, rows in results.curves.groupby("run")},
        "chosen": {size: _thin(table) for size, table in chosen(results).items()},
        "trials": {size: _few(series) for size, series in trials_per_step(results.metrics, "ducb").items()},
        "tuning": {measure: _tuning(results, measure) for measure in MEASURES},
        "tables": [timing_grid(results.timing, unit, results.looks)[:3] for unit in ("milliseconds", "seconds")],
        "origin": (origin.devices, origin.precisions, origin.dates, origin.minutes, origin.units, origin.runs),
    }


def _tuning(results: Results, measure: Any) -> dict[str, Any]:
    curve = price_of_tuning(results.metrics, measure, results.looks, results.searches[measure])
    assert curve is not None
    assert curve.bayesian is not None
    return {
        name: {
            "expected": _few(one.expected),
            "low": _few(one.low),
            "high": _few(one.high),
            "caught up": {size: one.caught_up(float(level)) for size, level in curve.levels.items()},
            "until": {size: one.until(float(level)) for size, level in curve.levels.items()},
        }
        for name, one in (("random", curve), ("bayesian", curve.bayesian))
    } | {"levels": curve.levels.to_dict(), "one run": curve.one_run}


def _variants(results: Results, paper: Results) -> dict[str, Any]:
    found = compare(results, paper)
    assert found is not None
    verdict = prize(found)
    return {
        "moments": found.moments,
        "settings": found.settings,
        "borrowed": found.borrowed,
        "groups": {family.name: group_of(family, found.paper) for family in found.others},
        "at cost": {who: _thin(rows) for who, rows in found.at_cost.groupby(level="who")},
        "by epoch": {who: _thin(rows) for who, rows in found.by_epoch.groupby(level="algorithm")},
        "curves": {who: _thin(rows) for who, rows in found.curves.groupby(level="who")},
        "ratios": {
            family.name: [found.ratio(family.name, size, cost) for cost in found.moments for size in found.batch_sizes]
            for family in found.others
        },
        "standings": [
            (s.variant, s.leads, s.whole, s.worst.lead, s.worst.rival.key, s.worst.batch_size, s.worst.cost)
            for s in verdict.standings
        ],
        "winners": [standing.variant for standing in verdict.winners],
    }


def _thin(table: pd.DataFrame) -> dict[str, Any]:
    """Each column of numbers, shortened."""
    return {str(name): _few(table[name]) for name in table.select_dtypes("number")}


def _few(values: Iterable[float]) -> list[float]:
    """The number of the values, the sum of the finite ones, and the values themselves, evenly thinned if many."""
    every = [float(value) for value in values]
    step = 1 + len(every) // LONGEST
    return [len(every), sum(value for value in every if abs(value) < float("inf")), *every[::step]]


if __name__ == "__main__":
    text = json.dumps(goldens(), ensure_ascii=False, separators=(",", ":")).replace("},", "},\n")
    FILE.write_text(f"{text}\n", encoding="utf-8")

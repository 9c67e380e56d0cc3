"""The runs of the benchmark: some are known from the start, others follow from results.

The rules are those of `docs/benchmark.md`, fixed before any comparison at full size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from hotswap.bench.methods import FIRST, METHODS, SECOND
from hotswap.bench.methods.tuned import REFERENCE, SEARCHED
from hotswap.bench.runs import SETTLED, Result, Run
from hotswap.bench.workloads import WORKLOADS, Size

__all__ = ["CHOOSING", "FAILING", "chosen", "chosen_settings", "reporting_seeds", "search_of", "wanted"]

CHOOSING = 100
"""The seed from which the reference is chosen: none of those that are reported."""

FAILING = 1.5
"""A method fails on a workload if one of its runs has no end, or if its median is so many times the reference's."""


def reporting_seeds(workload: str) -> range:
    """Five, or three where a run is meant for a GPU."""
    return range(3 if WORKLOADS[workload].wants_gpu else 5)


def wanted(workloads: Iterable[str], methods: Sequence[str], size: Size, results: Mapping[str, Result]) -> list[Run]:
    """The runs of these workloads and methods, as far as the results so far tell which they are.

    results: by the run's id, those of other methods among them.
    """
    return [run for workload in workloads for run in _of_workload(workload, methods, size, results)]


def _of_workload(workload: str, methods: Sequence[str], size: Size, results: Mapping[str, Result]) -> list[Run]:
    seeds = reporting_seeds(workload)
    found = [Run(workload, name, FIRST, seed, size) for seed in seeds for name in methods if name != REFERENCE]
    if REFERENCE in methods:
        search = [Run(workload, REFERENCE, name, CHOOSING, size) for name in SEARCHED]
        best = chosen(workload, results)
        found = search + ([Run(workload, REFERENCE, best, seed, size) for seed in seeds] if best else []) + found
    again = [name for name in methods if name != REFERENCE and METHODS[name].has_second(WORKLOADS[workload])]
    for name in again:
        if fails(workload, name, results):
            found += [Run(workload, name, SECOND, seed, size) for seed in seeds]
    return found


def chosen(workload: str, results: Mapping[str, Result]) -> str | None:
    """The configuration of the tuned reference; None before the whole search is done, or if all of it failed."""
    search = search_of(workload, results) or []
    ended = [(result.end.validation, result.run.configuration) for result in search if result.end is not None]
    return min(ended)[1] if ended else None


def search_of(workload: str, results: Mapping[str, Result]) -> list[Result] | None:
    """The runs of the search for the reference; None before all of them have ended."""
    search = [results.get(Run(workload, REFERENCE, name, CHOOSING).id) for name in SEARCHED]
    there = [result for result in search if result is not None and result.state in SETTLED]
    return there if len(there) == len(search) else None


def chosen_settings(workload: str, results: Mapping[str, Result]) -> Mapping[str, object]:
    """The settings of the chosen configuration; empty before there is one."""
    best = chosen(workload, results)
    if best is None:
        return {}
    settings = results[Run(workload, REFERENCE, best, CHOOSING).id].settings
    return {name: settings[name] for name in sorted(settings, key=lambda name: (name != "optimizer", name))}


def fails(workload: str, method: str, results: Mapping[str, Result]) -> bool:
    """Whether the method's first configuration fails on a workload, once no seed that is to come can change that."""
    seeds, own = len(reporting_seeds(workload)), _settled(workload, method, FIRST, results)
    if any(result.end is None for result in own):
        return True
    best = chosen(workload, results)
    reference = [] if best is None else _settled(workload, REFERENCE, best, results)
    levels = [result.end.validation for result in reference if result.end is not None]
    if len(reference) < seeds or not levels:
        return False
    most = FAILING * median(levels)
    above = sum(result.end.validation > most for result in own if result.end is not None)
    return above > seeds / 2  # so the median is


def _settled(workload: str, method: str, configuration: str, results: Mapping[str, Result]) -> list[Result]:
    """The results of the reported seeds that are there."""
    runs = (Run(workload, method, configuration, seed) for seed in reporting_seeds(workload))
    found = (results.get(run.id) for run in runs)
    return [result for result in found if result is not None and result.state in SETTLED]

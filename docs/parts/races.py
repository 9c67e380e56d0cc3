"""Races: what their rules come to, from the rules themselves, and the trials in which the defaults were chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from benchmarked import rows_of, told
from measured import ROOT, table
from torch import nn

from hotswap.bench.scores import geometric_mean
from hotswap.race import average, handover, judging, lanes, orthogonal, schedule, winner
from hotswap.race.judging import lost, plan
from hotswap.race.lane import MUON_RATES, named
from hotswap.race.muon import Muon

TRIALS = ROOT / "results" / "races" / "trials.json"
OWN_LANES = TRIALS.with_name("own.json")
LENGTHS = (300, 500, 1_000, 3_000, 10_000, 100_000, None)
SHARE = 0.15
"""The default of `Race(share=...)`."""

DEFAULT = ("muon",) * len(MUON_RATES)
OWN = ("own", *DEFAULT)
"""Kinds of the lanes: the default ones, and those with an optimizer of the user's in front."""


def default_lanes() -> str:
    """The lanes of networks with and without matrices, as `lanes` makes them."""
    network, vectors = nn.Linear(4, 3), nn.ParameterList([nn.Parameter(torch.zeros(3))])
    rows = [
        ("matrices or convolutions, on a GPU", _names(network, muon=True)),
        ("matrices or convolutions, on a CPU", _names(network, muon="auto")),
        ("neither", _names(vectors, muon="auto")),
    ]
    return table(("the model has", "default lanes, in their order"), rows, left=2)


def _names(model: nn.Module, *, muon: Any) -> str:
    made = [lane.name.split() for lane in named(lanes(model, muon), None)]
    kinds = dict.fromkeys(kind for kind, _ in made)
    return "; ".join(f"{one} at {', '.join(rate for kind, rate in made if kind == one)}" for one in kinds)


def rounds() -> str:
    """How many lanes race, when they are compared, and what the losing ones take, for runs of some lengths."""
    ways = ((DEFAULT, False), (OWN, False), (DEFAULT, True))
    rows = [
        (f"{total:,}" if total else "unknown", *(_rounds(kinds, total, judged=judged) for kinds, judged in ways))
        for total in LENGTHS
    ]
    headings = ("steps of the run", "the default lanes", "with your optimizer", "the default lanes, with `judge`")
    return table(headings, rows, left=4)


def _rounds(kinds: Sequence[str], total: int | None, *, judged: bool) -> str:
    found = plan(kinds, total, SHARE, judged=judged)
    if not found.rounds:
        return "the first lane alone"
    when = " and ".join(f"{one.until:,}" for one in found.rounds)
    steps = lost(kinds[: found.lanes], found.rounds)
    costs = f"{steps:,} steps" if total is None else f"{steps / total:.1%}"
    return f"{found.lanes} lanes, after {when}: {costs}"


def trials() -> str:
    """The default lanes beside others and beside fixed recipes: means and worst scores on each group of problems."""
    found = json.loads(TRIALS.read_text(encoding="utf-8"))
    groups = sorted({name for row in found["rows"] for name in row["means"]})
    headings = ("trial", "date", *(f"{name}, mean / worst (of)" for name in groups))
    rows = [(f"`{row['trial']}`", row["date"], *(_cell(row, name) for name in groups)) for row in found["rows"]]
    chosen, confirmed = (", ".join(f"`{name}`" for name in found[role]) for role in ("choosing", "confirming"))
    origin = ", ".join(f"{name} {value}" for name, value in found["origin"].items())
    told = f"Meant for choosing: {chosen}.\n\nMeant for confirming: {confirmed}."
    return f"{told}\n\n{table(headings, rows, left=2)}\n\n*Source: `results/races/trials.json`. {origin}.*"


def _cell(row: Mapping[str, Any], group: str) -> str:
    if group not in row["means"]:
        return "–"
    return f"{row['means'][group]:.2f} / {row['worst'][group]:.2f} ({row['problems'][group]})"


def memory() -> str:
    """What races hold beside the model and one optimizer, by network and device."""
    rows = []
    for row, device in rows_of("race-memory"):
        lanes = f"{len(row['lanes'])} of {row['lanes'][0].split()[0]}"
        sizes = {name: f"{row[name] / 2**20:,.1f}" for name in ("weights", "trained", "device", "parked", "blocks")}
        sizes |= {"device": "–"} if device == "CPU" else {}
        rows.append((row["network"], device, lanes, *sizes.values()))
    headings = ("MiB", "device", "lanes", "weights", "trained", "on the device", "parked", "in blocks")
    return told("race-memory", shown=table(headings, rows, left=3))


def cost() -> str:
    """How long steps of a race take over those of its optimizers alone, with the least and the greatest ratio."""
    rows, ratio = [], "{ratio:.2f} ({low:.2f} to {high:.2f})".format_map
    for row, device in rows_of("race-cost"):
        racing = {one["total_steps"]: ratio(one) for one in row["racing"]}
        after = ", ".join(f"{one['optimizer']} {ratio(one)}" for one in row["after"])
        rows.append((row["network"], device, *(racing.get(n, "–") for n in (500, 1000, 5000)), after))
    headings = ("network", "device", "a run of 500 steps", "of 1,000", "of 5,000", "after the race")
    return told("race-cost", shown=table(headings, rows, left=2))


def own() -> str:
    """How races with an own lane end: beside a tuned optimizer alone, and beside a race without a bad one."""
    found = json.loads(OWN_LANES.read_text(encoding="utf-8"))
    lanes = [name for name in ("tuned_optimizer", "adamw_1e-5", "sgd_1e-3") if name in found["rows"][0]]
    heads = {"tuned_optimizer": "the tuned optimizer", "adamw_1e-5": "AdamW at 1e-5", "sgd_1e-3": "SGD at 1e-3"}
    rows = [
        (f"`{row['workload']}`", str(row["seeds"]), *(f"{row[lane]:.3f} ({row[lane + ' won']})" for lane in lanes))
        for row in found["rows"]
    ]
    for name, summed in (("mean", geometric_mean), ("worst", max)):
        rows.append((name, "", *(f"{summed([row[lane] for row in found['rows']]):.3f}" for lane in lanes)))
    origin = "{command}: {device}, torch {torch}, Python {python}, {date}".format_map(found["origin"])
    headings = ("workload", "seeds", *(heads[lane] for lane in lanes))
    return f"{table(headings, rows)}\n\n*Source: `results/races/own.json`. {origin}.*"


def muon_steps() -> str:
    """A pass and a step of Muon over a pass and a step of fused AdamW."""
    rows = []
    for row, device in rows_of("muon-step"):
        times = (f"{row['milliseconds'][name]:.2f}" for name in ("pass", "adamw alone", "muon alone", "eager alone"))
        graph = f"{row['step']:.2f}" if row["captured"] else "no graph"
        rows.append((row["network"], device, graph, f"{row['step_without_graph']:.2f}", *times))
    headings = ("network", "device", "with a graph", "without", "pass, ms", "AdamW", "Muon", "Muon, no graph")
    return told("muon-step", shown=table(headings, rows, left=2))


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def shortest(count: int) -> str:
    """The least number of steps with which so many of the default lanes race."""
    total = next(n for n in range(1, 100_000) if plan(DEFAULT, n, SHARE).lanes >= count)
    return f"{total:,}"


RULES: dict[str, str] = {
    "weight decay": f"{Muon(nn.Linear(2, 2)).defaults['weight_decay']:g}",
    "graph": f"{orthogonal.LARGEST / 1e6:.0f}",
    "first": _percent(judging.FIRST),
    "within": _percent(judging.WITHIN),
    "across": _percent(judging.ACROSS),
    "judged every": _percent(handover.JUDGED_EVERY),
    "judged": " and ".join(map(_percent, judging.JUDGED)),
    "cheap": _percent(judging.CHEAP),
    "least": str(judging.LEAST),
    "farther": f"{judging.FARTHER:g}",
    "open within": str(judging.OPEN_WITHIN),
    "open across": str(judging.OPEN_ACROSS),
    "every": str(average.EVERY),
    "warm-up": _percent(schedule.WARMUP),
    "longest warm-up": str(schedule.LONGEST_WARMUP),
    "window": str(winner.WINDOW),
    "kept": _percent(winner.KEPT),
    "failures": str(winner.FAILURES),
    "rollbacks": str(winner.ROLLBACKS),
}
"""Numbers within sentences."""

BLOCKS: dict[str, Callable[[], str]] = {
    "race lanes": default_lanes,
    "race rounds": rounds,
    "race trials": trials,
    "race cost": cost,
    "race memory": memory,
    "race own": own,
    "race muon step": muon_steps,
    "race of two from": partial(shortest, 2),
    "race of all from": partial(shortest, len(MUON_RATES)),
    **{f"race: {name}": (lambda text=text: text) for name, text in RULES.items()},  # type: ignore[misc]
}

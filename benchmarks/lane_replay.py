"""Replay races of optimizers that took turns, on the loss curves of lanes that trained alone.

    python -m benchmarks.lane_replay curves.npz --role choosing \\
        --race muon:2e-2,muon:6e-3,muon:2e-3 --rules 0.01:2,0.06:1 --rules 0.05:1

Curves are files or folders of `benchmarks.lane_curves`, made with `--references`. A rule `share:keep` is a round: every
lane that is left has taken so many steps, as a share of the run, and the lanes with the lowest mean training loss over
the last third of their steps in this round stay. `share:keepk` keeps so many of each kind of optimizer.
A race's score is the winner's final validation measure, times 1.002 for each per cent of the steps that losing lanes
took, over that of the tuned reference of the same seed. A problem's score is the geometric mean over its seeds.
`hindsight` is the best lane of a list, without a cost.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.lane_curves import Curve, Key, Lane, read, tuned
from benchmarks.race_problems import PROBLEMS

COST = 0.002
"""How much worse a run ends for each per cent of its steps that is lost."""
WORST_SCORE = 100.0
"""A score of a run that diverged."""

Curves = dict[str, Curve]
"""Of one problem and one seed, by lane."""
Method = Callable[[Curves], float]


class Rule(NamedTuple):
    """A round: until which share of the run, and how many lanes stay."""

    share: float
    keep: int
    of_each_kind: bool

    @classmethod
    def of(cls, text: str) -> Rule:
        share, keep = text.split(":")
        return cls(float(share), int(keep.removesuffix("k")), keep.endswith("k"))


class Outcome(NamedTuple):
    """How a race ended."""

    winner: str
    lost: int
    """The steps of the other lanes."""


def race(curves: Curves, rules: Iterable[Rule]) -> Outcome:
    """Judge lanes in rounds; after the last one the best of those that are left wins."""
    steps, left, lost, before = max(len(curve.losses) for curve in curves.values()), list(curves), 0, 0
    ranked = left
    for rule in rules:
        until = max(before + 1, round(rule.share * steps))
        begin = until - max(1, math.ceil((until - before) / 3))
        means = {lane: float(np.mean(curves[lane].losses[begin:until], dtype=np.float64)) for lane in left}
        ranked = sorted(left, key=means.__getitem__)
        kept = _kept(ranked, rule)
        lost += (len(left) - len(kept)) * until
        left, before = kept, until
    return Outcome(ranked[0], lost + (len(left) - 1) * before)


def _kept(ranked: list[str], rule: Rule) -> list[str]:
    if not rule.of_each_kind:
        return ranked[: rule.keep]
    kinds = [Lane.of(lane).optimizer for lane in ranked]
    return [lane for i, lane in enumerate(ranked) if kinds[:i].count(kinds[i]) < rule.keep]


def raced(lanes: list[str], rules: list[Rule]) -> Method:
    def end(curves: Curves) -> float:
        winner, lost = race({lane: curves[lane] for lane in lanes}, rules)
        return curves[winner].end * (1 + COST * 100 * lost / len(curves[winner].losses))

    return end


def alone(lane: str) -> Method:
    return lambda curves: curves[lane].end


def in_hindsight(lanes: list[str]) -> Method:
    return lambda curves: min(curves[lane].end for lane in lanes)


def geometric(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(min(max(value, 1e-9), WORST_SCORE)) for value in values))


def scores(curves: dict[Key, Curve], problems: list[str], seeds: list[int], method: Method) -> dict[str, float]:
    """By problem, over the tuned reference; a problem without all of its runs is left out."""
    found = {}
    for problem in problems:
        reference = tuned(curves, problem)
        by_seed = [{k.lane: c for k, c in curves.items() if k[::2] == (problem, seed)} for seed in seeds]
        try:
            found[problem] = geometric(method(of) / of[reference or ""].end for of in by_seed)
        except KeyError:
            continue
    return found


def lines(curves: dict[Key, Curve], problems: list[str], seeds: list[int], methods: dict[str, Method]) -> Iterator[str]:
    """The problems with their numbers and references, and a row for each method."""
    for number, problem in enumerate(problems, 1):
        yield f"{number:3} {problem:22} reference {tuned(curves, problem) or 'is not there'}"
    yield "   mean  worst " + "".join(f"{number:6}" for number in range(1, len(problems) + 1)) + f"   seeds {seeds}"
    for name, method in methods.items():
        found = scores(curves, problems, seeds, method)
        if not found:
            yield f"      -      -  {name}: no problem has all of its runs"
            continue
        values = "".join(f"{found[problem]:6.2f}" if problem in found else "     -" for problem in problems)
        yield f"{geometric(found.values()):7.3f}{max(found.values()):7.2f} {values}   {name}"


def methods_of(curves: dict[Key, Curve], races: list[str], rules: list[str], seeds: list[int]) -> dict[str, Method]:
    """Every lane alone, the best of each list in hindsight, and every list with every rule."""
    trained = sorted({key.lane for key in curves if key.seed in seeds and "cosine" not in key.lane})
    methods = {lane: alone(lane) for lane in trained}
    for lanes in races or [",".join(trained)]:
        methods[f"hindsight {lanes}"] = in_hindsight(lanes.split(","))
        for rule in rules:
            methods[f"{rule} {lanes}"] = raced(lanes.split(","), [Rule.of(part) for part in rule.split(",")])
    return methods


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", type=Path, nargs="+")
    parser.add_argument("--role", choices=["choosing", "confirming"], help="by default all problems that were run")
    parser.add_argument("--problem", action="append", default=[])
    parser.add_argument("--race", action="append", default=[], help="lanes, with commas; by default all")
    parser.add_argument("--rules", action="append", default=[], help="rounds, with commas")
    parser.add_argument("--seed", action="append", type=int, help="0, 1 and 2 by default, those that were run")
    asked = parser.parse_args()
    curves = {key: curve for path in asked.curves for key, curve in read(path).items()}
    there = sorted(
        {key.problem for key in curves}, key=lambda name: list(PROBLEMS).index(name) if name in PROBLEMS else -1
    )
    roles = {name: problem.role for name, problem in PROBLEMS.items()}
    problems = [p for p in there if asked.role in (None, roles.get(p)) and (not asked.problem or p in asked.problem)]
    seeds = asked.seed or sorted({0, 1, 2} & {key.seed for key in curves})
    print("\n".join(lines(curves, problems, seeds, methods_of(curves, asked.race, asked.rules, seeds))))


if __name__ == "__main__":
    main()

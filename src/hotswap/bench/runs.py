"""A run and what came of it: plain values, so that they can be stored, and trained elsewhere."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

from hotswap.bench.workloads import SIZES, Size
from hotswap.names import one_line

__all__ = ["PERCENTS", "SETTLED", "STATES", "Point", "Result", "Run", "State", "troubles"]

PERCENTS = (0, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
"""The percentages of the budget at which a run is measured."""

State = Literal["finished", "diverged", "failed", "missing", "killed", "damaged", "outdated"]
"""The outcome of a run: it finished, its measures were no longer finite, it raised an error, its package or data was
not there, its process was killed or its machine had no room for it, what was stored of it is not what was measured, it
is of an earlier version."""

STATES: tuple[State, ...] = get_args(State)
SETTLED: tuple[State, ...] = ("finished", "diverged", "failed")
"""The states that another try would not change."""

_NUMBER = re.compile(r"(?<!line )-?\b\d+(\.\d+)?(e[+-]?\d+)?")
"""A number in a reason. The number of a code line does not match, because it tells errors apart."""


@dataclass(frozen=True, order=True)
class Run:
    """One training."""

    workload: str
    method: str
    configuration: str
    seed: int
    size: Size = "full"

    @property
    def id(self) -> str:
        """The name of the run among runs of its size."""
        return f"{self.workload}-{self.method}-{self.configuration}-{self.seed}"


class Point(NamedTuple):
    """A run at some moment."""

    percent: int
    """The share of the budget; the run is measured at the first moment when so much was spent."""
    cost: float
    """Forward-and-backward passes."""
    steps: int
    seconds: float
    """The duration of training, without measuring."""
    train: float
    validation: float

    @property
    def finite(self) -> bool:
        """Whether both measures are finite numbers."""
        return math.isfinite(self.train) and math.isfinite(self.validation)


@dataclass(frozen=True)
class Result:
    """The outcome of a run in full: its state, its measures and its origin."""

    run: Run
    state: State
    reason: str = ""
    """The reason why the run did not finish."""
    points: tuple[Point, ...] = ()
    budget: int = 0
    version: int = 0
    """The version of the workload."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The origin of the run: versions, device, command, date."""

    def at(self, percent: int) -> Point | None:
        """The run after so much of the budget; None if it did not get there with finite measures."""
        return next((point for point in self.points if point.percent == percent and point.finite), None)

    @property
    def end(self) -> Point | None:
        """The run when its budget was spent; None if it did not get there."""
        return self.at(PERCENTS[-1]) if self.state == "finished" else None

    def digest(self) -> str:
        """A checksum of what was measured, and of what it is of."""
        measured = {name: value for name, value in self.plain().items() if name != "origin"}
        return hashlib.sha256(json.dumps(measured, sort_keys=True).encode()).hexdigest()

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "run"}
        points = [list(point) for point in self.points]
        return {
            **asdict(self.run),
            **own,
            "settings": dict(self.settings),
            "origin": dict(self.origin),
            "points": points,
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Result:
        """From what `plain` gives.

        Raises:
            KeyError, TypeError, ValueError: Something is missing, or cannot be.
        """
        run = Run(*(plain[field.name] for field in fields(Run)))
        for name, known in (("state", STATES), ("size", SIZES)):
            if plain[name] not in known:
                raise ValueError(f"it has a {name} {plain[name]!r}")
        if not (isinstance(plain["settings"], dict) and isinstance(plain["origin"], dict)):
            raise ValueError(f"the settings or the origin of {run.id} have no names")  # noqa: TRY004  # of the file
        points = tuple(Point(*values) for values in plain["points"])
        for number in (run.seed, plain["budget"], plain["version"], *chain(*points)):
            float(number)
        if not all(point.seconds >= 0 and point.percent >= 0 for point in points):
            raise ValueError("it has a time or a share below 0")
        own = {name: plain[name] for name in ("state", "reason", "budget", "version", "settings", "origin")}
        return cls(run, points=points, **own)


def troubles(results: Iterable[Result]) -> list[str]:
    """The runs that did not finish: a sentence for all seeds of a configuration that ended in the same way.

    Reasons that differ in their numbers alone, such as the loss at which a run ended, are the same; the first is told.
    """
    found: dict[tuple[str, str, str, str, str], list[Result]] = {}
    for result in results:
        run = result.run
        if result.state != "finished":
            kind = _NUMBER.sub("#", result.reason)
            found.setdefault((run.workload, run.method, run.configuration, result.state, kind), []).append(result)
    sentences = []
    for (workload, method, configuration, state, _), those in sorted(found.items()):
        those.sort(key=lambda result: result.run.seed)
        first = those[0]
        seeds = ", ".join(str(result.run.seed) for result in those)
        seen = f"seed {seeds}" if len(those) == 1 else f"seeds {seeds}"
        differ = len({result.reason for result in those}) > 1
        others = f" (So says seed {first.run.seed}; the others differ in numbers alone.)" if differ else ""
        sentences.append(f"{workload}, {method} ({configuration}), {seen}: {state}. {one_line(first.reason)}{others}")
    return sentences

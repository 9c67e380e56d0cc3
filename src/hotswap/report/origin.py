"""The origin of numbers, to stand beside them: versions, devices, dates, durations, commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hotswap.report.results import Results
from hotswap.studies.export import SINGLES

__all__ = ["Origin", "origin_of"]


@dataclass(frozen=True)
class Origin:
    """The machines, programs and commands that made numbers; empty where nobody knows."""

    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    versions: tuple[str, ...]
    dates: tuple[str, ...]
    commands: tuple[str, ...]
    minutes: float
    """The sum of the durations of all units, evaluations included; 0 where durations were not recorded."""
    units: int
    runs: int

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]], *, runs: int, units: int = 0) -> Origin:
        """The origin that the provenance entries of units or runs tell together."""
        found = list(entries)

        def each(key: str) -> tuple[str, ...]:
            return tuple(sorted({str(entry[key]) for entry in found if entry.get(key)}))

        versions = [f"{name} {one}" for name in ("hotswap", "torch", "Python") for one in each(name.lower())]
        dates = tuple(sorted({date[:10] for date in each("date")}))
        minutes = sum(float(entry.get("seconds", 0.0)) for entry in found) / 60
        return cls(each("device"), each("precision"), tuple(versions), dates, each("command"), minutes, units, runs)

    def sentence(self) -> str:
        """One line for a caption."""
        if not self.dates:
            return "Nobody can say what made these numbers: there is no provenance."
        counts = {"run": self.runs, "unit": self.units}
        parts = [f"{count:,} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
        parts += [f"{self.minutes:.1f} minutes of training and evaluation"] if self.minutes else []
        how = ", ".join((*self.precisions, *self.versions))
        days = " to ".join(dict.fromkeys((self.dates[0], self.dates[-1])))
        return f"{', '.join(parts)} on {' and '.join(self.devices)} ({how}), {days}."


def origin_of(results: Results) -> Origin:
    """The origin of a study's runs; single runs against the clock are left out."""
    units = {name: entries for name, entries in results.units.items() if not name.startswith(f"{SINGLES}/")}
    runs = int(results.metrics["run"].nunique())
    return Origin.of((entry for entries in units.values() for entry in entries), runs=runs, units=len(units))

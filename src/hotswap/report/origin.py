"""Where numbers come from, to stand beside them: versions, devices, dates, durations, commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hotswap.report.results import Results

__all__ = ["Origin", "origin_of"]


@dataclass(frozen=True)
class Origin:
    """What made a study's numbers; empty where nobody knows."""

    devices: tuple[str, ...]
    precisions: tuple[str, ...]
    versions: tuple[str, ...]
    dates: tuple[str, ...]
    commands: tuple[str, ...]
    minutes: float
    """The sum of the durations of all units, evaluations included."""
    units: int
    runs: int

    def sentence(self) -> str:
        """One line for a caption."""
        if not self.units or not self.dates:
            return "Nobody can say what made these numbers: the study has no provenance."
        units = "1 unit" if self.units == 1 else f"{self.units} units"
        what = f"{self.runs:,} runs in {units}, {self.minutes:.1f} minutes of training and evaluation"
        where = f"on {' and '.join(self.devices)} ({', '.join(self.precisions)}; {', '.join(self.versions)})"
        return f"{what} {where}, {' to '.join(dict.fromkeys((self.dates[0], self.dates[-1])))}."


def origin_of(results: Results) -> Origin:
    """Collect it from what finished each unit."""
    finishes: list[dict[str, Any]] = [
        entry for name, entries in results.units.items() if not name.startswith("singles/") for entry in entries
    ]

    def each(key: str) -> tuple[str, ...]:
        return tuple(sorted({str(entry[key]) for entry in finishes if key in entry}))

    return Origin(
        devices=each("device"),
        precisions=each("precision"),
        versions=tuple(f"torch {version}" for version in each("torch")),
        dates=tuple(sorted({date[:10] for date in each("date")})),
        commands=each("command"),
        minutes=sum(float(entry.get("seconds", 0.0)) for entry in finishes) / 60,
        units=len([name for name in results.units if not name.startswith("singles/")]),
        runs=int(results.metrics["run"].nunique()),
    )

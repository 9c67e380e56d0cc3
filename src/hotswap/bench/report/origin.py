"""Where the numbers of a benchmark come from: versions, devices, commands, dates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime

from hotswap.bench.runs import Result

__all__ = ["commands", "durations", "origins", "with_article"]


def origins(results: Mapping[str, Result]) -> list[str]:
    """Which machines and versions there were, and how many runs each has trained, when; a line each."""
    dates: dict[str, list[str]] = {}
    for origin in (result.origin for result in results.values() if result.origin):
        parts = [f"hotswap {origin.get('hotswap', '?')}", f"torch {origin.get('torch', '?')}"]
        parts += [f"Python {origin.get('python', '?')}", str(origin.get("device", "?"))]
        dates.setdefault(", ".join(parts), []).append(str(origin.get("date", ""))[:10])
    return [
        f"{len(days)} run{'s' if len(days) > 1 else ''}: {what}; {' to '.join(dict.fromkeys((min(days), max(days))))}"
        for what, days in dates.items()
    ]


def durations(results: Mapping[str, Result]) -> list[str]:
    """How long CPU cores trained, and for how long at least one GPU of a kind was busy, which runs may have shared.

    What measuring took is in neither.
    """
    cores, busy = 0.0, dict[str, list[tuple[float, float]]]()
    for result in results.values():
        device, seconds = result.origin.get("device"), result.points[-1].seconds if result.points else 0.0
        if device == "CPU":
            cores += int(result.origin.get("threads", 1)) * seconds
        elif device and (date := result.origin.get("date")):
            end = datetime.fromisoformat(str(date)).timestamp()
            busy.setdefault(str(device), []).append((end - seconds, end))
    said = [f"{cores / 3600:.1f} hours of one CPU core"] if cores else []
    return said + [f"{_covered(spans) / 60:.0f} minutes of {with_article(device)}" for device, spans in busy.items()]


def with_article(device: str) -> str:
    """`an NVIDIA H200`, `a CPU`: names of devices are spelled out."""
    return f"{'an' if device[0] in 'AEFHILMNORSX' else 'a'} {device}"


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Of the time line, by intervals that may overlap."""
    covered, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        covered += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return covered


def commands(results: Mapping[str, Result]) -> list[str]:
    """What was typed."""
    found = (str(result.origin["command"]) for result in results.values() if result.origin.get("command"))
    return sorted(set(found))

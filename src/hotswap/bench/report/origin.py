"""Where the numbers of a benchmark come from: versions, devices, commands, dates."""

from __future__ import annotations

from collections.abc import Mapping

from hotswap.bench.runs import Result

__all__ = ["commands", "durations", "origins"]


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
    """How long all runs together trained, on each kind of device; what measuring took is not in it."""
    seconds: dict[str, float] = {}
    for result in results.values():
        if result.points and result.origin.get("device"):
            device = str(result.origin["device"])
            cores = int(result.origin.get("threads", 1)) if device == "CPU" else 1
            where = "of one CPU core" if device == "CPU" else f"on an {device}"
            seconds[where] = seconds.get(where, 0.0) + cores * result.points[-1].seconds
    return [f"{spent / 3600:.1f} hours {where}" for where, spent in seconds.items()]


def commands(results: Mapping[str, Result]) -> list[str]:
    """What was typed."""
    found = (str(result.origin["command"]) for result in results.values() if result.origin.get("command"))
    return sorted(set(found))

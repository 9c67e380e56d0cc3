"""The circumstances that runs of a workload must have in common, so that their results can be compared.

A data set is the same everywhere: it is checked where it is loaded. Two things may differ between machines. Workloads
on text are trained on the sources of the Python that runs them, and those change with every release. Some networks
compute in bfloat16 on a GPU and in float32 on a CPU.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hotswap.bench.running import BenchOptions, left
from hotswap.bench.runs import SETTLED, Result
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.bench.workloads.text import fingerprint
from hotswap.errors import StudyError

__all__ = ["Circumstances", "check_before_running", "check_together", "circumstances"]


class Circumstances(NamedTuple):
    """The circumstances that change the results of a workload's runs; empty where none does."""

    python: str = ""
    """The version whose sources are the text."""
    text: str = ""
    """The fingerprint of that text. Early results have none."""
    precision: str = ""

    def agree_with(self, others: Iterable[Circumstances]) -> bool:
        """Whether a run under these circumstances can be compared with some others; an unknown text fits every text."""
        alike = [other for other in others if (self.python, self.precision) == (other.python, other.precision)]
        texts = {other.text for other in alike if other.text}
        return bool(alike) and (self.text in texts or not (self.text and texts))

    def __str__(self) -> str:
        text = f" (text {self.text})" if self.text else ""
        sources = [f"on the sources of Python {self.python}{text}"] if self.python else []
        return ", ".join(sources + ([f"in {self.precision}"] if self.precision else []))


def circumstances(workload: str, origin: Mapping[str, Any]) -> Circumstances:
    """The circumstances of a run, from its workload and its origin."""
    if workload not in WORKLOADS:
        return Circumstances()
    kind, words = WORKLOADS[workload], {name: str(origin.get(name, "")) for name in ("python", "text", "device")}
    precision = "float32 on a CPU" if words["device"] == "CPU" else "bfloat16 on a GPU"
    return Circumstances(
        python=words["python"] if kind.reads_sources else "",
        text=words["text"] if kind.reads_sources else "",
        precision=precision if kind.bfloat16_on_gpu else "",
    )


def check_before_running(store: BenchStore, options: BenchOptions, device: str) -> None:
    """Make sure that the runs that are left would be trained as others of the same workloads were.

    Raises:
        StudyError: They would not; says how the others were trained.
    """
    results = store.results()
    there = _seen(results.values())
    origin = {"python": platform.python_version(), "device": "CPU" if device == "cpu" else device}
    for workload in sorted({run.workload for run in left(results, store.size, options)[0]} & set(there)):
        text = fingerprint() if WORKLOADS[workload].reads_sources else ""
        here = circumstances(workload, origin | {"text": text})
        if not here.agree_with(there[workload]):
            raise StudyError(
                f"{store.folder} has runs of {workload} that were trained {_listed(there[workload])}; here they would "
                f"be trained {here}, and could not be compared. Train the rest of them as the others were, train all "
                "of them in another folder, or name the workloads to run with --workload."
            )


def check_together(results: Iterable[Result], where: str) -> None:
    """Make sure that the runs of each workload were trained alike.

    Raises:
        StudyError: Those of one were not; `where` says what has them.
    """
    for workload, seen in _seen(results).items():
        others: set[Circumstances] = set()
        for one in sorted(seen, key=lambda one: (not one.text, one)):  # those that say what their text is come first
            if others and not one.agree_with(others):
                raise StudyError(
                    f"{where} has runs of {workload} that cannot be compared: some were trained {_listed(others)}, "
                    f"others {one}. Move the files of the ones or of the others out of the folder."
                )
            others.add(one)


def _seen(results: Iterable[Result]) -> dict[str, set[Circumstances]]:
    """By workload, how the runs that have ended were trained, as far as they say so."""
    found: dict[str, set[Circumstances]] = {}
    for result in results:
        if result.state in SETTLED and result.origin.get("python") and result.origin.get("device"):
            found.setdefault(result.run.workload, set()).add(circumstances(result.run.workload, result.origin))
    return found


def _listed(some: Iterable[Circumstances]) -> str:
    return " or ".join(sorted(map(str, some)))

"""The plan of a study: runs that see the same minibatches and take the same kind of step share an ensemble."""

from __future__ import annotations

from dataclasses import dataclass

from hotswap.errors import SettingError
from hotswap.studies.specification.study import RunSpec, StudySpec

__all__ = ["Unit", "plan"]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Runs that are trained together, as one piece of work that is done or not.

    Attributes:
        algorithm: The family of every run in it, by name; where several are trained as one, a name for all of them.
        batch_size: The batch size of every run in it.
        runs: The runs, family by family and seed by seed.
        part: Its number, from 1, where the runs of one algorithm and batch size were split; otherwise None.
    """

    algorithm: str
    batch_size: int
    runs: tuple[RunSpec, ...]
    part: int | None = None

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its runs, by name."""
        return tuple(dict.fromkeys(run.algorithm for run in self.runs))

    @property
    def id(self) -> str:
        """Its name within the plan, such as `sgd-b64` or `sgd-b64-part2`."""
        whole = f"{self.algorithm}-b{self.batch_size}"
        return whole if self.part is None else f"{whole}-part{self.part}"


def plan(study: StudySpec, max_runs: int | None = None) -> tuple[Unit, ...]:
    """One unit per algorithm and batch size, in parts of at most `max_runs` runs; some algorithms are trained as one.

    Algorithms with few runs go first: a study that is stopped early then has something to compare the others with.
    Parts of one unit differ by at most one run in size, so that as few programs as possible have to be built.
    """
    if max_runs is not None and (isinstance(max_runs, bool) or not isinstance(max_runs, int) or max_runs < 1):
        raise SettingError(f"plan(max_runs={max_runs!r}): max_runs must be a whole number of at least 1, or None.")
    names = _units(study)
    groups: dict[tuple[str, int], list[RunSpec]] = {}
    for run in study.runs():
        groups.setdefault((names[run.algorithm], run.batch_size), []).append(run)
    units: list[Unit] = []
    for algorithm, batch_size in sorted(groups, key=lambda group: (len(groups[group]), group)):
        parts = _split(tuple(groups[algorithm, batch_size]), max_runs)
        for number, runs in enumerate(parts, start=1):
            part = number if len(parts) > 1 else None
            units.append(Unit(algorithm=algorithm, batch_size=batch_size, runs=runs, part=part))
    return tuple(units)


def _units(study: StudySpec) -> dict[str, str]:
    """For each family what the units are called that train it: by its name, or by the first of several as one."""
    alike: dict[object, list[str]] = {}
    for family in study.families:
        key = family.together()
        alike.setdefault(family.name if key is None else key, []).append(family.name)
    return {
        name: names[0] if len(names) == 1 else f"{names[0]}-and-{len(names) - 1}-more"
        for names in alike.values()
        for name in names
    }


def _split(runs: tuple[RunSpec, ...], most: int | None) -> list[tuple[RunSpec, ...]]:
    """As few parts as `most` allows, the longer ones first."""
    count = 1 if most is None else -(-len(runs) // most)  # rounded up
    size, longer = divmod(len(runs), count)
    ends = [size * (i + 1) + min(i + 1, longer) for i in range(count)]
    return [runs[start:end] for start, end in zip([0, *ends], ends, strict=False)]

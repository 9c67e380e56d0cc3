"""The results of a study, read from any of their places: its folder, an exported folder or table, the package.

Whatever can be read is read. What is missing or damaged becomes a sentence in `missing`, for the report to print.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pandas.api.types import is_numeric_dtype

from hotswap.errors import HotSwapError, StudyError, UnsafeNameError
from hotswap.names import check_name
from hotswap.report.bayesian import Orders, read_searches
from hotswap.report.looks import Looks, families_of
from hotswap.report.summaries import label, setting_counts, settings_among
from hotswap.report.tuning import MEASURES, Measure, Space, space_of
from hotswap.store import Folder, parsed
from hotswap.store.folder import ABOUT
from hotswap.store.shipped import shipped
from hotswap.store.tables import TIMING_COLUMNS, read_rows, table_paths
from hotswap.studies.algorithms.base import ALGORITHMS
from hotswap.studies.export import SINGLES, check_provenance_names
from hotswap.studies.folder import Store
from hotswap.studies.paper import PAPER
from hotswap.studies.rows import ARM_COLUMNS, METRIC_COLUMNS
from hotswap.studies.study import StudySpec, check_stored_names

__all__ = ["Results", "load_results"]


@dataclass(frozen=True, eq=False)  # two tables cannot be compared as one, and the same one is compared often
class Results:
    """A study's tables, each empty where there is none, and what is missing."""

    name: str
    specs: tuple[StudySpec, ...]
    metrics: pd.DataFrame
    arms: pd.DataFrame
    timing: pd.DataFrame
    curves: pd.DataFrame
    searches: Mapping[Measure, Orders] = field(default_factory=dict)
    """Bayesian searches over the settings of an algorithm, by measure: which settings each has tried."""
    units: Mapping[str, Any] = field(default_factory=dict)
    """The provenance of each finished unit: versions, device, precision, command, duration, date."""
    missing: tuple[str, ...] = ()
    """A sentence for each part that could not be read or is not there."""

    def with_runs_of(self, other: Results) -> Results:
        """These results, but runs that `other` has trained too are its: do verdicts hang on how a part was computed?"""
        if missing := set(other.metrics["run"]) - set(self.metrics["run"]):
            raise StudyError(f"The other results have runs that these have not, {min(missing)} among them.")
        if other.last_epoch != self.last_epoch:
            raise StudyError(
                f"The other results end at epoch {other.last_epoch}, these at {self.last_epoch}; choose some that end "
                "alike."
            )
        tables = {
            name: pd.concat([mine[~mine["run"].isin(other.metrics["run"])], theirs], ignore_index=True)
            for name, mine, theirs in (("metrics", self.metrics, other.metrics), ("arms", self.arms, other.arms))
        }
        return replace(self, **tables)

    @property
    def caution(self) -> str | None:
        """A warning to print before the verdicts; None if the study is the paper's."""
        if self.name == PAPER.name:
            return None
        return (
            f"The study {self.name} is not the paper's: the verdicts say how the paper's claims fare in it, and not "
            "whether they can be reproduced."
        )

    @property
    def last_epoch(self) -> int:
        """The last epoch recorded of any run; 0 if none was."""
        return 0 if self.metrics.empty else int(self.metrics["epoch"].max())

    @property
    def planned_epochs(self) -> int:
        """How long runs are to train, as far as is known."""
        return max((spec.epochs for spec in self.specs), default=self.last_epoch)

    @cached_property
    def unfinished(self) -> str | None:
        """The reason why nothing can be said of how runs end; None if all runs have ended."""
        epochs = self.planned_epochs
        asked = {run.id for spec in self.specs for run in spec.runs()} or set(self.metrics["run"])
        done = asked.intersection(self.metrics.loc[self.metrics["epoch"] == epochs, "run"])
        if asked and len(done) == len(asked):
            return None
        return f"{len(done):,} of {len(asked):,} runs have reached epoch {epochs}" if asked else "there are no runs"

    @cached_property
    def arm_values(self) -> dict[str, tuple[float, ...]]:
        """The rates that an algorithm chose among, large to small, by the name of each algorithm that chooses."""
        return {family.name: arms for family in families_of(self.specs) if (arms := tuple(family.arms()))}

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of the first algorithm that chooses; empty if the study has no such algorithm."""
        return next(iter(self.arm_values.values()), ())

    @cached_property
    def looks(self) -> Looks:
        """How the algorithms of the study are called and drawn."""
        tables = (self.metrics, self.curves, self.timing)
        names = dict.fromkeys(str(name) for table in tables for name in table["algorithm"].unique())
        choosing = self.metrics.loc[self.metrics["run"].isin(self.arms["run"].unique()), "algorithm"].unique()
        return Looks(names, families_of(self.specs), choosing=choosing, settings=setting_counts(self.metrics))

    def spaces(self) -> dict[Measure, Space]:
        """By measure, what a search over an algorithm's settings chooses among, where there is something."""
        found = ((measure, space_of(self.metrics, measure, self.looks)) for measure in MEASURES)
        return {measure: space for measure, space in found if space is not None}

    @cached_property
    def setting_columns(self) -> list[str]:
        """The columns of the metrics that make a setting."""
        return settings_among(self.metrics)

    def label(self, row: pd.Series) -> str:
        """A run's setting in words."""
        return label(row, self.looks, [name for name in self.setting_columns if name in row.index])


def load_results(source: Path | str | None = None, *, searched: bool = True) -> Results:
    """Read a study's results; without a source, those that come with the package.

    Searches over settings are left out where they are about to be made.

    Raises:
        StudyError: There is nothing of a study at all, or a file has a name that cannot be one.
    """
    path = shipped() if source is None else Path(source)
    if path.name == "metrics.parquet" and (path.parent / "provenance.json").exists():
        path = path.parent  # one of a folder's files, where the folder was meant
    if not path.exists():
        raise StudyError(f"There is no study at {path}: name a study's folder, or a table that was exported from one.")
    if Folder.kind_of(path) == "benchmark":
        raise StudyError(f"{path} holds a benchmark, and no study; `hotswap bench report {path}` reports on it.")
    if (path / ABOUT).exists():
        return _from_store(path, searched)
    if path.is_dir() and not any((path / name).exists() for name in ("metrics.parquet", "provenance.json")):
        raise StudyError(f"{path} is not a study: it has neither an {ABOUT} nor a metrics.parquet.")
    return _from_export(path, searched)


def _from_store(folder: Path, searched: bool) -> Results:
    missing: list[str] = []
    stored: list[Any] = []
    tables, units = {"metrics": _empty(METRIC_COLUMNS), "arms": _empty(ARM_COLUMNS)}, {}
    try:
        store = Store.open(folder)
        stored, units = store.stored_specs(), store.provenance()
        tables = {"metrics": store.metrics(), "arms": store.arms()}
        missing += store.units.damaged.values()
    except UnsafeNameError:
        raise
    except (HotSwapError, ValueError) as error:
        missing.append(str(error))
    tables |= _beside(folder, {}, missing)
    specs = _specs(stored, folder, missing)
    return _finished(folder.resolve().name, specs, tables, units, missing, folder if searched else None)


def _from_export(path: Path, searched: bool) -> Results:
    metrics, arms, provenance = table_paths(path)
    missing: list[str] = []
    document = _provenance(provenance, missing)
    sums, folder = document.get("sha256", {}), path if path.is_dir() else None
    tables = {
        "metrics": _table(metrics, METRIC_COLUMNS, sums.get("metrics"), missing, further=True),
        "arms": _table(arms, ARM_COLUMNS, sums.get("arms"), missing),
        **_beside(folder, sums, missing),
    }
    units = {**document.get("units", {}), **{f"{SINGLES}/{k}": v for k, v in document.get(SINGLES, {}).items()}}
    specs = _specs(document.get("specs", []), provenance, missing)
    return _finished(path.resolve().stem, specs, tables, units, missing, folder if searched else None)


def _beside(folder: Path | None, sums: Mapping[str, str], missing: list[str]) -> dict[str, pd.DataFrame]:
    """The tables of single runs, which only folders have; empty where there is none."""
    tables = {}
    for name, columns in (("timing", TIMING_COLUMNS), ("curves", METRIC_COLUMNS)):
        tables[name] = _empty(columns)
        if folder is not None and (path := folder / f"{name}.parquet").exists():
            tables[name] = _table(path, columns, sums.get(name), missing, further=name == "curves")
    return tables


def _finished(
    name: str,
    specs: tuple[StudySpec, ...],
    tables: Mapping[str, pd.DataFrame],
    units: Mapping[str, Any],
    missing: list[str],
    folder: Path | None,
) -> Results:
    """Say which runs and tables a whole study would have beside these."""
    found = Results(specs[0].name if specs else name, specs, **tables, units=units)
    if folder is not None:
        try:
            found = replace(found, searches=read_searches(folder, found.spaces()))
        except StudyError as error:
            missing.append(f"{error} Until then there is no Bayesian search in the price of tuning.")
    if found.metrics.empty:
        missing.append("There are no measurements of training runs: no Figure 1, no claims about how runs end.")
    elif found.unfinished is not None:
        missing.append(f"{found.unfinished}; for the others, `hotswap study run` goes on where it stopped.")
    missing += _strangers(found)
    if len(tables["arms"]) and not found.rates:
        missing.append("Which rates the arms stand for is said in the provenance only: no picture of what was chosen.")
    if tables["timing"].empty:
        missing.append("There are no timings of single runs (`hotswap study timing`): no Tables 1 and 2, no claim 8.")
    if tables["curves"].empty:
        missing.append("There are no single runs against the clock (`hotswap study timing`): no Figure 2, no claim 5.")
    return replace(found, missing=tuple(dict.fromkeys(missing)))


def _strangers(found: Results) -> list[str]:
    """A sentence on each algorithm that has runs but is not registered."""
    return [
        f"The algorithm {name!r} is not known here, so it is shown under this name and in a colour that was free; "
        "`hotswap --load FILE report ...` loads the file that registers it."
        for name, shown in found.looks.items()
        if shown.kind is None
    ]


def _empty(columns: Mapping[str, str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in columns.items()})


def _table(
    path: Path, columns: Mapping[str, str], expected: str | None, missing: list[str], *, further: bool = False
) -> pd.DataFrame:
    """A table with these columns and, where `further` ones are allowed, whatever other numbers the file holds."""
    if not path.exists():
        missing.append(f"{path} is not there.")
        return _empty(columns)
    try:
        if expected is not None and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            missing.append(f"{path} is not as it was when its provenance was written; its numbers may be wrong.")
        present = {**columns, **dict.fromkeys(_further(path, columns) if further else (), "float64")}
        rows = read_rows(path, present)
    except UnsafeNameError:
        raise
    except HotSwapError as error:
        missing.append(str(error))
        return _empty(columns)
    except OSError as error:
        missing.append(f"{path} cannot be read ({error.strerror}).")
        return _empty(columns)
    frame = pd.DataFrame(rows, columns=list(present))
    return frame.astype(present) if len(frame) else _empty(present)


def _further(path: Path, columns: Mapping[str, str]) -> list[str]:
    """The columns of numbers that a file has beside these: settings and measures of its algorithms."""
    try:
        head = (
            pd.read_csv(path, nrows=1000) if path.suffix == ".csv" else pq.read_schema(path).empty_table().to_pandas()
        )
    except (ValueError, pa.ArrowException):
        return []  # whoever reads the rows says what is wrong
    found = [str(name) for name in head.columns if name not in columns and is_numeric_dtype(head[name])]
    for name in found:
        check_name(name, "column", str(path))
    return found


def _provenance(path: Path, missing: list[str]) -> dict[str, Any]:
    try:
        document = parsed(path.read_bytes(), path)
    except FileNotFoundError:
        missing.append(f"{path} is not there: nobody can say what made these numbers.")
        return {}
    except (OSError, StudyError) as error:
        why = str(error) if isinstance(error, StudyError) else f"{path} cannot be read ({error.strerror})"
        missing.append(f"{why.rstrip('.')}: nobody can say what made these numbers.")
        return {}
    if not isinstance(document, dict):
        missing.append(f"{path} is no provenance: nobody can say what made these numbers.")
        return {}
    check_provenance_names(document, path)
    kinds = {"sha256": dict, "units": dict, SINGLES: dict, "specs": list}
    known = {key: document[key] for key, kind in kinds.items() if isinstance(document.get(key), kind)}
    for key in {"units", SINGLES} & known.keys():
        whole = {unit: entries for unit, entries in known[key].items() if _tells(entries)}
        if len(whole) < len(known[key]):
            missing.append(f"{path} is damaged: it does not say what made {len(known[key]) - len(whole)} of the units.")
        known[key] = whole
    return known


def _tells(entries: object) -> bool:
    """Whether a stored value is a list of a unit's provenance entries, each with its duration."""
    return (
        isinstance(entries, list)
        and bool(entries)
        and all(isinstance(entry, dict) and isinstance(entry.get("seconds"), int | float) for entry in entries)
    )


def _specs(stored: object, place: Path, missing: list[str]) -> tuple[StudySpec, ...]:
    """The studies that were stored, each without families of algorithms that are not registered."""
    for table in stored if isinstance(stored, list) else ():
        check_stored_names(table, place)
    try:
        tables = [_known_families(table) for table in stored]  # type: ignore[attr-defined]
        return tuple(StudySpec.from_dict(table) for table in tables if table.get("families") != [])
    except (HotSwapError, AttributeError, TypeError, ValueError, KeyError) as error:
        why = " ".join(str(error).split()).rstrip(".")
        missing.append(
            f"{place} does not say which study this is ({why}); if it uses something of your own, "
            "`hotswap --load FILE report ...` loads the file that registers it."
        )
        return ()


def _known_families(table: Mapping[str, Any]) -> dict[str, Any]:
    kept = dict(table)
    for key in ("families", "set_aside"):
        if isinstance(kept.get(key), list):
            kept[key] = [family for family in kept[key] if not _unknown(family)]
    return kept


def _unknown(family: object) -> bool:
    """Whether a stored family is whole, but of an algorithm that is not registered."""
    name = family.get("algorithm") if isinstance(family, dict) else None
    return isinstance(name, str) and name not in ALGORITHMS

"""What a search over an algorithm's settings chooses among: the settings, and what each of them came to."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hotswap.report.looks import Looks
from hotswap.report.summaries import looks_of, settings, settings_among

__all__ = ["MEASURES", "Measure", "Numbers", "Space", "space_of"]

Numbers = NDArray[np.float64]
Measure = Literal["train_nll", "test_error"]
MEASURES: tuple[Measure, ...] = ("train_nll", "test_error")


@dataclass(frozen=True)
class Space:
    """The N settings of the algorithm that is searched, and whom they are compared with."""

    measure: Measure
    tuned: str
    """The algorithm whose settings are searched."""
    reference: str
    """The algorithm that chooses its rate itself."""
    settings: pd.DataFrame
    """One row a setting, sorted: the columns in which settings differ."""
    values: Numbers
    """`(N,)` what training each of them comes to at the last epoch, the median of its seeds."""
    levels: pd.Series
    """What the reference reaches by batch size, the median over its seeds."""

    @property
    def points(self) -> Numbers:
        """`(N, D)` the settings in the unit cube: each value by its place among all that a setting has.

        Who laid out a grid has chosen values that are evenly spaced in what matters, such as the logarithm of a rate.
        """
        ranks = [pd.factorize(self.settings[name], sort=True)[0] for name in self.settings]
        columns = [places / places.max() for places in ranks if places.max() > 0]
        return np.stack(columns, axis=1) if columns else np.zeros((len(self.values), 1))

    @property
    def digest(self) -> str:
        """Changes when a setting or what it came to does."""
        text = self.settings.assign(value=self.values).to_csv(index=False, lineterminator="\n")
        return hashlib.sha256(f"{self.tuned} {self.measure}\n{text}".encode()).hexdigest()


def space_of(metrics: pd.DataFrame, measure: Measure, looks: Looks | None = None) -> Space | None:
    """The algorithm with the most settings is searched; the first that chooses its rate itself is the reference.

    None where either is missing. A setting that diverged counts as bad as the worst that did not.
    """
    if metrics.empty:
        return None
    table = settings(metrics, int(metrics["epoch"].max()))
    names = settings_among(metrics)
    reference, tuned = _pair(table, names, looks or looks_of(metrics))
    levels = table[table["algorithm"] == reference].groupby("batch_size")[measure].median().sort_index()
    theirs = table[table["algorithm"] == tuned].reset_index(drop=True)
    values = theirs[measure].to_numpy(dtype=float)
    finite = values[np.isfinite(values)]
    levels = levels[np.isfinite(levels)]
    if reference is None or tuned is None or levels.empty or len(finite) == 0:
        return None
    own = [name for name in names if name != "algorithm" and theirs[name].nunique(dropna=False) > 1]
    values = np.where(np.isfinite(values), values, finite.max())  # who tried it has paid for it: as bad as the worst
    return Space(measure, tuned, reference, theirs[own], values, levels)


def _pair(table: pd.DataFrame, columns: Sequence[str], looks: Looks) -> tuple[str | None, str | None]:
    """Which algorithm is the reference, and which is searched: one that has settings beside the batch size."""
    own = [name for name in columns if name not in {"algorithm", "batch_size"}]
    counts = table.loc[table[own].notna().any(axis=1), "algorithm"].value_counts()
    there = set(table["algorithm"])
    reference = next((name for name in looks if name in there and looks[name].chooses), None)
    searched = [name for name in looks if name in counts and not looks[name].chooses]
    return reference, max(searched, key=lambda name: counts[name], default=None)

"""Bayesian search over settings whose results are known, and the file that keeps the searches that were made.

Snoek, Larochelle and Adams, "Practical Bayesian optimization of machine learning algorithms", 2012. A Gaussian process,
with the paper's kernel (Matérn 5/2, a length scale for each hyperparameter), describes what the settings that were
trained say about all others; the next one is that with the largest expected improvement,

    E max(0, f* − f(x)) = (f* − μ) Φ(z) + σ φ(z),    z = (f* − μ) / σ,

f* the best so far, μ and σ the mean and standard deviation of f(x). The first few are drawn at random. Losses and error
rates differ by factors, so f is their logarithm. Length scales, variance and noise are the most likely ones; the paper
averages over them. They are estimated anew whenever there are a twentieth more trainings.

All settings that are left are compared, and none is trained twice. General packages look for the best point in a
continuous space: Optuna's `GPSampler`, tried on the same table, proposes some settings again and again.

`tuning.json` lies beside a study's tables. It has, by measure, the order in which each search trained settings, by
their places in `Space.settings`; the digest of the space, without which the places mean nothing; and what made them.
"""

from __future__ import annotations

import json
import platform
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from hotswap.errors import StudyError
from hotswap.files import write_text
from hotswap.report.tuning import Measure, Numbers, Space

__all__ = ["FILE", "FIRST", "Orders", "bayesian_search", "expected_improvement", "read_searches", "search_on"]

FIRST = 10
"""Settings that are drawn at random."""
AGAIN = 1.05  # the factor by which trainings grow until the process is estimated anew


def bayesian_search(space: Space, seed: int) -> list[int]:
    """The settings that a search trains, in order, until it has the best of all; as places in the space.

    Needs scikit-learn.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  # comes with scikit-learn

    with threadpool_limits(1):  # matrices are small: threads would wait for one another
        return _search(space.points, _logarithms(space.values), seed)


def _search(points: Numbers, values: Numbers, seed: int) -> list[int]:
    tried = [int(place) for place in np.random.default_rng(seed).permutation(len(values))[:FIRST]]
    kernel, due = _kernel(points.shape[1]), len(tried)
    while values[tried].min() > values.min():
        seen = values[tried]
        scaled = (seen - seen.mean()) / (seen.std() or 1.0)
        process = _fitted(kernel, points[tried], scaled, estimate=len(tried) >= due)
        if len(tried) >= due:
            kernel, due = process.kernel_, max(len(tried) + 1, int(AGAIN * len(tried)))
        left = np.setdiff1d(np.arange(len(values)), tried)
        mean, deviation = process.predict(points[left], return_std=True)
        noise = process.kernel_.k2.noise_level
        deviation = np.sqrt(np.maximum(deviation**2 - noise, 1e-12))  # of f itself, not of what one would observe
        tried.append(int(left[expected_improvement(mean, deviation, scaled.min()).argmax()]))
    return tried[: int(values[tried].argmin()) + 1]


def expected_improvement(mean: Numbers, deviation: Numbers, best: float) -> Numbers:
    """By how much a value that is normally distributed is expected to be below the best, if that counts as 0 above."""
    from scipy.stats import norm  # noqa: PLC0415  # comes with scikit-learn

    z = (best - mean) / deviation
    improvement: Numbers = (best - mean) * norm.cdf(z) + deviation * norm.pdf(z)
    return improvement


def _logarithms(values: Numbers) -> Numbers:
    """The logarithms of the values, or the values themselves if none is positive.

    A value that is not positive counts as half of the least positive one.
    """
    positive = values[values > 0]
    logarithms: Numbers = np.log(np.maximum(values, positive.min() / 2)) if len(positive) else values
    return logarithms


def _kernel(dimensions: int) -> Any:
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel  # noqa: PLC0415  # optional

    scales = Matern([0.5] * dimensions, (0.05, 20.0), nu=2.5)
    return ConstantKernel(1.0, (1e-2, 1e2)) * scales + WhiteKernel(1e-2, (1e-6, 1.0))


def _fitted(kernel: Any, points: Numbers, values: Numbers, *, estimate: bool) -> Any:
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  # optional
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415

    process = GaussianProcessRegressor(kernel, optimizer="fmin_l_bfgs_b" if estimate else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an estimate at the edge of its range is one
        return process.fit(points, values)


# --- the file of searches ---------------------------------------------------------------------------------------------

FILE = "tuning.json"
FORMAT = 1

Orders = tuple[tuple[int, ...], ...]
"""The settings that each search has trained, in order."""


def read_searches(folder: Path, spaces: Mapping[Measure, Space]) -> dict[Measure, Orders]:
    """The searches of these spaces in a folder, by measure; none where there is no file.

    Raises:
        StudyError: The file cannot be read, or is of other results.
    """
    path = folder / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise StudyError(f"{path} is of another version of hotswap; {_again(folder)}.")
        stored = {measure: document["searches"][measure] for measure in spaces if measure in document["searches"]}
        if any(entry["digest"] != spaces[measure].digest for measure, entry in stored.items()):
            raise StudyError(f"{path} is of other results than those beside it; {_again(folder)}.")
        found = {measure: _orders(entry["orders"], spaces[measure]) for measure, entry in stored.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise StudyError(f"{path} cannot be read ({why}); {_again(folder)}.") from error
    return {measure: orders for measure, orders in found.items() if orders}


def _again(folder: Path) -> str:
    return f"delete it, and let `hotswap study tuning {folder}` write it anew"


def _orders(stored: Any, space: Space) -> Orders:
    """Checked: each search tries settings that there are, none twice, and ends with the best."""
    orders = tuple(tuple(order) for order in stored)
    places, best = set(range(len(space.values))), space.values.min()
    for order in orders:
        if not order or not places.issuperset(order) or len(set(order)) < len(order):
            raise ValueError("a search has settings that are not there, or one twice")
        if space.values[order[-1]] != best:
            raise ValueError("a search does not end with the best setting")
    return orders


def search_on(
    folder: Path,
    spaces: Mapping[Measure, Space],
    count: int,
    command: str,
    done: Callable[[Measure, int], None] = lambda _measure, _number: None,
) -> dict[Measure, Orders]:
    """Make searches with seeds 0, 1, … until there are so many of each measure; those in the folder are kept.

    The file is written after each, so that nothing is lost when this is interrupted. `done` is told each number.

    Raises:
        StudyError: See `read_searches`; or the file cannot be written.
    """
    orders: dict[Measure, list[Sequence[int]]] = {measure: [] for measure in spaces}
    orders |= {measure: list(known) for measure, known in read_searches(folder, spaces).items()}
    for measure, space in spaces.items():
        done(measure, len(orders[measure]))
        while len(orders[measure]) < count:
            orders[measure].append(bayesian_search(space, seed=len(orders[measure])))
            _write(folder / FILE, spaces, orders, command)
            done(measure, len(orders[measure]))
    return {measure: tuple(map(tuple, found)) for measure, found in orders.items()}


def _write(
    path: Path, spaces: Mapping[Measure, Space], orders: Mapping[Measure, Sequence[Sequence[int]]], command: str
) -> None:
    packages = {name: version(name) for name in ("scikit-learn", "scipy", "numpy")}
    document = {
        "format": FORMAT,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **packages},
        "searches": {
            measure: {"algorithm": space.tuned, "digest": space.digest, "orders": orders[measure]}
            for measure, space in spaces.items()
        },
    }
    try:
        write_text(path, json.dumps(document) + "\n")
    except OSError as error:
        raise StudyError(f"{path} cannot be written ({error.strerror}); choose a folder that can be.") from error

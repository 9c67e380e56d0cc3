"""Bayesian search over settings whose results are known: Snoek, Larochelle and Adams, "Practical Bayesian optimization
of machine learning algorithms", 2012.

A Gaussian process, with the paper's kernel (Matérn 5/2, a length scale for each hyperparameter), describes what the
settings that were trained say about all others; the next one is that with the largest expected improvement,

    E max(0, f* − f(x)) = (f* − μ) Φ(z) + σ φ(z),    z = (f* − μ) / σ,

f* the best so far, μ and σ the mean and standard deviation of f(x). The first few are drawn at random. Losses and error
rates differ by factors, so f is their logarithm. Length scales, variance and noise are the most likely ones; the paper
averages over them. They are estimated anew whenever there are a twentieth more trainings.

All settings that are left are compared, and none is trained twice. General packages look for the best point in a
continuous space: Optuna's `GPSampler`, tried on the same table, proposes some settings again and again.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from hotswap.report.tuning.space import Numbers, Space

__all__ = ["FIRST", "bayesian_search", "expected_improvement"]

FIRST = 10
"""Settings that are drawn at random."""
AGAIN = 1.05  # the factor by which trainings grow until the process is estimated anew


def bayesian_search(space: Space, seed: int) -> list[int]:
    """Which settings a search trains, one after the other, until it has the best of all; by their places in the space.

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
    """Of what is not positive, a little less than all others; where nothing is positive, the values themselves."""
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

"""What every test shares."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from tests.living import new_objects_only

torch.set_num_threads(1)  # tests run side by side; two cores are soon taken
os.environ.setdefault("OMP_NUM_THREADS", "1")  # and so do the processes that they start

settings.register_profile("hotswap", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("hotswap")


@pytest.fixture(scope="module", autouse=True)
def search_for_modules() -> Iterator[None]:
    """A file's models are made by its own tests."""
    with new_objects_only():
        yield


@pytest.fixture(params=["numpy", "torch"])
def array(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Makes arrays of one kind, then of the other: the algorithm is written once for both. `.device` goes with it."""
    return ARRAY[request.param]


class MakeNumpy:
    device = None

    def __call__(self, values: Any) -> Any:
        return np.asarray(values, dtype=None if _is_whole(values) else np.float64)


class MakeTorch:
    device = torch.device("cpu")

    def __call__(self, values: Any) -> Any:
        return torch.from_numpy(MakeNumpy()(values))


ARRAY = {"numpy": MakeNumpy(), "torch": MakeTorch()}


def _is_whole(values: Any) -> bool:
    return np.asarray(values).dtype.kind in "ib"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, and say so."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))

"""What every test shares."""

from __future__ import annotations

import pytest
import torch

torch.set_num_threads(1)  # tests run side by side; two cores are soon taken


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none, and say so."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))

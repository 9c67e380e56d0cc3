"""Among which objects hot-swapped optimizers look for modules."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

from hotswap.optim import modules

__all__ = ["new_objects_only"]


@contextmanager
def new_objects_only() -> Iterator[None]:
    """In this block modules are looked for among the objects that are made in it.

    An optimizer looks once for modules among all living objects. A process that has imported what the tests need has
    hundreds of thousands of them, none of which is a test's model, and most of the time of tests/optim would go into
    that. Objects that are frozen are not listed; hotswap is not told of them here, or it would list them all the same.
    """
    gc.collect()
    gc.freeze()
    with patch.object(modules, "gc", SimpleNamespace(get_objects=gc.get_objects, get_freeze_count=lambda: 0)):
        yield

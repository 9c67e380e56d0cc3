"""Three made-up files, small enough to break in every way."""

from __future__ import annotations

import hashlib

import pytest

from hotswap.data.sources import RawFile


@pytest.fixture
def contents() -> dict[str, bytes]:
    """Raw bytes by name. The first in order is not the smallest."""
    return {"pictures": bytes(range(256)) * 8, "names": b"five zero four one nine" * 3, "notes": b"n" * 40}


@pytest.fixture
def files(contents: dict[str, bytes]) -> tuple[RawFile, ...]:
    return tuple(RawFile(name, len(raw), hashlib.md5(raw).hexdigest()) for name, raw in contents.items())


@pytest.fixture
def lines() -> list[str]:
    """What was reported: pass `lines.append` as the report."""
    return []

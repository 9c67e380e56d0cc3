"""What tests of the report share."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from hotswap.report import write

COARSE = 3  # times as coarse as the real ones


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn once and coarsely, for tests that ask whether and not how: drawing takes most of the time."""

    def save(figure: Figure, path: Path) -> None:
        if path.suffix == ".png":
            figure.savefig(path, dpi=150 / COARSE, bbox_inches="tight")
        else:
            path.write_text("<svg/>", encoding="utf-8")

    monkeypatch.setattr(write, "save", save)

"""What tests of the report share."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from hotswap.report import Results, load_results, write
from tests.report.variants import train_small

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


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made and not drawn, for tests of what else is in a report."""
    monkeypatch.setattr(write, "save", lambda _, path: path.write_bytes(b""))


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of variants, trained once."""
    return train_small(tmp_path_factory.mktemp("variants") / "small")


@pytest.fixture(scope="session")
def small_study(small_folder: Path) -> Results:
    """Its results."""
    return load_results(small_folder)

"""One look for all figures: colours that colour-blind readers tell apart, marks that survive a grey printer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import style
from matplotlib.figure import Figure

__all__ = ["LOOKS", "SIZES", "Look", "save", "styled"]


class Look(NamedTuple):
    """How an algorithm is drawn."""

    name: str
    colour: str
    marker: str
    size: float
    filled: bool


LOOKS = {
    "sgd": Look("SGD", "#8a8f98", "o", 3.0, filled=True),
    "adadelta": Look("AdaDelta", "#D55E00", "^", 7.5, filled=False),
    "ducb": Look("hot-swapped DUCB", "#0072B2", "o", 7.5, filled=True),
}
"""In the order of drawing: what matters lies on top."""

SIZES = {64: "-", 128: (0, (5, 1.5)), 256: (0, (3, 1, 1, 1)), 512: (0, (1, 1)), 1024: (0, (5, 1, 1, 1, 1, 1))}
"""Line styles of the paper's batch sizes."""


@contextmanager
def styled() -> Iterator[None]:
    """Draw with it, whatever the user's own settings are."""
    settings: dict[str, Any] = {
        "figure.dpi": 150,
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "svg.hashsalt": "hotswap",  # the same figure gives the same file
        "svg.fonttype": "none",
    }
    with style.context(["default", settings]):
        yield


def save(figure: Figure, path: Path) -> None:
    """Write a PNG or an SVG, by the ending; the same figure gives the same bytes."""
    with styled():
        figure.savefig(path, dpi=150, bbox_inches="tight", metadata={"Date": None} if path.suffix == ".svg" else None)

"""Studies of variants: made-up ones of a few rows, and a small one that is trained."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotswap.data import load_digits
from hotswap.report.comparison import Comparison, compare
from hotswap.report.results import Results
from hotswap.studies import EXTENSIONS, PAPER, AdaDeltaFamily, NetworkSpec, SgdFamily, StudySpec
from hotswap.studies.folder import Store
from hotswap.studies.run import run_study
from hotswap.studies.training import RunOptions
from tests.report.made_up import results, row

TRAINED = ("paper", "ucb1", "every_5", "no_search", "adam_07_armijo", "judged_by_half", "momenta")

SMALL = replace(
    EXTENSIONS,
    name="small",
    dataset="digits",
    train_images=320,
    network=NetworkSpec(hidden=(8,)),
    families=(
        *(EXTENSIONS.family(name) for name in TRAINED),
        AdaDeltaFamily(),
        SgdFamily(lr=(1.0, 0.3, 0.1), lr_decay=(1.0,), momentum=(0.0, 0.9)),
    ),
    batch_sizes=(32, 64),
    seeds=(0, 1),
    epochs=10,
)
"""One family of each kind, beside AdaDelta and six settings of SGD."""


def compared(results: Results, shipped: Results | None = None) -> Comparison:
    """The comparison of a study that has variants."""
    found = compare(results, shipped)
    assert found is not None
    return found


class Silent:
    """Listens to a study's training and says nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def train_small(folder: Path) -> Path:
    store = Store.create(folder, SMALL, precision="fp32")
    assert not run_study(store, SMALL, load_digits(), RunOptions(), Silent()).left
    return folder


EPOCHS = (1, 2, 5, 10, 20, 50, 500)
SIZES = (64, 128)


def study(*names: str, spec: StudySpec = EXTENSIONS, sizes: tuple[int, ...] = SIZES, epochs: int = 500) -> StudySpec:
    """These families of the extensions, at two batch sizes."""
    return replace(
        spec, families=tuple(EXTENSIONS.family(name) for name in names), batch_sizes=sizes, seeds=(0,), epochs=epochs
    )


def variant_rows(
    name: str, objective: float, *, size: int = 64, trials: float = 0.0, **more: Any
) -> list[dict[str, Any]]:
    """A run whose objective is `objective` / epoch, with so many trials in each step."""
    steps = 50_000 // size
    return [
        row(name, size, epoch=epoch, **{
            "train_nll": objective / epoch, "trials": trials, "passes": (3 + trials) * steps * epoch, **more,
        })
        for epoch in EPOCHS
    ]  # fmt: skip


def rival_rows(size: int, *, adadelta: float, sgd: float) -> list[dict[str, Any]]:
    """AdaDelta, and ten settings of SGD, the best of which has `sgd` / epoch, the next twice as much, and so on."""
    rows = [row("adadelta", size, epoch=epoch, train_nll=adadelta / epoch, passes=math.nan) for epoch in EPOCHS]
    for number in range(1, 11):
        rate = number / 100
        rows += [row("sgd", size, epoch=e, lr=rate, train_nll=number * sgd / e, passes=math.nan) for e in EPOCHS]
    return rows


def made(
    objectives: dict[str, float | dict[int, float]], *, adadelta: float = 8.0, sgd: float = 4.0, **more: Any
) -> Results:
    """Variants with these objectives, at each batch size or at all; the paper's has 2. None of them makes a trial."""
    rows = []
    for size in SIZES:
        rows += rival_rows(size, adadelta=adadelta, sgd=sgd)
        for name, objective in {"paper": 2.0, **objectives}.items():
            rows += variant_rows(name, objective[size] if isinstance(objective, dict) else objective, size=size)
    names = dict.fromkeys(("paper", *objectives))
    own = replace(study(*names), families=(*study(*names).families, PAPER.family("adadelta"), PAPER.family("sgd")))
    return results(rows, specs=(own,), name="extensions", **more)

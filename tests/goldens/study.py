"""Writes `study.json`: what small studies with every family measure, in float64 on a CPU.

Run it as `python -m tests.goldens.study` where results are meant to change, and say in the commit why they do.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hotswap.data import load
from hotswap.studies import (
    EXTENSIONS,
    AdaDeltaFamily,
    AdamFamily,
    ConvolutionalSpec,
    DucbFamily,
    HotSwapFamily,
    NetworkSpec,
    SgdFamily,
    StudySpec,
    VsgdFamily,
)
from hotswap.studies.folder import Store
from hotswap.studies.run import run_study
from hotswap.studies.training import RunOptions

FILE = Path(__file__).parent / "study.json"

MEASURED = ("train_nll", "test_nll", "test_error", "mean_lr", "trials", "passes", "grad_norm")

SGD = SgdFamily(lr=(0.3, 0.03), lr_decay=(0.9, 1.0), momentum=(0.0, 0.9))
PLAIN = (
    SGD,
    AdaDeltaFamily(),
    AdamFamily(lr=(0.01, 0.001), weight_decay=(0.0, 0.1)),
    VsgdFamily(),
    DucbFamily(count=9),
    DucbFamily(name="first", count=9, search="first_decrease", headroom=1),
)
SWAPPING = tuple(replace(family, count=9) for family in EXTENSIONS.families if isinstance(family, HotSwapFamily))

PERCEPTRONS = StudySpec(
    name="perceptrons",
    dataset="digits",
    train_images=320,
    network=NetworkSpec(hidden=(12, 8)),
    families=(*PLAIN, *SWAPPING),
    batch_sizes=(32,),
    seeds=(0,),
    epochs=5,
)
CONVOLUTIONS = StudySpec(
    name="convolutions",
    dataset="digits",
    train_images=96,
    network=ConvolutionalSpec(channels=(4,)),
    families=(SGD, AdaDeltaFamily(), VsgdFamily(start=2), HotSwapFamily(count=9), *SWAPPING[-2:]),
    batch_sizes=(16,),
    seeds=(0,),
    epochs=3,
)
STUDIES = (PERCEPTRONS, CONVOLUTIONS)


class Silent:
    """Shows nothing of the training."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


def measured(study: StudySpec) -> dict[str, dict[str, list[float]]]:
    """By run and by column, what the study measured at each of its recorded epochs."""
    with TemporaryDirectory() as folder:
        store = Store.create(folder, study, precision="fp64")
        assert not run_study(store, study, load(study.dataset), RunOptions(precision="fp64"), Silent()).left
        table = store.metrics().sort_values(["run", "epoch"])
    return {str(run): {name: [float(x) for x in rows[name]] for name in MEASURED} for run, rows in table.groupby("run")}


if __name__ == "__main__":
    runs = {f"{study.name}/{run}": rows for study in STUDIES for run, rows in measured(study).items()}
    lines = ",\n".join(f"{json.dumps(run)}: {json.dumps(rows)}" for run, rows in runs.items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")

"""A small study and a small benchmark export the tables that they exported before: `study.*` and `bench.*` beside this.

`python -m tests.goldens.test_exports` writes the tables anew, from the program as it is.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from hotswap.cli import app

GOLDENS = Path(__file__).parent
STUDY = """
name = "toy"
dataset = "digits"
train_images = 640
epochs = 3
batch_sizes = [64, 128]
seeds = [0, 1]

[network]
hidden = [12, 8]

[sgd]
lr = [1.0, 0.1]
lr_decay = [0.99]
momentum = [0.0, 0.9]

[adadelta]

[ducb]
count = 9
"""
BENCH = ("bench", "run", "--size", "smoke", "--workload", "logistic_regression", "--method", "adamw")
ELSEWHERE = {"seconds", "origin", "digest"}  # of the machine, or computed from what is


def command(*words: object) -> None:
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def study_tables(folder: Path) -> tuple[dict[str, pd.DataFrame], dict[str, Any]]:
    """The tables of the study, and of its provenance what no machine changes."""
    (folder / "toy.toml").write_text(STUDY, encoding="utf-8")
    command("study", "run", folder / "toy.toml", "--out", folder / "study")
    command("study", "export", folder / "study", folder / "study.csv")
    document = json.loads((folder / "study.provenance.json").read_text(encoding="utf-8"))
    kept = {name: document[name] for name in ("study", "specs", "fingerprint", "precision", "dtype", "format")}
    kept["runs"] = {run: {**mark, "seconds": 0} for run, mark in document["runs"].items()}
    kept["units"] = {unit: [[e["epochs"], e["runs"]] for e in done] for unit, done in document["units"].items()}
    names = {"study.csv": folder / "study.csv", "study.arms.csv": folder / "study.arms.csv"}
    return {name: pd.read_csv(path) for name, path in names.items()}, kept


def bench_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of the benchmark, sorted."""
    command(*BENCH, "--out", folder / "bench")
    command("bench", "export", folder / "bench", folder / "tables")
    found = {f"bench.{name}.csv": pd.read_parquet(folder / "tables" / f"{name}.parquet") for name in ("runs", "points")}
    keys = ["workload", "method", "configuration", "seed", "percent"]
    return {
        name: table.sort_values([key for key in keys if key in table], ignore_index=True)
        for name, table in found.items()
    }


def told(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: table.drop(columns=list(ELSEWHERE & set(table))) for name, table in tables.items()}


def same(ours: dict[str, pd.DataFrame]) -> None:
    for name, table in told(ours).items():
        before = pd.read_csv(GOLDENS / name, keep_default_na=True)
        # Processors differ in the last digits of float32.
        now = table.replace("", float("nan")).astype(before.dtypes.to_dict())
        pd.testing.assert_frame_equal(now, before, rtol=1e-4)


def test_a_study(tmp_path: Path) -> None:
    tables, document = study_tables(tmp_path)
    same(tables)
    assert document == json.loads((GOLDENS / "study.provenance.json").read_text(encoding="utf-8"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_benchmark(tmp_path: Path) -> None:
    same(bench_tables(tmp_path))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        made, provenance = study_tables(Path(name))
        for file, frame in told({**made, **bench_tables(Path(name))}).items():
            frame.to_csv(GOLDENS / file, index=False)
        (GOLDENS / "study.provenance.json").write_text(json.dumps(provenance, indent=1, sort_keys=True) + "\n")

"""Study folders and tables of the version before: shown, resumed to the last digit, exported and imported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.data import load_digits
from hotswap.errors import StudyError
from hotswap.studies import StudySpec, load_study
from hotswap.studies.exchange.exported import read_exports
from hotswap.studies.exchange.merge import export, import_files, import_into
from hotswap.studies.exchange.table_files import read_rows
from hotswap.studies.running.train import RunOptions, run_study
from hotswap.studies.storage.rows import METRIC_COLUMNS
from hotswap.studies.storage.store import Store
from tests.studies.running.test_train import Quiet

BEFORE = Path(__file__).parent / "data" / "before"
FINGERPRINT = "baf4d202f1cb8e9a"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study's folder as the version before left it."""
    return shutil.copytree(BEFORE / "study", tmp_path / "study")


@pytest.fixture(scope="module")
def study() -> StudySpec:
    return load_study(BEFORE / "study.toml")


def metrics(folder: Path) -> pd.DataFrame:
    with Store.open(folder) as store:
        return store.metrics().drop(columns="seconds")


def uninterrupted() -> pd.DataFrame:
    """What the version before measured in a study that nobody interrupted."""
    table = pd.DataFrame(read_rows(BEFORE / "whole.csv", METRIC_COLUMNS)).astype(METRIC_COLUMNS)
    return table.drop(columns="seconds")


def test_the_fingerprint_is_the_same(study: StudySpec) -> None:
    assert study.fingerprint() == FINGERPRINT


def test_status_shows_it(folder: Path) -> None:
    shown = " ".join(CliRunner().invoke(app, ["study", "status", str(folder)]).output.split())
    assert "3 of 6 units done" in shown
    for name, runs in (("adadelta", 2), ("ducb", 2), ("sgd", 4)):
        assert f"{name}-b32 {runs} 8/8 done" in shown
        assert f"{name}-b64 {runs} 5/8 4 left" in shown


def test_it_is_resumed_and_ends_as_it_would_have(folder: Path, tmp_path: Path, study: StudySpec) -> None:
    """Every unit goes on from the checkpoint that the version before wrote (checkpoint format 3)."""
    listener = Quiet()
    with Store.create(folder, study, precision="fp32") as store:
        assert run_study(store, study, load_digits(), RunOptions(), listener)
    assert sorted(listener.began) == [("adadelta-b64", 4), ("ducb-b64", 4), ("sgd-b64", 4)]
    with Store.create(tmp_path / "anew", study, precision="fp32") as store:
        run_study(store, study, load_digits(), RunOptions(), Quiet())
    expected = uninterrupted()
    pd.testing.assert_frame_equal(metrics(folder), expected, rtol=1e-5)
    # Another processor may round otherwise than the one that these files come from. Where it does not, not one bit of
    # a study that is trained anew differs from them, and then nothing of one that is resumed may.
    if metrics(tmp_path / "anew").equals(expected):
        pd.testing.assert_frame_equal(metrics(folder), expected, check_exact=True)


@pytest.mark.parametrize("name", ["export", "part.parquet", "whole.csv"])
def test_tables_are_imported_into_a_new_folder(tmp_path: Path, name: str) -> None:
    added = import_into(tmp_path / "new", read_exports([BEFORE / name]))
    assert added == (64 if name == "whole.csv" else 56)
    expected = uninterrupted()
    if name != "whole.csv":
        expected = pd.read_parquet(BEFORE / "part.parquet").drop(columns="seconds")
    pd.testing.assert_frame_equal(metrics(tmp_path / "new"), expected, check_exact=True)
    with Store.open(tmp_path / "new") as store:
        assert store.fingerprint == FINGERPRINT


def test_tables_are_imported_into_an_upgraded_folder(folder: Path, study: StudySpec) -> None:
    with Store.open(folder) as store:
        assert import_files(store, [BEFORE / "export", BEFORE / "part.parquet"]) == 0
        assert import_files(store, [BEFORE / "whole.csv"]) == 8
        assert {unit.state for unit in store.summary().units} == {"done"}
    pd.testing.assert_frame_equal(metrics(folder), uninterrupted(), check_exact=True)


def test_an_export_has_the_same_columns_and_says_how_fingerprints_were_made(folder: Path, tmp_path: Path) -> None:
    with Store.open(folder) as store:
        export(store, tmp_path / "out")
        export(store, tmp_path / "out.csv")
    before, now = (pd.read_parquet(place / "metrics.parquet") for place in (BEFORE / "export", tmp_path / "out"))
    pd.testing.assert_frame_equal(now, before, check_exact=True)
    header = (BEFORE / "whole.csv").read_text().splitlines()[0]
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == header
    old, new = (json.loads((place / "provenance.json").read_text()) for place in (BEFORE / "export", tmp_path / "out"))
    assert new.pop("fingerprint_version") == 1
    new.pop("sha256"), old.pop("sha256")
    assert new == old


def test_a_table_with_fingerprints_of_a_later_version_is_refused(tmp_path: Path) -> None:
    shutil.copytree(BEFORE / "export", tmp_path / "export")
    path = tmp_path / "export" / "provenance.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprint_version": 2}))
    with pytest.raises(StudyError, match=r"newer hotswap \(its fingerprints are of version 2.+\); update hotswap\."):
        import_into(tmp_path / "new", read_exports([tmp_path / "export"]))
    assert not (tmp_path / "new").exists()

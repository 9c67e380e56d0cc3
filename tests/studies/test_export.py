"""Tables of a study: whole, alike in both formats, and none without what explains it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hotswap.errors import StudyError
from hotswap.store import tables
from hotswap.store.tables import digest, read_rows
from hotswap.studies.export import export
from hotswap.studies.folder import Store
from hotswap.studies.rows import METRIC_COLUMNS
from tests.studies.test_folder import make, study

TIMED = ("sgd", 10, 0, 1.0, 1.0, 2.0, "cpu", "fp32", "2")
TIMING = ("algorithm", "batch_size", "epoch", "milliseconds", "seconds", "trials", "device", "precision", "torch")


def with_timings(folder: Path) -> Store:
    store = make(folder)
    rows = store.metrics()
    rows[rows["run"] == "ducb-b10-s0"].to_parquet(folder / "curves.parquet")
    pd.DataFrame([TIMED], columns=list(TIMING)).to_parquet(folder / "timing.parquet")
    make(folder / "singles", only="ducb-b10")
    return store


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    store, frames = make(tmp_path / "study"), []
    for ending in (".parquet", ".csv"):
        names = [f"x{ending}", f"x.arms{ending}", "x.provenance.json"]
        written = export(store, tmp_path / ending[1:] / f"x{ending}")
        assert [path.name for path in written] == names
        assert sorted(path.name for path in (tmp_path / ending[1:]).iterdir()) == sorted(names)
        frames.append(pd.DataFrame(read_rows(written[0], METRIC_COLUMNS)))
        document = json.loads(written[2].read_text(encoding="utf-8"))
        assert document["sha256"] == {"metrics": digest(written[0]), "arms": digest(written[1])}
        assert document["fingerprint"] == study().fingerprint()
        assert document["units"]["ducb-b10"][0]["runs"] == ["ducb-b10-s0", "ducb-b10-s1"]
        assert document["runs"]["ducb-b10-s0"] == {"epoch": 10, "finished": 10, "diverged": 3, "seconds": 2.0}
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    pd.testing.assert_frame_equal(frames[0].astype(METRIC_COLUMNS), store.metrics(), check_exact=True)


def test_a_folder_has_the_timings_too(tmp_path: Path) -> None:
    store = with_timings(tmp_path / "study")
    written = export(store, tmp_path / "all")
    assert [path.name for path in written] == [
        "metrics.parquet", "arms.parquet", "timing.parquet", "curves.parquet", "provenance.json"
    ]  # fmt: skip
    document = json.loads(written[-1].read_text(encoding="utf-8"))
    assert list(document["singles"]) == ["ducb-b10"]
    assert set(document["sha256"]) == {"metrics", "arms", "timing", "curves"}
    (tmp_path / "study" / "timing.parquet").unlink()
    with pytest.raises(StudyError, match=r"all has timing of single runs, which .*study has not, and they would no"):
        export(store, tmp_path / "all")


def test_what_would_not_belong_together_is_refused(tmp_path: Path) -> None:
    store = make(tmp_path / "study")
    export(store, tmp_path / "x.parquet")
    with pytest.raises(StudyError, match=r"x\.parquet is there already, and x\.provenance\.json would belong to one"):
        export(store, tmp_path / "x.csv")
    with pytest.raises(StudyError, match=r"x\.txt ends in neither \.parquet nor \.csv; choose one of them, or a folde"):
        export(store, tmp_path / "x.txt")
    (file,) = (tmp_path / "study" / "units").glob("sgd-b20-*")
    file.write_bytes(b"")
    with pytest.raises(StudyError, match="is damaged"):
        export(store, tmp_path / "x.parquet")


def test_a_full_disk_leaves_the_export_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(tmp_path / "study")
    written = export(store, tmp_path / "x.parquet")
    before = [path.read_bytes() for path in written]

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StudyError, match=r"The disk is full: .* make room and run the same command again"):
        export(store, tmp_path / "x.parquet")
    assert [path.read_bytes() for path in written] == before


def test_an_empty_study_has_empty_tables(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "study", study(), precision="fp32")
    for ending in ("csv", "parquet"):
        metrics, arms, _ = export(store, tmp_path / ending / f"x.{ending}")
        assert read_rows(metrics, METRIC_COLUMNS) == read_rows(arms, {"run": "str"}) == []


@pytest.mark.parametrize("text", [b"", b"PAR1", b"not a table", b"PAR1" + b"\0" * 100 + b"PAR1"])
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_tables_that_cannot_be_read(tmp_path: Path, text: bytes, ending: str) -> None:
    file = tmp_path / f"x{ending}"
    file.write_bytes(text)
    with pytest.raises(StudyError, match="cannot be read"):
        read_rows(file, METRIC_COLUMNS)


def test_a_table_beyond_the_limits_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 10, pa.int8()), pa.array(["a"]))
    pq.write_table(pa.table({"run": column}), tmp_path / "small.parquet")
    assert len(read_rows(tmp_path / "small.parquet", {"run": "str"})) == 10
    monkeypatch.setattr(tables, "MOST_ROWS", 9)
    with pytest.raises(StudyError, match=r"has 10 rows in .* bytes; a table may have 9 rows"):
        read_rows(tmp_path / "small.parquet", {"run": "str"})
    (tmp_path / "large.csv").write_text("run\n" + "a\n" * 500)
    with pytest.raises(StudyError, match=r"large\.csv has .* bytes; a table may have 9 rows and 900 bytes"):
        read_rows(tmp_path / "large.csv", {"run": "str"})

"""Tables of several machines are put together; what contradicts is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hotswap.bench.exchange import export_results, import_results, read_results
from hotswap.bench.runs import PERCENTS, Result
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.errors import StudyError
from tests.bench.helpers import made

W, V = "paper_network", "autoencoder"


def folder_of(path: Path, *results: Result) -> Path:
    with BenchStore.create(path / "bench", "smoke") as store:
        store.record(results)
        export_results(store, path / "tables")
    return path / "tables"


def test_what_is_exported_comes_back(tmp_path: Path) -> None:
    lost = made(W, "adamw", curve=[*[1.0] * (len(PERCENTS) - 1), math.nan])
    some = [made(W, "sgd", device="CPU"), lost, replace(made(W, "dog", state="missing"), points=())]
    tables = folder_of(tmp_path, *some)
    assert sorted(path.name for path in tables.iterdir()) == ["points.parquet", "runs.parquet"]
    found = read_results(tables)
    assert [result.digest() for result in found] == [result.digest() for result in some]
    assert found[0] == some[0]


def test_a_folder_may_have_a_dot_in_its_name_and_a_table_is_none(tmp_path: Path) -> None:
    with BenchStore.create(tmp_path / "bench", "smoke") as store:
        store.record([made(W, "sgd")])
        assert len(export_results(store, tmp_path / "gpu-2026.11")) == 2
        with pytest.raises(StudyError, match="is not the name of a folder"):
            export_results(store, tmp_path / "runs.parquet")
        (tmp_path / "file").write_text("mine")
        with pytest.raises(StudyError, match="is not the name of a folder"):
            export_results(store, tmp_path / "file")
        with pytest.raises(StudyError, match=r"cannot be written \(Not a directory\); the benchmark"):
            export_results(store, tmp_path / "file" / "tables")
    assert (tmp_path / "file").read_text() == "mine"


def test_parts_of_several_machines_merge(tmp_path: Path) -> None:
    one = folder_of(tmp_path / "one", made(W, "sgd"), made(V, "sgd", state="missing"))
    two = folder_of(tmp_path / "two", made(V, "sgd"), made(W, "sgd"), made(W, "adamw", state="killed"))
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        assert import_results(store, [one]) == 2
        assert import_results(store, [two]) == 2
        assert import_results(store, [one, two]) == 0
        states = {name: result.state for name, result in store.results().items()}
    assert states == {
        f"{W}-sgd-default-0": "finished",
        f"{V}-sgd-default-0": "finished",
        f"{W}-adamw-default-0": "killed",
    }


def test_a_contradiction_changes_nothing(tmp_path: Path) -> None:
    other = folder_of(tmp_path, made(V, "sgd"), made(W, "sgd", end=0.2))
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        store.record([made(W, "sgd", end=0.1)])
        with pytest.raises(StudyError, match="contradicts what is known: run paper_network-sgd-default-0"):
            import_results(store, [other])
        assert [result.run.workload for result in store.results().values()] == [W]


def test_what_is_known_can_be_kept(tmp_path: Path) -> None:
    other = folder_of(tmp_path, made(V, "sgd"), made(W, "sgd", end=0.2))
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        store.record([made(W, "sgd", end=0.1)])
        assert import_results(store, [other], keep=True) == 1
        ends = {result.run.workload: result.points[-1].validation for result in store.results().values()}
    assert ends == {W: 0.1, V: 0.1}


def test_what_is_of_another_version_says_so_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(WORKLOADS[W], "version", 7)
        tables = folder_of(tmp_path, made(W, "sgd"))
    assert [result.state for result in read_results(tables)] == ["outdated"]
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        assert import_results(store, [tables]) == 1
        assert store.results()[f"{W}-sgd-default-0"].state == "outdated"
        with monkeypatch.context() as updated:
            updated.setattr(WORKLOADS[W], "version", 7)
            assert store.results()[f"{W}-sgd-default-0"].end is not None
        store.record([made(W, "sgd")])
        assert import_results(store, [tables]) == 0  # it does not displace one of today


def test_the_same_run_on_a_slower_machine_is_no_contradiction(tmp_path: Path) -> None:
    fast = made(W, "sgd")
    slow = replace(fast, points=tuple(point._replace(seconds=7 * point.seconds) for point in fast.points))
    tables = folder_of(tmp_path, slow)
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        store.record([fast])
        assert import_results(store, [tables]) == 0


def test_a_damaged_table_is_a_row_that_says_so(tmp_path: Path) -> None:
    tables = folder_of(tmp_path, made(W, "sgd"), made(W, "adamw"))
    frame = pd.read_parquet(tables / "points.parquet")
    frame.loc[(frame["method"] == "sgd") & (frame["percent"] == 100), "validation"] = 0.001
    frame.to_parquet(tables / "points.parquet")
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        import_results(store, [tables])
        found = {result.run.method: result for result in store.results().values()}
        assert (found["sgd"].state, found["adamw"].state) == ("damaged", "finished")
        assert "tables has of it is not what was exported" in found["sgd"].reason
        store.record([made(W, "sgd")])
        assert import_results(store, [tables]) == 0  # it does not displace a sound one


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda tables: (tables / "runs.parquet").write_bytes(b"nothing"), "cannot be read"),
        (lambda tables: (tables / "points.parquet").unlink(), "cannot be read"),
        (lambda tables: _change(tables, "state", "well"), "it has a state 'well'"),
        (lambda tables: _change(tables, "settings", "{"), "the settings or the origin of paper_network-sgd-default-0"),
        (lambda tables: _change(tables, "origin", "[1, 2]"), "of paper_network-sgd-default-0 have no names"),
        (lambda tables: _change(tables, "size", "full"), "is of size full"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_sentence(tmp_path: Path, harm: object, said: str) -> None:
    tables = folder_of(tmp_path, made(W, "sgd"))
    harm(tables)
    with BenchStore.create(tmp_path / "all", "smoke") as store:
        with pytest.raises(StudyError, match=said):
            import_results(store, [tables])
        assert store.results() == {}


def _change(tables: Path, column: str, value: str) -> None:
    frame = pd.read_parquet(tables / "runs.parquet")
    frame[column] = value
    frame.to_parquet(tables / "runs.parquet")


def test_no_folder_and_no_name_of_one(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="is not a folder that `hotswap bench export` has written"):
        read_results(tmp_path / "nothing")
    with (
        BenchStore.create(tmp_path / "all", "smoke") as store,
        pytest.raises(StudyError, match="is not the name of a folder"),
    ):
        export_results(store, tmp_path / "table.csv")

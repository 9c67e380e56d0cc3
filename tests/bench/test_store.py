"""A benchmark's folder gives back what was stored, and says so where it cannot; tables in it count."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hotswap.bench.exchange import export_results, read_results
from hotswap.bench.methods import METHODS
from hotswap.bench.runs import PERCENTS, Result, troubles
from hotswap.bench.store import BenchStore
from hotswap.bench.workloads import WORKLOADS
from hotswap.errors import StudyError
from hotswap.report import load_results
from hotswap.store import write_record
from tests.bench.helpers import made
from tests.damage import check_damage

W, V = "paper_network", "autoencoder"


def store_of(folder: Path, *results: Result) -> BenchStore:
    store = BenchStore.create(folder, "smoke")
    store.record(results)
    return store


def tables_of(path: Path, *results: Result) -> Path:
    export_results(results, path / "tables")
    return path / "tables"


def test_a_result_comes_back_as_it_was(tmp_path: Path) -> None:
    fine = made(W, "sgd", device="CPU")
    lost = made(W, "adamw", curve=[*[1.0] * (len(PERCENTS) - 1), math.inf])
    nothing = replace(made(W, "dog", state="missing"), points=())
    store_of(tmp_path, fine, lost, nothing)
    found = BenchStore.open(tmp_path).results()
    assert BenchStore.open(tmp_path).size == "smoke"
    assert found == {result.run.id: result for result in (fine, lost, nothing)}
    assert Result.of(fine.plain()) == fine


def test_a_later_result_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    store = store_of(tmp_path, made(W, "sgd", end=0.5))
    store.record([made(W, "sgd", state="failed")])
    (found,) = store.results().values()
    assert (found.state, len(found.points)) == ("failed", 3)


def test_tables_come_back_and_not_finite_numbers_too(tmp_path: Path) -> None:
    lost = made(W, "adamw", curve=[*[1.0] * (len(PERCENTS) - 1), math.nan])
    some = [made(W, "sgd", device="CPU"), lost, replace(made(W, "dog", state="missing"), points=())]
    tables = tables_of(tmp_path, *some)
    assert sorted(path.name for path in tables.iterdir()) == ["points.parquet", "runs.parquet"]
    found = {result.run.id: result for result in read_results(tables)}
    assert {run: result.digest() for run, result in found.items()} == {one.run.id: one.digest() for one in some}
    assert BenchStore.open(tables).results()[lost.run.id].end is None


def test_folders_are_put_together_by_copying(tmp_path: Path) -> None:
    one = store_of(tmp_path / "one", made(W, "sgd"), made(V, "sgd", state="missing"))
    two = store_of(tmp_path / "two", made(V, "sgd"), made(W, "adamw", state="killed"))
    for file in (two.folder / "units").iterdir():
        shutil.copy(file, one.folder / "units")
    states = {run: result.state for run, result in one.results().items()}
    assert states == {f"{W}-sgd-default-0": "finished", f"{V}-sgd-default-0": "finished",
                      f"{W}-adamw-default-0": "killed"}  # fmt: skip
    write_record(one.folder / "units" / "copy.hotswap", made(W, "sgd", end=0.2).plain())
    with pytest.raises(
        StudyError, match=rf"{W}-sgd-default-0\.hotswap and .*copy\.hotswap disagree on the run|copy\.h"
    ):
        one.results()
    full = replace(made(W, "dog"), run=replace(made(W, "dog").run, size="full"))
    write_record(one.folder / "units" / "copy.hotswap", full.plain())
    with pytest.raises(StudyError, match=r"copy\.hotswap is of size full, and the benchmark of size smoke"):
        one.results()


def test_tables_in_a_folder_are_where_a_benchmark_begins(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, made(W, "sgd"), made(W, "adamw", state="missing"), made(V, "sgd"))
    with pytest.raises(StudyError, match="has exported tables alone; `hotswap bench run` makes a benchmark of it"):
        BenchStore.open(tables).record([made(W, "dog")])
    with pytest.raises(StudyError, match="is of sizes "):
        BenchStore.create(shutil.copytree(tables, tmp_path / "other"), "full")
    store = BenchStore.create(tables, "smoke")
    slow = tuple(point._replace(seconds=7 * point.seconds) for point in made(W, "sgd").points)
    store.record([made(W, "adamw"), replace(made(W, "sgd"), points=slow)])  # only slower: no contradiction
    assert {result.state for result in BenchStore.open(tables).results().values()} == {"finished"}
    store.record([made(V, "sgd", end=0.2)])
    with pytest.raises(StudyError, match=r"autoencoder-sgd-default-0\.hotswap and .*runs\.parquet disagree"):
        store.results()


def test_a_folder_damaged_at_any_place_says_so_or_changes_nothing(tmp_path: Path) -> None:
    store_of(tmp_path, made(W, "sgd"), made(W, "adamw", state="diverged"))

    def read() -> dict[str, Result]:
        store = BenchStore.open(tmp_path)
        store.check_whole()
        return store.results()

    check_damage([tmp_path / "about.hotswap", *sorted((tmp_path / "units").iterdir())], read)


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a state": lambda told: told.update(state="well"),
    "no points": lambda told: told.pop("points"),
    "a point": lambda told: told["points"].append([1, 2]),
    "words for numbers": lambda told: told["points"][0].__setitem__(4, "many"),
    "a negative time": lambda told: told["points"][0].__setitem__(3, -1.0),
    "settings": lambda told: told.update(settings=[1]),
    "a seed": lambda told: told.update(seed="one"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_result_that_cannot_be_is_damaged_though_its_digests_match(tmp_path: Path, lie: str) -> None:
    store, told = store_of(tmp_path, made(W, "adamw")), made(W, "sgd").plain()
    LIES[lie](told)
    write_record(tmp_path / "units" / "told.hotswap", told)
    assert list(store.results()) == [made(W, "adamw").run.id]
    with pytest.raises(StudyError, match=r"told\.hotswap is damaged"):
        store.check_whole()


def test_reasons_that_differ_in_numbers_alone_are_one_sentence() -> None:
    losses = {2: -0.5, 0: -1e-05, 1: -0.25}
    ended = [
        replace(made(W, "sgd", seed, state="failed"), reason=f"The loss is {loss:g}.") for seed, loss in losses.items()
    ]
    alike = "The loss is -1e-05. (So says seed 0; the others differ in numbers alone.)"
    assert troubles(ended) == [f"{W}, sgd (default), seeds 0, 1, 2: failed. {alike}"]
    raised = [replace(one, reason=f"KeyError: 3 (a.py, line {12 * one.run.seed + 5})") for one in ended]
    assert len(troubles(raised)) == 3
    other = replace(ended[0], reason="The weights are not finite.")
    assert [line.split(": ")[0] for line in troubles([other, *ended[1:]])] == [
        f"{W}, sgd (default), seeds 0, 1",
        f"{W}, sgd (default), seed 2",
    ]


def test_results_of_another_version_are_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, version = METHODS["prodigy"].package or ("", "")
    store = store_of(
        tmp_path,
        made(W, "prodigy", 0, **{name: "0.9"}),
        made(W, "prodigy", 1, **{name: version}),
        made(W, "prodigy", 2),  # early ones do not say
        made(W, "prodigy", 3, method_version=2),
        replace(made(W, "adamw"), settings={"lr": 5}),
    )

    def outdated() -> set[str]:
        return {run for run, result in store.results().items() if result.state == "outdated"}

    assert outdated() == {f"{W}-prodigy-default-0", f"{W}-prodigy-default-3", f"{W}-adamw-default-0"}
    with monkeypatch.context() as updated:
        updated.setattr(METHODS["prodigy"], "version", 2)
        assert f"{W}-prodigy-default-3" not in outdated()
        assert f"{W}-prodigy-default-2" in outdated()
    monkeypatch.setattr(WORKLOADS[W], "version", 99)
    assert len(outdated()) == 5


def test_a_folder_holds_one_size_of_a_benchmark_and_no_study(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="holds no benchmark; `hotswap bench run` starts one"):
        BenchStore.open(tmp_path)
    with pytest.raises(StudyError, match="cannot be read or written"):
        BenchStore.create(tmp_path / (300 * "x"), "smoke")
    BenchStore.create(tmp_path, "smoke")
    with pytest.raises(StudyError, match="holds a benchmark of size smoke, not full"):
        BenchStore.create(tmp_path, "full")
    with pytest.raises(StudyError, match=r"holds a benchmark, and no study; `hotswap bench report .*` reports on it"):
        load_results(tmp_path)
    write_record(tmp_path / "about.hotswap", {"kind": "benchmark", "size": "large"})
    with pytest.raises(StudyError, match="is of sizes large, and a benchmark has one of"):
        BenchStore.open(tmp_path)


def test_a_damaged_table_is_a_row_that_says_so(tmp_path: Path) -> None:
    tables = tables_of(tmp_path, made(W, "sgd"), made(W, "adamw"))
    frame = pd.read_parquet(tables / "points.parquet")
    frame.loc[(frame["method"] == "sgd") & (frame["percent"] == 100), "validation"] = 0.001
    frame.to_parquet(tables / "points.parquet")
    found = {result.run.method: result for result in BenchStore.open(tables).results().values()}
    assert (found["sgd"].state, found["adamw"].state) == ("damaged", "finished")
    assert "tables has of it is not what was exported" in found["sgd"].reason


def change(column: str, value: str) -> Callable[[Path], None]:
    def apply(tables: Path) -> None:
        pd.read_parquet(tables / "runs.parquet").assign(**{column: value}).to_parquet(tables / "runs.parquet")

    return apply


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda tables: (tables / "runs.parquet").write_bytes(b"nothing"), "cannot be read"),
        (lambda tables: (tables / "points.parquet").unlink(), "cannot be read"),
        (change("state", "well"), "it has a state 'well'"),
        (change("settings", "{"), "the settings or the origin of paper_network-sgd-default-0"),
        (change("settings", "[" * 100_000), "nested more than"),
        (change("origin", "[1, 2]"), "of paper_network-sgd-default-0 have no names"),
        (change("size", "x/../../PWNED"), "it has a size"),
    ],
)
def test_tables_that_cannot_be_read_are_refused(tmp_path: Path, harm: Callable[[Path], None], said: str) -> None:
    tables = tables_of(tmp_path, made(W, "sgd"))
    harm(tables)
    with pytest.raises(StudyError, match=said):
        BenchStore.open(tables)


def test_a_table_is_not_the_name_of_a_folder(tmp_path: Path) -> None:
    store = store_of(tmp_path / "bench", made(W, "sgd"))
    assert len(export_results(store.results().values(), tmp_path / "gpu-2026.11")) == 2
    (tmp_path / "file").write_text("mine")
    for name in ("runs.parquet", "file"):
        with pytest.raises(StudyError, match="is not the name of a folder"):
            export_results(store.results().values(), tmp_path / name)
    with pytest.raises(StudyError, match="cannot be read or written"):
        export_results(store.results().values(), tmp_path / "file" / "tables")
    with pytest.raises(StudyError, match="is not a folder that `hotswap bench export` has written"):
        read_results(tmp_path / "nothing")

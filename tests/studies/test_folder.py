"""A study's folder keeps what units have measured, grows with what is asked, and is put together by copying files."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hotswap.errors import StudyError
from hotswap.store import write_record
from hotswap.studies import DucbFamily, NetworkSpec, SgdFamily, StudySpec, Unit, plan
from hotswap.studies.folder import Store
from hotswap.studies.rows import METRIC_COLUMNS
from tests.damage import check_damage


def study(**changes: Any) -> StudySpec:
    """Two algorithms, two batch sizes, two seeds: 12 runs in 4 units."""
    settings: dict[str, Any] = {
        "name": "small",
        "dataset": "digits",
        "train_images": 100,
        "network": NetworkSpec(hidden=(4,)),
        "families": (SgdFamily(lr=(0.1, 0.3), lr_decay=(1.0,), momentum=(0.5,)), DucbFamily(count=3)),
        "batch_sizes": (10, 20),
        "seeds": (0, 1),
        "epochs": 10,
    }
    return StudySpec(**{**settings, **changes})


HARD = (math.nan, math.inf, 1e-300, -math.inf, 1e-310, 5e-324)


def measured(spec: StudySpec, unit: Unit, epochs: tuple[int, ...] = (1, 10), value: float = 0.1) -> dict[str, Any]:
    """What a unit stores that has measured numbers that are hard to keep."""
    runs = {}
    for place, run in enumerate(unit.runs):
        numbers = HARD if place == 0 else (value + 0.2, 1 / 3, 0.5, 0.1, 2.5, 1.0)
        runs[run.id] = {
            "algorithm": run.algorithm,
            "batch_size": run.batch_size,
            "seed": run.seed,
            "settings": run.settings,
            "diverged": 3 if place == 0 else None,
            "rows": [[epoch, *numbers, 10 * epoch, 2.0 * epoch, {}] for epoch in epochs],
            "arms": [[epoch, arm, 3 + arm] for epoch in epochs for arm in (0, 2) if run.algorithm == "ducb"],
        }
    identity = {"fingerprint": spec.fingerprint(), "fingerprint_version": 1, "precision": "fp32", "dtype": "float32"}
    provenance = {"device": "CPU", "torch": "2.11", "seconds": 4.0, "date": "2026-01-01"}
    more = {"epochs": epochs[-1], "seconds": 4.0, "provenance": provenance, "runs": runs}
    return {"unit": unit.id, "study": spec.to_dict(), **identity, **more}


def make(folder: Path, spec: StudySpec | None = None, only: str = "", **more: Any) -> Store:
    """A study of which the units that begin so are finished."""
    spec = spec or study()
    store = Store.create(folder, spec, precision="fp32")
    for unit in plan(spec):
        if unit.id.startswith(only):
            store.finish(measured(spec, unit, **more))
    return store


def content(store: Store) -> tuple[Any, ...]:
    """Everything that another process could see, in a form where NaN equals NaN."""
    return store.metrics().to_csv(), store.arms().to_csv(), store.marks(), store.provenance()


def test_numbers_come_back_to_the_last_bit(tmp_path: Path) -> None:
    make(tmp_path)
    metrics = Store.open(tmp_path).metrics()
    assert list(metrics.columns) == list(METRIC_COLUMNS)
    assert {name: str(kind) for name, kind in metrics.dtypes.items()} == METRIC_COLUMNS
    assert len(metrics) == 24
    first = metrics[(metrics["run"] == "ducb-b10-s0") & (metrics["epoch"] == 10)]
    np.testing.assert_array_equal(first[list(METRIC_COLUMNS)[8:14]].to_numpy()[0], HARD)
    assert first["lr"].isna().all()
    assert metrics.loc[metrics["run"] == "sgd-b10-lr0.3-decay1-mom0.5-s1", "lr"].unique() == [0.3]
    arms = Store.open(tmp_path).arms()
    assert arms[arms["run"] == "ducb-b20-s1"].to_numpy().tolist() == [
        ["ducb-b20-s1", epoch, arm, 3 + arm] for epoch in (1, 10) for arm in (0, 2)
    ]


def test_a_folder_is_of_one_study_and_one_precision(tmp_path: Path) -> None:
    Store.create(tmp_path, study(), precision="fp32")
    Store.create(tmp_path, study(name="another_name", batch_sizes=(10,), epochs=5), precision="fp32")
    sentence = r"holds the study .*: there network hidden is \[4\], not \[5\]; choose another folder"
    with pytest.raises(StudyError, match=sentence):
        Store.create(tmp_path, study(network=NetworkSpec(hidden=(5,))), precision="fp32")
    with pytest.raises(StudyError, match="holds results computed in fp32 with float32 weights, not in tf32"):
        Store.create(tmp_path, study(), precision="tf32")


def test_it_grows_and_what_is_finished_is_not_trained_again(tmp_path: Path) -> None:
    make(tmp_path, study(seeds=(0,)), only="sgd-b10")
    store = Store.create(tmp_path, study(), precision="fp32")
    left = {unit.id: [run.seed for run in unit.runs] for unit in store.left(study())}
    assert left == {"ducb-b10": [0, 1], "ducb-b20": [0, 1], "sgd-b10": [1, 1], "sgd-b20": [0, 0, 1, 1]}
    longer = study(epochs=20)
    store = Store.create(tmp_path, longer, precision="fp32")
    assert store.epochs == 20
    assert len(store.left(longer)) == 4
    assert [spec.epochs for spec in store.specs()] == [10, 10, 20]


def test_a_run_is_in_one_file_that_with_the_most_epochs(tmp_path: Path) -> None:
    first, whole = study(seeds=(0,)), study()
    store = make(tmp_path, first, only="sgd-b10")
    (unit,) = (unit for unit in plan(whole) if unit.id == "sgd-b10")
    store.finish(measured(whole, unit, value=7.0))  # with others beside them, the same runs are rounded differently
    metrics = store.metrics()
    kept = metrics[metrics["run"] == "sgd-b10-lr0.3-decay1-mom0.5-s0"]
    assert kept["train_nll"].unique() == [0.1 + 0.2]
    assert len(metrics) == 8
    store.finish(measured(study(epochs=20), unit, (1, 10, 20), value=7.0))
    assert set(store.metrics().query("run == 'sgd-b10-lr0.3-decay1-mom0.5-s0'")["train_nll"]) == {7.2}
    assert len(list((tmp_path / "units").iterdir())) == 1


def test_two_folders_are_put_together_by_copying(tmp_path: Path) -> None:
    expected = content(make(tmp_path / "whole"))
    make(tmp_path / "a", only="sgd")
    make(tmp_path / "b", study(families=(DucbFamily(count=3),)), only="ducb")
    for file in (tmp_path / "b" / "units").iterdir():
        shutil.copy(file, tmp_path / "a" / "units")
    together = Store.open(tmp_path / "a")
    assert content(together) == expected
    assert {unit.state for unit in together.summary().units} == {"done"}
    assert not together.left(study())


def test_files_that_disagree_are_named(tmp_path: Path) -> None:
    store, (unit, *_) = make(tmp_path), plan(study())
    (file,) = (tmp_path / "units").glob(f"{unit.id}-*")
    shutil.copy(file, tmp_path / "units" / "copy.hotswap")
    assert len(store.metrics()) == 24  # the same once more is no harm
    write_record(tmp_path / "units" / "copy.hotswap", measured(study(), unit, value=7.0))
    with pytest.raises(StudyError) as caught:
        store.metrics()
    said = str(caught.value)
    assert str(file) in said
    assert "copy.hotswap" in said
    assert "disagree on the run ducb-b10-s1: train_nll" in said
    write_record(tmp_path / "units" / "copy.hotswap", measured(study(data_seed=1), unit))
    with pytest.raises(StudyError, match=r"copy\.hotswap is of another study, or computed otherwise"):
        store.metrics()


def test_a_damaged_unit_is_trained_again_and_not_left_out_silently(tmp_path: Path) -> None:
    store = make(tmp_path)
    (file,) = (tmp_path / "units").glob("sgd-b20-*")
    file.write_bytes(file.read_bytes()[:-3])
    assert [unit.id for unit in store.left(study())] == ["sgd-b20"]
    assert f"{file} is damaged" in store.summary().damaged[0]
    with pytest.raises(StudyError, match="delete it to have it trained again"):
        store.check_whole()


def entry(store: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = next(iter(store["runs"].values()))
    return first


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no runs": lambda unit: unit["runs"].clear(),
    "no study": lambda unit: unit.pop("study"),
    "an epoch twice": lambda unit: entry(unit)["rows"].append(entry(unit)["rows"][-1]),
    "no last row": lambda unit: entry(unit)["rows"].pop(),
    "a negative time": lambda unit: entry(unit)["rows"][0].__setitem__(8, -1.0),
    "words for numbers": lambda unit: entry(unit)["rows"][0].__setitem__(1, "many"),
    "a short row": lambda unit: entry(unit)["rows"][0].pop(),
    "half a seed": lambda unit: entry(unit).update(seed=0.5),
    "a large seed": lambda unit: entry(unit).update(seed=2**64),
    "half an arm": lambda unit: entry(unit)["arms"].append([1, 0.5, 1]),
    "settings": lambda unit: entry(unit).update(settings=[1]),
    "epochs": lambda unit: unit.update(epochs="ten"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_unit_that_cannot_be_is_damaged_though_its_digests_match(tmp_path: Path, lie: str) -> None:
    store, (unit, *_) = make(tmp_path), plan(study())
    (file,) = (tmp_path / "units").glob(f"{unit.id}-*")
    told = measured(study(), unit)
    LIES[lie](told)
    write_record(file, told)
    assert [left.id for left in store.left(study())] == [unit.id]
    assert f"{file} is damaged" in store.summary().damaged[0]


def test_a_folder_damaged_at_any_place_says_so_or_changes_nothing(tmp_path: Path) -> None:
    make(tmp_path)

    def read() -> object:
        store = Store.open(tmp_path)
        store.check_whole()
        return content(store)

    check_damage([tmp_path / "about.hotswap", *sorted((tmp_path / "units").iterdir())], read)


def test_a_study_of_millions_of_runs_is_refused_at_once(tmp_path: Path) -> None:
    store = make(tmp_path)
    about = {**store.units.about, "specs": [{**study().to_dict(), "seeds": list(range(3_000_000))}]}
    write_record(tmp_path / "about.hotswap", about)
    with pytest.raises(
        StudyError, match=r"its study has 18,000,000 runs, and may have 1,000,000\); divide it by seeds"
    ):
        Store.open(tmp_path).specs()


def test_summary(tmp_path: Path) -> None:
    store = make(tmp_path, only="sgd-b10")
    with store.holding(next(unit for unit in plan(study()) if unit.id == "ducb-b20")):
        summary = store.summary()
    assert (summary.name, summary.precision) == ("small", "fp32")
    assert {unit.id: unit.state for unit in summary.units} == {
        "ducb-b10": "left", "ducb-b20": "running", "sgd-b10": "done", "sgd-b20": "left"
    }  # fmt: skip
    done = next(unit for unit in summary.units if unit.state == "done")
    assert (done.runs, done.epochs_done, done.epochs, done.seconds, done.diverged) == (4, 10, 10, 4.0, 1)
    assert summary.seconds == 4.0
    assert summary.seconds_left == pytest.approx(4.0 * (2 + 2 + 4) / 4)


def test_a_study_that_names_what_is_not_registered_says_what_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    monkeypatch.setattr("hotswap.studies.algorithms.base.ALGORITHMS._known", {})
    with pytest.raises(StudyError, match=r"cannot be read \(.*load the file that registers it: `hotswap --load FILE`"):
        Store.open(tmp_path).specs()
    assert len(Store.open(tmp_path).summary().units) == 4

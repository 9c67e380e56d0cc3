"""Whatever can be read is read; what cannot be becomes a sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hotswap.data import load_digits
from hotswap.errors import StudyError
from hotswap.report.origin import origin_of
from hotswap.report.results import load_results
from hotswap.report.summaries import chosen, trials_per_step
from hotswap.report.write import write_report
from hotswap.store import read_record, write_record
from hotswap.store.shipped import shipped
from hotswap.studies.export import export
from hotswap.studies.folder import Store
from hotswap.studies.rows import METRIC_COLUMNS
from hotswap.studies.run import run_study
from hotswap.studies.training import RunOptions
from tests.report.made_up import results, row
from tests.studies.test_training import TOY, Quiet


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study, small."""
    folder = tmp_path_factory.mktemp("report") / "study"
    run_study(Store.create(folder, TOY, precision="fp32"), TOY, load_digits(), RunOptions(), Quiet())
    return folder


def test_folder_bundle_and_table_hold_the_same(study: Path, tmp_path: Path) -> None:
    store = Store.open(study)
    export(store, tmp_path / "bundle")
    export(store, tmp_path / "table.parquet")
    export(store, tmp_path / "again.csv")
    first = load_results(study)
    for place in ("bundle", "table.parquet", "again.csv"):
        other = load_results(tmp_path / place)
        assert other.metrics.equals(first.metrics)
        assert other.arms.equals(first.arms)
        assert other.rates == first.rates
        assert other.name == first.name == TOY.name
        assert origin_of(other) == origin_of(first)
    assert len(first.missing) == 2  # timings and single runs
    assert all("hotswap study timing" in sentence for sentence in first.missing)


def test_the_bandits_choices_add_up(study: Path) -> None:
    results = load_results(study)
    for size, shares in chosen(results).items():
        assert shares.shape[1] == len(results.rates)
        assert (shares.sum(axis=1) <= 1 + 1e-9).all()
        assert (shares.sum(axis=1) > 0.5).all()
        assert (trials_per_step(results.metrics, "ducb")[size] >= 1).all()


def test_an_unfinished_study_says_what_is_missing(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "s", TOY, precision="fp32")
    with pytest.raises(KeyboardInterrupt):
        run_study(store, TOY, load_digits(), RunOptions(), Quiet(stop_at=3))
    results = load_results(tmp_path / "s")
    assert results.missing[0].startswith(f"0 of {len(TOY.runs())} runs have reached epoch 6")


def test_no_study_at_all(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="There is no study at"):
        load_results(tmp_path / "nowhere")
    with pytest.raises(StudyError, match="is not a study: it has neither"):
        load_results(tmp_path)


@pytest.mark.parametrize(
    ("name", "harm", "says"),
    [
        ("metrics.parquet", b"no table", "metrics.parquet cannot be read"),
        ("arms.parquet", b"", "arms.parquet cannot be read"),
        ("arms.parquet", None, "arms.parquet is not there"),
        ("provenance.json", b"{", "provenance.json cannot be read"),
        ("provenance.json", None, "provenance.json is not there"),
        ("provenance.json", b"[]", "provenance.json is no provenance"),
        ("provenance.json", b'{"specs": [{}], "units": 3}', "does not say which study this is"),
    ],
)
def test_what_is_damaged_is_named_and_the_rest_is_read(
    name: str, harm: bytes | None, says: str, tmp_path: Path
) -> None:
    folder = tmp_path / "paper"
    shutil.copytree(shipped(), folder)
    if harm is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(harm)
    results = load_results(folder)
    assert any(says in sentence for sentence in results.missing)
    assert results.metrics.empty == (name == "metrics.parquet")
    assert origin_of(results).sentence()


def test_a_table_that_was_changed_is_shown_with_a_warning(tmp_path: Path) -> None:
    folder = tmp_path / "paper"
    shutil.copytree(shipped(), folder)
    document = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    document["sha256"]["metrics"] = "0" * 64
    (folder / "provenance.json").write_text(json.dumps(document), encoding="utf-8")
    results = load_results(folder)
    assert "metrics.parquet is not as it was" in results.missing[0]
    assert len(results.metrics)


def test_a_damaged_folder(study: Path, tmp_path: Path) -> None:
    (tmp_path / "about.hotswap").write_bytes((study / "about.hotswap").read_bytes()[:300])
    results = load_results(tmp_path)
    assert results.metrics.empty
    assert results.missing


def changed(folder: Path, old: str, new: str) -> None:
    """Change words in every file of a study's folder, whose digests are right then."""
    for file in (folder / "about.hotswap", *(folder / "units").iterdir()):
        write_record(file, json.loads(json.dumps(read_record(file)).replace(old, new)))


def with_strangers(folder: Path) -> Path:
    """The shipped results as if AdaDelta were called `mine`, which nobody has registered, with columns of its own."""
    shutil.copytree(shipped(), folder)
    metrics = pd.read_parquet(folder / "metrics.parquet")
    metrics = metrics[(metrics["algorithm"] != "sgd") | (metrics["lr"] == 1.0) & (metrics["momentum"] == 0.0)]
    metrics["run"] = metrics["run"].str.replace("adadelta", "mine")
    metrics["algorithm"] = metrics["algorithm"].replace("adadelta", "mine")
    metrics["width"] = np.where(metrics["algorithm"] == "mine", 3.0, np.nan)
    metrics["lanes"] = metrics["epoch"]
    metrics["remark"] = "words are not read"
    metrics.to_parquet(folder / "metrics.parquet")
    text = (folder / "provenance.json").read_text(encoding="utf-8").replace("adadelta", "mine")
    document = json.loads(text) | {"sha256": {}}
    (folder / "provenance.json").write_text(json.dumps(document), encoding="utf-8")
    return folder


@pytest.mark.usefixtures("undrawn")
def test_an_algorithm_that_is_not_registered_is_shown_under_its_name(tmp_path: Path) -> None:
    found = load_results(with_strangers(tmp_path / "paper"))
    about = [sentence for sentence in found.missing if "mine" in sentence]
    assert len(about) == 1
    assert about[0].startswith("The algorithm 'mine' is not known here")
    assert "hotswap --load FILE" in about[0]
    assert found.looks.label_of("mine") == "mine"
    assert {family.algorithm for spec in found.specs for family in spec.families} == {"sgd", "ducb"}
    assert found.rates == load_results().rates
    assert found.unfinished == "60 of 1,095 runs have reached epoch 500"
    written = write_report(found, tmp_path / "report")
    assert {"figure-1.png", "choices.png", "tuning.png", "index.html"} <= {path.name for path in written}


def test_further_columns_of_numbers_are_read(tmp_path: Path) -> None:
    found = load_results(with_strangers(tmp_path / "paper"))
    assert list(found.metrics.columns) == [*METRIC_COLUMNS, "width", "lanes"]
    assert found.metrics["lanes"].dtype == "float64"
    assert found.setting_columns[-1] == "width"  # the same at all epochs, which lanes are not
    mine = found.metrics[found.metrics["algorithm"] == "mine"].iloc[0]
    assert found.label(mine) == f"mine, batch {mine['batch_size']}, width 3"
    found.metrics.to_csv(tmp_path / "table.csv", index=False)
    again = load_results(tmp_path / "table.csv")
    pd.testing.assert_frame_equal(again.metrics, found.metrics)


@pytest.mark.usefixtures("coarse")
def test_a_folder_of_which_one_algorithm_is_not_registered(study: Path, tmp_path: Path) -> None:
    shutil.copytree(study, tmp_path / "study")
    changed(tmp_path / "study", '"adadelta"', '"mine"')
    found = load_results(tmp_path / "study")
    assert "mine" in set(found.metrics["algorithm"])
    assert any("The algorithm 'mine' is not known here" in sentence for sentence in found.missing)
    assert found.rates
    write_report(found, tmp_path / "report")


def test_runs_of_another_precision_take_the_place_of_ours() -> None:
    ours = results([row("sgd", seed=0, test_error=0.03), row("ducb", seed=0, test_error=0.02), row("ducb", seed=1)])
    theirs = results([row("ducb", seed=0, test_error=0.01)], name="fp32")
    mixed = ours.with_runs_of(theirs)
    assert mixed.metrics.set_index("run")["test_error"].to_dict() == {
        "sgd-b64--s0": 0.03, "ducb-b64--s0": 0.01, "ducb-b64--s1": 0.02,
    }  # fmt: skip
    assert mixed.name == ours.name
    with pytest.raises(StudyError, match="have runs that these have not, adadelta-b64--s0 among them"):
        ours.with_runs_of(results([row("adadelta")]))
    with pytest.raises(StudyError, match="end at epoch 200, these at 500"):
        ours.with_runs_of(results([row("ducb", epoch=200)]))


@pytest.mark.usefixtures("coarse")
def test_a_folder_whose_network_is_not_registered(study: Path, tmp_path: Path) -> None:
    """Measurements do not need the network: they are shown, and a sentence says what to load."""
    shutil.copytree(study, tmp_path / "study")
    changed(tmp_path / "study", '"network": {', '"network": {"name": "mine", ')
    found = load_results(tmp_path / "study")
    pd.testing.assert_frame_equal(found.metrics, load_results(study).metrics)
    assert any("there is no network 'mine'" in said and "hotswap --load FILE" in said for said in found.missing)
    write_report(found, tmp_path / "report")

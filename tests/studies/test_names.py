"""Names in a study's folder, its exports and its file that lead elsewhere are refused by every command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hotswap.errors import UnsafeNameError
from hotswap.names import check_name, is_name
from hotswap.report import load_results, write, write_report
from hotswap.store import read_record, write_record
from hotswap.store.tables import digest
from hotswap.studies.export import export
from hotswap.studies.folder import Store
from tests.foreign import STRANGE, refused, strange, tree
from tests.studies.test_export import with_timings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A study's folder with timings."""
    with_timings(tmp_path / "home" / "study")
    return tmp_path / "home" / "study"


@pytest.fixture
def tables(folder: Path) -> Path:
    """Its export."""
    export(Store.open(folder), folder.parent / "tables")
    return folder.parent / "tables"


def cell(table: str, column: str) -> Callable[[Path, str], None]:
    """Put a name into the last row of a table."""

    def change(tables: Path, name: str) -> None:
        frame = pd.read_parquet(tables / f"{table}.parquet")
        frame[column] = [*frame[column][:-1], name]
        frame.to_parquet(tables / f"{table}.parquet")

    return change


def content(change: Callable[[dict[str, Any], str], Any]) -> Callable[[Path, str], None]:
    """Put a name into the provenance."""

    def apply(tables: Path, name: str) -> None:
        document = json.loads((tables / "provenance.json").read_text(encoding="utf-8"))
        change(document, name)
        (tables / "provenance.json").write_text(json.dumps(document), encoding="utf-8")

    return apply


def in_specs(change: Callable[[dict[str, Any], str], Any]) -> Callable[[Path, str], None]:
    return content(lambda d, name: [change(spec, name) for spec in (d["study"], *d["specs"])])


def finishes(document: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = document["units"]["ducb-b10"][0]
    return first


EXPORTED: dict[str, tuple[Callable[[Path, str], None], str]] = {
    "run of a row": (cell("metrics", "run"), r"metrics\.parquet, row 24: the run"),
    "algorithm of a row": (cell("metrics", "algorithm"), r"metrics\.parquet, row 24: the algorithm"),
    "run of arms": (cell("arms", "run"), r"arms\.parquet, row 16: the run"),
    "algorithm of timings": (cell("timing", "algorithm"), r"timing\.parquet, row 1: the algorithm"),
    "run of curves": (cell("curves", "run"), r"curves\.parquet, row 2: the run"),
    "study": (in_specs(lambda spec, name: spec.update(name=name)), "name of the study: the study"),
    "data set": (in_specs(lambda spec, name: spec.update(dataset=name)), "dataset of the study: the data set"),
    "network": (in_specs(lambda s, name: s["network"].update(name=name)), "network of the study: the network"),
    "family": (in_specs(lambda s, n: s["families"][0].update(name=n)), "row 1 in families of the study: the family"),
    "algorithm": (
        in_specs(lambda s, n: s["families"][1].update(algorithm=n)),
        "row 2 in families of the study: the algorithm",
    ),
    "unit": (content(lambda d, n: d["units"].update({n: []})), r"json, row \d in units: the unit"),
    "run": (content(lambda d, n: d["runs"].update({n: d["runs"]["ducb-b10-s0"]})), r"json, row 13 in runs: the run"),
    "run of a unit": (content(lambda d, n: finishes(d)["runs"].append(n)), r"json, row 1 in units: the run"),
    "single run": (content(lambda d, n: d["singles"].update({n: []})), r"json, row 2 in singles: the unit"),
    "precision": (content(lambda d, n: d.update(precision=n)), r"provenance\.json: the precision"),
}


def pairs(places: Iterable[str]) -> list[tuple[str, str]]:
    """Every place with some name, and every name in some place."""
    known, names = list(places), list(STRANGE.values())
    return [(known[i % len(known)], names[i % len(names)]) for i in range(max(len(known), len(names)))]


@pytest.mark.parametrize(("place", "name"), pairs(EXPORTED))
def test_exports_with_such_a_name_are_refused(place: str, name: str, tables: Path, tmp_path: Path) -> None:
    change, said = EXPORTED[place]
    change(tables, name)
    document = json.loads((tables / "provenance.json").read_text(encoding="utf-8"))
    document["sha256"] = {table: digest(tables / f"{table}.parquet") for table in document["sha256"]}
    (tables / "provenance.json").write_text(json.dumps(document), encoding="utf-8")
    home = tables.parent
    for words in (
        ("report", tables, "--out", home / "rep"),
        ("study", "tuning", tables),
    ):
        told = refused(*words, home=tmp_path)
        assert re.search(rf"{said} is called .+, but a name has letters \(a-z, A-Z\), digits, ", told)


def first(unit: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(unit["runs"].values()))
    return found


STORED: dict[str, tuple[Callable[[dict[str, Any], str], object], str]] = {
    "unit": (lambda unit, name: unit.update(unit=name), "the unit"),
    "run": (lambda unit, name: unit["runs"].update({name: first(unit)}), "the run"),
    "algorithm": (lambda unit, name: first(unit).update(algorithm=name), "the algorithm"),
    "setting": (lambda unit, name: first(unit)["settings"].update({name: 1.0}), "the setting"),
    "measure": (lambda unit, name: first(unit)["rows"][-1][-1].update({name: 1.0}), "the measure"),
    "study": (lambda unit, name: unit["study"].update(name=name), "name of the study: the study"),
    "planned unit": (lambda about, name: about["units"].update({name: about["units"]["sgd-b20"]}), "the unit"),
    "planned run": (lambda about, name: about["units"]["sgd-b20"]["runs"].append(name), "the run"),
    "data set": (lambda about, name: about["specs"][-1].update(dataset=name), "dataset of the study: the data set"),
}

TOML = """
name = "small"
dataset = "digits"
train_images = 100
batch_sizes = [10, 20]
seeds = [0, 1]
epochs = 10
[network]
hidden = [4]
[sgd]
lr = [0.1, 0.3]
lr_decay = [1.0]
momentum = [0.5]
[ducb]
count = 3
"""


@pytest.mark.parametrize(("place", "name"), pairs(STORED))
def test_a_folder_with_such_a_name_is_refused(place: str, name: str, folder: Path, tmp_path: Path) -> None:
    change, said = STORED[place]
    (file,) = folder.glob("units/sgd-b20-*") if place in list(STORED)[:6] else [folder / "about.hotswap"]
    stored = read_record(file)
    change(stored, name)
    write_record(file, stored)
    home = folder.parent
    (tmp_path / "study.toml").write_text(TOML, encoding="utf-8")
    for words in (
        ("study", "status", folder),
        ("study", "export", folder, home / "table.csv"),
        ("study", "run", tmp_path / "study.toml", "--out", folder),
        ("report", folder, "--out", home / "rep"),
    ):
        told = refused(*words, home=tmp_path)
        assert f"{said} is called " in told
        assert str(folder) in told


@strange
def test_timings_with_such_a_name_are_not_exported(name: str, folder: Path, tmp_path: Path) -> None:
    cell("curves", "run")(folder, name)
    told = refused("study", "export", folder, folder.parent / "out", home=tmp_path)
    assert f"{folder}/curves.parquet, row 2: the run is called " in told


@pytest.mark.parametrize(
    "line",
    [
        "name = NAME",
        'name = "a"\ndataset = NAME',
        'name = "a"\n[NAME]\nalgorithm = "sgd"',
        "[ducb]\n[network]\nname = NAME",
        'name = "a"\n[sgd]\nalgorithm = NAME',
        "NAME = 1",
        'name = "a"\n[NAME]',
    ],
)
@strange
def test_a_file_with_such_a_name_is_refused(line: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(line.replace("NAME", json.dumps(name)) + "\n", encoding="utf-8")
    told = refused("study", "run", file, "--out", tmp_path / "out", home=tmp_path)
    assert told.startswith(f"{file}: ")


def test_numbers_in_names_of_runs_may_be_large(tmp_path: Path) -> None:
    check_name("sgd-b10-lr1e+20-decay1-mom0-s0", "run", "a table")
    with pytest.raises(UnsafeNameError, match=r"the unit is called 'sgd\+b10', but a name has letters"):
        check_name("sgd+b10", "unit", "a table")
    with pytest.raises(UnsafeNameError, match="at most 255 of them"):
        check_name("a" * 256, "run", "a table")


def test_what_is_a_name() -> None:
    assert all(map(is_name, ("a", "A.b-c_1", "...", "-", "0", "a" * 100)))
    assert not any(map(is_name, (*STRANGE.values(), "a" * 101, "a\n", None, 1, b"a", ["a"])))


def test_a_column_of_a_table_is_a_name_too(tables: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(tables / "metrics.parquet")
    frame.assign(**{"<img>": 1.0}).to_parquet(tables / "metrics.parquet")
    assert "metrics.parquet: the column is called '<img>'" in refused(
        "report", tables, "--out", tmp_path / "rep", home=tmp_path
    )


def test_words_of_a_provenance_stay_text(tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "</script> | `a` [a](http://b)\n# c <img src=x onerror=alert(1)>"
    content(
        lambda d, _: [finish.update(device=evil, torch=evil, seconds=1.0) for f in d["units"].values() for finish in f]
    )(tables, "")
    monkeypatch.setattr(write, "save", lambda _, path: path.write_bytes(b""))
    results = load_results(tables)
    write_report(results, tmp_path / "rep")
    assert "claims.md" in tree(tmp_path / "rep")
    for path in (tmp_path / "rep").glob("*.md"):
        text = path.read_text(encoding="utf-8")
        assert "<" not in text
        assert not re.search(r"^# c", text, re.MULTILINE)
        assert "[a](" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in (tmp_path / "rep" / "claims.md").read_text(encoding="utf-8")
    assert "<img" not in (tmp_path / "rep" / "index.html").read_text(encoding="utf-8")

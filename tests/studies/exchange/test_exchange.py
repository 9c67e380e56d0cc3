"""Tables travel between machines without losing a digit, and what contradicts stays out."""

from __future__ import annotations

import json
import math
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hotswap.cli import app
from hotswap.errors import StudyError
from hotswap.studies import DucbFamily, NetworkSpec, StudySpec, Unit, plan
from hotswap.studies.exchange import exported
from hotswap.studies.exchange import merge as exchange
from hotswap.studies.exchange.exported import StudyOrigin, origin, read_exports
from hotswap.studies.exchange.merge import export, import_files, import_into
from hotswap.studies.exchange.single_runs import digest, keep_singles
from hotswap.studies.storage.store import Store
from tests.studies.storage.test_store import row, study, units

ENDINGS = [".parquet", ".csv"]


def fill(store: Store, unit: Unit, epochs: tuple[int, ...] = (1, 10)) -> None:
    """Finish a unit with numbers that are hard to keep."""
    for epoch in epochs:
        rows = [row(run.id, epoch, train_nll=(0.1 + 0.2) / (1 + i)) for i, run in enumerate(unit.runs)]
        rows[0] = row(unit.runs[0].id, epoch, train_nll=math.nan, test_nll=math.inf, mean_lr=-math.inf, trials=1e-310)
        arms = [(run.id, epoch, arm, 3 + arm) for run in unit.runs for arm in (0, 2) if unit.algorithm == "ducb"]
        store.record(unit, epoch, rows, arms)
    store.finish(unit, epochs[-1], {"device": "cpu", "versions": {"torch": "2.11"}, "date": "2025-01-01"})


def make(folder: Path, spec: StudySpec | None = None, *, only: str = "", precision: str = "fp32") -> Store:
    spec = spec or study()
    store = Store.create(folder, spec, precision=precision)
    for unit in plan(spec):
        if unit.id.startswith(only):
            fill(store, unit)
    store.diverged(f"{only or 'sgd-b10'}-lr0.1-decay1-mom0.5-s0" if not only.startswith("ducb") else "ducb-b10-s0", 3)
    return store


def content(store: Store) -> tuple[Any, ...]:
    """Everything that another process could see, in a form where NaN equals NaN."""
    tables = (store.metrics().to_csv(), store.arms().to_csv())
    return *tables, store.marks(), store.provenance(), store.epochs, [spec.to_dict() for spec in store.specs()]


@pytest.mark.parametrize("ending", ENDINGS)
def test_there_and_back(tmp_path: Path, ending: str) -> None:
    with make(tmp_path / "a") as store:
        paths = export(store, tmp_path / "out" / f"metrics{ending}")
        before = content(store)
    names = [f"metrics{ending}", f"metrics.arms{ending}", "metrics.provenance.json"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)
    with Store.create(tmp_path / "b", study(), precision="fp32") as copy:
        assert import_files(copy, [paths[0]]) == 24
        assert content(copy) == before
        pd.testing.assert_frame_equal(copy.metrics(), Store.open(tmp_path / "a").metrics(), check_exact=True)
        assert {unit.state for unit in copy.summary().units} == {"done"}
        assert import_files(copy, [paths[0], paths[0]]) == 0  # once more is no harm
        assert content(copy) == before


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    frames = []
    with make(tmp_path / "a") as store:
        for ending in ENDINGS:
            file = export(store, tmp_path / ending / f"x{ending}")[0]
            with Store.create(tmp_path / f"b{ending}", study(), precision="fp32") as copy:
                import_files(copy, [file])
                frames.append(copy.metrics())
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    assert frames[0]["trials"].min() == 1e-310
    names = pq.read_table(tmp_path / ".parquet" / "x.parquet").column_names
    assert pd.read_csv(tmp_path / ".csv" / "x.csv").columns.tolist() == names


def test_two_formats_do_not_share_a_provenance(tmp_path: Path) -> None:
    with make(tmp_path / "a") as store:
        export(store, tmp_path / "x.parquet")
        before = (tmp_path / "x.provenance.json").read_bytes()
        with pytest.raises(
            StudyError, match=r"x\.parquet is there already, and x\.provenance\.json would belong to one"
        ):
            export(store, tmp_path / "x.csv")
        assert (tmp_path / "x.provenance.json").read_bytes() == before
        export(store, tmp_path / "x.parquet")  # again is fine


def test_an_empty_study_travels_too(tmp_path: Path) -> None:
    for ending in ENDINGS:
        with Store.create(tmp_path / "a", study(), precision="fp32") as store:
            assert import_files(store, [export(store, tmp_path / f"x{ending[1:]}{ending}")[0]]) == 0


def test_two_halves_are_the_whole(tmp_path: Path) -> None:
    with make(tmp_path / "whole") as store:
        expected = content(store)
    halves = [study().select(algorithms=["sgd"]), study().select(algorithms=["ducb"])]
    files = []
    for i, half in enumerate(halves):
        with Store.create(tmp_path / str(i), half, precision="fp32") as store:
            for unit in plan(half):
                fill(store, unit)
            if i == 0:
                store.diverged("sgd-b10-lr0.1-decay1-mom0.5-s0", 3)
            files.append(export(store, tmp_path / f"half{i}.{('parquet', 'csv')[i]}")[0])
    with Store.create(tmp_path / "both", study(), precision="fp32") as store:
        import_files(store, files)
        assert content(store)[:-1] == expected[:-1]
        assert store.study == study()
    with Store.open(tmp_path / "0") as store:  # or one half into the other
        import_files(store, files)
        assert content(store)[:-1] == expected[:-1]
        assert store.study == halves[0]
        again = export(store, tmp_path / "again.csv")[0]
    with Store.create(tmp_path / "third", study().select(seeds=1), precision="fp32") as store:
        import_files(store, [again])
        assert content(store)[:-1] == expected[:-1]


def test_a_part_of_a_table(tmp_path: Path) -> None:
    with make(tmp_path / "whole") as store:
        file = export(store, tmp_path / "whole.parquet")[0]
        expected = content(store)
    folder = tmp_path / "parts"
    assert CliRunner().invoke(app, ["study", "import", str(folder), str(file), "--algorithm", "ducb"]).exit_code == 0
    with Store.open(folder) as store:
        assert {unit.id.split("-")[0] for unit in store.summary().units} == {"ducb"}  # nothing else was asked for
        assert set(store.metrics()["algorithm"]) == {"ducb"}
        assert {unit.split("-")[0] for unit in store.provenance()} == {"ducb"}
        assert {run.split("-")[0] for run in store.marks()} == {"ducb"}
        import_into(folder, read_exports([file], ["sgd"], [10]))
        assert {exported._unit_of(run) for run in store.metrics()["run"]} == {"ducb-b10", "ducb-b20", "sgd-b10"}
        import_files(store, [file])
        assert content(store)[:-1] == expected[:-1]
        before = content(store)
        for asked, sentence in (
            ({"algorithms": ["adadelta"]}, "No file has the algorithm adadelta, but ducb, sgd; nothing was imported"),
            ({"batch_sizes": [10, 99]}, "No file has the batch size 99, but 10, 20; nothing was imported"),
        ):
            with pytest.raises(StudyError, match=sentence):
                import_into(folder, read_exports([file], **asked))
        assert content(store) == before


def test_a_part_of_several_tables(tmp_path: Path) -> None:
    """One of them may have nothing of it."""
    files = []
    for name, size in (("sgd", 10), ("ducb", 20)):
        part = study().select(algorithms=[name], batch_sizes=[size])
        with Store.create(tmp_path / name, part, precision="fp32") as store:
            fill(store, plan(part)[0])
            files.append(export(store, tmp_path / f"{name}.csv")[0])
    assert import_into(tmp_path / "new", read_exports(files, ["ducb"])) == 4
    with Store.open(tmp_path / "new") as store:
        assert set(store.metrics()["algorithm"]) == {"ducb"}
    with pytest.raises(StudyError, match="No file has these algorithms with these batch sizes"):
        import_into(tmp_path / "other", read_exports(files, ["ducb"], [10]))
    assert not (tmp_path / "other").exists()


def test_without_extents_the_study_itself_says_what_there_is(tmp_path: Path) -> None:
    """Nobody writes such a file, but who edits one may."""
    with make(tmp_path / "a") as store:
        file = export(store, tmp_path / "x.csv")[0]
        expected = content(store)
    document(lambda d: d.update(specs=[]))(file)
    assert import_into(tmp_path / "new", read_exports([file])) == 24
    with Store.open(tmp_path / "new") as store:
        assert content(store) == expected


def test_an_import_that_is_refused_founds_no_study(tmp_path: Path) -> None:
    files = []
    for value in (1.0, 2.0):
        with Store.create(tmp_path / str(value), study(), precision="fp32") as store:
            unit = plan(study())[0]
            store.record(unit, 1, [row(run.id, 1, train_nll=value) for run in unit.runs], [])
            files.append(export(store, tmp_path / f"{value}.csv")[0])
    with pytest.raises(StudyError, match="nothing was imported"):
        import_into(tmp_path / "new", read_exports(files))
    assert not (tmp_path / "new").exists()


def timed(folder: Path, numbers: float = 1.0) -> Store:
    """A study with timings."""
    store = make(folder)
    for name in ("timing", "curves"):
        pd.DataFrame({"seconds": [numbers]}).to_parquet(folder / f"{name}.parquet")
    keep_singles(folder, folder / "curves.parquet", {"ducb-b10": [{"device": f"number {numbers}"}]})
    return store


def singles_in(folder: Path) -> Any:
    return json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["singles"]


def test_timings_come_along_with_a_folder(tmp_path: Path) -> None:
    with timed(tmp_path / "a") as store:
        export(store, tmp_path / "first")
    with Store.create(tmp_path / "b", study(), precision="fp32") as copy:
        import_into(copy.folder, read_exports([tmp_path / "first"], ["ducb"]))
        import_files(copy, [tmp_path / "first"])
        export(copy, tmp_path / "second")
        for name in ("timing.parquet", "curves.parquet", "metrics.parquet"):
            assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
        assert singles_in(tmp_path / "second") == {"ducb-b10": [{"device": "number 1.0"}]}
        (copy.folder / "singles").mkdir()  # timing was begun here too, but has no curves yet
        export(copy, tmp_path / "second")
        assert singles_in(tmp_path / "second") == {"ducb-b10": [{"device": "number 1.0"}]}


def test_other_timings_are_refused_and_nothing_is_changed(tmp_path: Path) -> None:
    with timed(tmp_path / "a") as store:
        export(store, tmp_path / "first")
    with timed(tmp_path / "b", 2.0) as store:
        export(store, tmp_path / "second")
        before = content(store)
        with pytest.raises(
            StudyError, match=r"first/(timing|curves)\.parquet is another table than .+b/(timing|curves)"
        ):
            import_files(store, [tmp_path / "first"])
        assert content(store) == before
    with pytest.raises(StudyError, match=r"second/(timing|curves)\.parquet is another table than .+first/"):
        import_into(tmp_path / "c", read_exports([tmp_path / "first", tmp_path / "second"]))
    assert not (tmp_path / "c").exists()
    with make(tmp_path / "d") as store:
        with pytest.raises(StudyError, match=r"first has curves, timing of single runs, which .+d has not"):
            export(store, tmp_path / "first")
        other = study(data_seed=3)
    with Store.create(tmp_path / "e", other, precision="fp32") as store:
        with pytest.raises(StudyError, match="holds the study 'small'"):  # and nothing about timings
            import_files(store, [tmp_path / "first"])
        assert not (store.folder / "curves.parquet").exists()


def test_timings_that_cannot_be_written_leave_nothing(tmp_path: Path) -> None:
    with timed(tmp_path / "a") as store:
        export(store, tmp_path / "first")
    with Store.create(tmp_path / "b", study(), precision="fp32") as store:
        (store.folder / "curves.parquet").mkdir()
        with pytest.raises(StudyError, match=r"Timings cannot be written to .+; nothing was imported\."):
            import_files(store, [tmp_path / "first"])
        assert store.metrics().empty
        assert not (store.folder / "timing.parquet").exists()
        assert not (store.folder / "singles.json").exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"curves": "SUM"}', '{"curves": "SUM", "units": 5}'])
def test_damaged_notes_on_single_runs(tmp_path: Path, damage: str) -> None:
    with timed(tmp_path / "a") as store:
        plain = export(store, tmp_path / "x.csv")[0]
        path = store.folder / "singles.json"
        path.write_text(damage.replace("SUM", digest(store.folder / "curves.parquet")))
        with pytest.raises(StudyError, match=r"singles\.json is damaged; delete it, or let `hotswap study timing"):
            export(store, tmp_path / "first")
        assert import_files(store, [plain]) == 0
        path.unlink()
        export(store, tmp_path / "first")
        assert singles_in(tmp_path / "first") == {}


def test_curves_of_others_are_not_explained_by_our_notes(tmp_path: Path) -> None:
    with timed(tmp_path / "a") as store:
        pd.DataFrame({"seconds": [7.0]}).to_parquet(store.folder / "curves.parquet")
        export(store, tmp_path / "first")
    assert singles_in(tmp_path / "first") == {}


def test_a_longer_table_extends_a_study(tmp_path: Path) -> None:
    longer = study(epochs=20)
    with Store.create(tmp_path / "a", longer, precision="fp32") as store:
        fill(store, units(longer)["ducb-b10"], (1, 10, 20))
        file = export(store, tmp_path / "x.parquet")[0]
    with make(tmp_path / "b", only="ducb-b10") as store:
        assert import_files(store, [file]) == 2
        assert (store.epochs, store.finished(units(longer)["ducb-b10"])) == (20, 20)


def test_seconds_may_differ_and_stay(tmp_path: Path) -> None:
    with make(tmp_path / "a") as store:
        file = export(store, tmp_path / "x.csv")[0]
        with store.transaction() as sql:
            sql.execute("UPDATE metrics SET seconds = 77")
        before = content(store)
        assert import_files(store, [file]) == 0
        assert content(store) == before


def test_the_origin_is_enough_for_a_new_folder(tmp_path: Path) -> None:
    with make(tmp_path / "a", precision="tf32") as store:
        file = export(store, tmp_path / "x.csv")[0]
    assert origin(file) == StudyOrigin(study(), "tf32", "float32")


def test_other_endings(tmp_path: Path) -> None:
    with make(tmp_path / "a") as store:
        for act in (lambda: export(store, tmp_path / "x.xlsx"), lambda: import_files(store, [tmp_path / "x.xlsx"])):
            with pytest.raises(StudyError, match=r"x.xlsx ends in neither \.parquet nor \.csv; choose one of them"):
                act()
        assert not list(tmp_path.glob("x*"))


def test_a_failed_export_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with make(tmp_path / "a", only="ducb") as store:
        file = export(store, tmp_path / "out" / "x.csv")[0]
        before = {path.name: path.read_bytes() for path in file.parent.iterdir()}
        fill(store, units(study())["sgd-b10"])
        with monkeypatch.context() as patch:
            patch.setattr(exchange, "write_table", full)
            with pytest.raises(
                StudyError, match=r"x.csv cannot be written \(No space left on device\); the study itself"
            ):
                export(store, file)
        assert {path.name: path.read_bytes() for path in file.parent.iterdir()} == before
        with monkeypatch.context() as patch:  # between the tables and the provenance
            patch.setattr(exchange, "write_text", full)
            with pytest.raises(StudyError, match="cannot be written"):
                export(store, file)
        with pytest.raises(StudyError, match=r"x.csv is not as it was when x.provenance.json was written; export it"):
            import_files(store, [file])


# Refusals. Each changes an export, sound otherwise, of a unit that the study has not yet.


def signed(file: Path) -> None:
    """Make the checksums fit again, so that what was changed is itself found."""
    path = file.with_name("x.provenance.json")
    document = json.loads(path.read_text())
    arms = file.with_name(f"x.arms{file.suffix}")
    document["sha256"] = {"metrics": digest(file), "arms": digest(arms)}
    path.write_text(json.dumps(document))


def table(change: Callable[[pd.DataFrame], Any], name: str = "x.csv") -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        path = file.with_name(name)
        frame = pd.read_csv(path)
        changed = change(frame)
        (frame if changed is None else changed).to_csv(path, index=False)
        signed(file)

    return apply


def document(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        path = file.with_name("x.provenance.json")
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return apply


def cell(run: str, column: str, value: object) -> Callable[[pd.DataFrame], None]:
    def change(frame: pd.DataFrame) -> None:
        frame.loc[frame["run"] == run, column] = value

    return change


def overwrite(name: str, content: bytes) -> Callable[[Path], None]:
    def apply(file: Path) -> None:
        file.with_name(name).write_bytes(content)
        if file.with_name("x.provenance.json").read_bytes() != content:
            signed(file)

    return apply


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no metrics": (
        lambda file: file.unlink(),
        r"x\.csv is missing; the files of an export belong together, keep them so\.",
    ),
    "no arms": (
        lambda file: file.with_name("x.arms.csv").unlink(),
        r"x\.arms\.csv is missing; the files of an export",
    ),
    "no provenance": (
        lambda file: file.with_name("x.provenance.json").unlink(),
        r"x\.provenance\.json is missing; the files of an export",
    ),
    "edited": (lambda file: file.write_text(file.read_text() + "\n"), r"x\.csv is not as it was when x\.prov"),
    "binary": (overwrite("x.csv", bytes(range(256)) * 9), r"x\.csv cannot be read \(.+\)\."),
    "empty": (overwrite("x.arms.csv", b""), r"x\.arms\.csv cannot be read \(it lacks the column run\)"),
    "not JSON": (overwrite("x.provenance.json", b"{"), r"x\.provenance\.json cannot be read \(.+\)\."),
    "other JSON": (overwrite("x.provenance.json", b"[]"), r"is not a provenance that this hotswap knows"),
    "newer": (document(lambda d: d.update(format=2)), r"is not a provenance that this hotswap knows"),
    "no precision": (document(lambda d: d.pop("precision")), r"cannot be read \(precision is missing\)"),
    "wrong marks": (document(lambda d: d["runs"].update(x={"epoch": "1"})), r"runs has something else than numbers"),
    "wrong units": (document(lambda d: d["units"].update(x=1)), r"units has something else than lists"),
    "wrong study": (document(lambda d: d["study"].pop("epochs")), r"x\.provenance\.json cannot be read \(StudySpec"),
    "fingerprint": (document(lambda d: d.update(fingerprint="0" * 16)), r"its fingerprint is not that of its study"),
    "precision": (
        document(lambda d: d.update(precision="tf32")),
        r"x\.csv cannot be imported: .* in fp32 .* not in tf32",
    ),
    "column": (
        table(lambda f: f.drop(columns="grad_norm")),
        r"x\.csv cannot be read \(it lacks the column grad_norm\)",
    ),
    "arm column": (
        table(lambda f: f.drop(columns="arm"), "x.arms.csv"),
        r"x\.arms\.csv cannot be read \(it lacks the column arm\)",
    ),
    "words": (table(lambda f: f.assign(train_nll="high")), r"x\.csv cannot be read \(could not convert"),
    "half steps": (table(lambda f: f.assign(steps=0.5)), r"x\.csv cannot be read \(invalid literal for int.+'0\.5'\)"),
    "stranger": (
        table(lambda f: pd.concat([f, f[-1:].assign(run="ducb-b11-s0")])),
        r"x\.csv has the run ducb-b11-s0, which is not in the study; nothing was imported\.",
    ),
    "other setting": (
        table(cell("sgd-b20-lr0.3-decay1-mom0.5-s0", "lr", 0.4)),
        r"x\.csv says that lr of the run sgd-b20-lr0\.3-decay1-mom0\.5-s0 is 0\.4, but it is 0\.3 in the study",
    ),
    "other value": (
        table(cell("ducb-b10-s1", "test_error", 0.25)),
        r"x\.csv has test_error 0\.25 for the run ducb-b10-s1 at epoch 1, but the study has 0\.3333333333333333;",
    ),
    "a number for NaN": (table(cell("ducb-b10-s0", "train_nll", 1.0)), r"train_nll 1\.0 .* but the study has nan"),
    "NaN for a number": (
        table(cell("ducb-b10-s1", "train_nll", math.nan)),
        r"train_nll nan .* but the study has 0\.15",
    ),
    "other counts": (table(cell("ducb-b10-s1", "count", 1), "x.arms.csv"), r"other arm counts .* ducb-b10-s1 at epoch"),
    "no counts": (table(lambda f: f[f["run"] != "ducb-b10-s1"], "x.arms.csv"), r"other arm counts .* ducb-b10-s1"),
    "lone counts": (table(cell("ducb-b10-s1", "epoch", 3), "x.arms.csv"), r"arm counts, but no metrics, .* at epoch 3"),
    "twice": (table(lambda f: pd.concat([f, f[-1:]])), r"x\.csv has two rows for the same run and epoch"),
    "not finished": (
        table(lambda f: f[(f["run"] != "sgd-b20-lr0.3-decay1-mom0.5-s0") | (f["epoch"] < 10)]),
        r"x\.csv cannot be imported: Run sgd-b20-lr0\.3-decay1-mom0\.5-s0 is said to be finished, but has no row",
    ),
    "an odd mark": (document(lambda d: d["runs"]["ducb-b10-s0"].update(seconds=math.nan)), r"runs has something else"),
    "a huge mark": (document(lambda d: d["runs"]["ducb-b10-s0"].update(epoch=2**70)), r"runs has something else than"),
    "an early mark": (
        document(lambda d: d["runs"]["ducb-b10-s0"].update(diverged=-1)),
        r"runs has something else than",
    ),
    "odd singles": (document(lambda d: d.update(singles=[1, 2])), r"singles has something else than lists of what"),
    "specs of another": (
        document(lambda d: d["specs"].append(study(data_seed=9).to_dict())),
        r"x\.provenance\.json cannot be read \(its specs are not all of its study\)",
    ),
    "marks of a stranger": (
        document(lambda d: d["runs"].update(x={"epoch": 1, "seconds": 1, "finished": 0, "diverged": None})),
        r"x\.csv cannot be imported: Run x is not in the study",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_contradicts_is_refused_and_changes_nothing(tmp_path: Path, case: str) -> None:
    harm, sentence = REFUSED[case]
    with make(tmp_path / "a") as store:
        file = export(store, tmp_path / "out" / "x.csv")[0]
    with make(tmp_path / "good", only="sgd-b10") as store:
        good = export(store, tmp_path / "good.parquet")[0]
    with make(tmp_path / "b", only="ducb-b10") as store:
        before = content(store)
        harm(file)
        with pytest.raises(StudyError, match=sentence) as refusal:
            import_files(store, [good, file])  # and the good one before it stays out, too
        assert "\n" not in str(refusal.value)
        assert content(store) == before
        assert import_files(store, [good]) == 8


def test_another_study_is_refused(tmp_path: Path) -> None:
    with make(tmp_path / "a", study(name="wide", network=NetworkSpec(hidden=(5,)))) as store:
        file = export(store, tmp_path / "x.parquet")[0]
    with make(tmp_path / "b", only="ducb-b10") as store:
        before = content(store)
        with pytest.raises(
            StudyError, match=r"x.parquet cannot be imported: .* holds the study 'small' .*, not 'wide'"
        ):
            import_files(store, [file])
        assert content(store) == before


def test_an_unreadable_parquet(tmp_path: Path) -> None:
    with make(tmp_path / "a") as store:
        file = export(store, tmp_path / "x.parquet")[0]
        file.write_bytes(file.read_bytes()[:-100])
        signed(file)
        with pytest.raises(StudyError, match=r"x\.parquet cannot be read \(.+\)\."):
            import_files(store, [file])


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_a_table_brings_no_code(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    pickle.loads(pickle.dumps(Bomb(trace)))
    assert trace.exists()  # it would
    trace.unlink()
    with make(tmp_path / "a") as store:
        file = export(store, tmp_path / "x.parquet")[0]
        plain = pq.read_table(file)
        evil = pickle.dumps(Bomb(trace))
        tags = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": evil}
        fields = [field.with_metadata(tags) for field in plain.schema]
        pq.write_table(pa.table(plain.columns, schema=pa.schema(fields, metadata={"pandas": evil})), file)
        assert pq.read_schema(file).metadata[b"pandas"] == evil
        signed(file)
        assert import_files(store, [file]) == 0
        assert not trace.exists()


def test_what_else_an_algorithm_measures_travels_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(tmp_path / "before") as store:
        older = export(store, tmp_path / "older.csv")[0]  # before the algorithm measured it
    monkeypatch.setattr(DucbFamily, "measures", ("mean_lr", "trials", "width"))
    unit = units(study())["ducb-b10"]
    with Store.create(tmp_path / "a", study(), precision="fp32") as store:
        widths = [0.1 + 0.2, math.inf]
        store.record(unit, 1, [row(run.id, 1, more={"width": w}) for run, w in zip(unit.runs, widths, strict=True)])
        files = [export(store, tmp_path / f"x{ending[1:]}{ending}")[0] for ending in ENDINGS]
        before = content(store)
    for file in files:
        with Store.create(tmp_path / file.suffix, study(), precision="fp32") as copy:
            assert import_files(copy, [file]) == 2
            assert content(copy) == before
            assert copy.metrics()["width"].tolist() == widths
            with copy.transaction() as sql:
                assert sql.execute("SELECT count(more) FROM metrics").fetchone() == (2,)
    with Store.create(tmp_path / "b", study(), precision="fp32") as copy:
        assert import_files(copy, [older]) == 24
        assert "width" not in copy.metrics()
        assert import_files(copy, [older]) == 0


def test_parts_of_a_table_come_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those first whose algorithm has no measure of its own: the study's table has no such column then."""
    monkeypatch.setattr(DucbFamily, "measures", ("mean_lr", "trials", "width"))
    with make(tmp_path / "a") as store:
        unit = units(study())["ducb-b10"]
        store.record(unit, 20, [row(run.id, 20, more={"width": 0.5}) for run in unit.runs])
        file = export(store, tmp_path / "x.parquet")[0]
        expected = content(store)
    import_into(tmp_path / "b", read_exports([file], ["sgd"]))
    import_into(tmp_path / "b", read_exports([file]))
    with Store.open(tmp_path / "b") as store:
        assert content(store)[:2] == expected[:2]


def test_moved_together_they_are_still_one_export(tmp_path: Path) -> None:
    with make(tmp_path / "a") as store:
        paths = export(store, tmp_path / "x.csv")
        for path in paths:
            shutil.move(path, tmp_path / "a" / path.name.replace("x.", "my.day."))
        assert import_files(store, [tmp_path / "a" / "my.day.csv"]) == 0

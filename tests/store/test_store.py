"""The folder of studies and benchmarks: files that cannot change unnoticed, locks, checkpoints."""

from __future__ import annotations

import errno
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hotswap.errors import DamagedError, StudyError, UnitTaken
from hotswap.store import Checkpoints, Folder, parsed, read_record, records, without_folders, write_record
from hotswap.store.records import read_tensors
from tests.children import child

CONTENT = {"rows": [[0, 1, 0.1, math.inf, -math.inf], [1, 1, 1e-300, None, "é"]], "name": "sgd-b64"}


def no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_record_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    write_record(tmp_path / "a.hotswap", {**CONTENT, "nan": math.nan}, b"tensors")
    found = read_record(tmp_path / "a.hotswap")
    assert math.isnan(found.pop("nan"))
    assert found == CONTENT
    assert read_tensors(tmp_path / "a.hotswap") == b"tensors"


def test_every_damage_is_noticed(tmp_path: Path) -> None:
    file, chance = tmp_path / "a.hotswap", random.Random(0)
    write_record(file, CONTENT, b"tensors")
    whole = file.read_bytes()
    damaged = [whole[:at] + bytes([byte ^ 1 << chance.randrange(8)]) + whole[at + 1 :] for at, byte in enumerate(whole)]
    damaged += [whole[:at] for at in range(len(whole))] + [whole + b"x", b"", b"\0" * 300, os.urandom(5000)]
    for data in damaged:
        file.write_bytes(data)
        with pytest.raises(StudyError, match=r"is damaged|is of format"):
            read_tensors(file)


def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    write_record(tmp_path / "a.hotswap", CONTENT)
    data = (tmp_path / "a.hotswap").read_bytes()
    (tmp_path / "a.hotswap").write_bytes(data.replace(b"hotswap 1", b"hotswap 2", 1))
    with pytest.raises(StudyError, match=r"a\.hotswap is of format 2, and this version of hotswap knows format 1"):
        read_record(tmp_path / "a.hotswap")


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 40 + b"1" + b"}" * 40, b"1" * 10_000, b"\xff", b"", b"{"])
def test_json_beyond_the_limits_is_refused(text: bytes) -> None:
    with pytest.raises(StudyError, match="x cannot be read"):
        parsed(text, "x")


def test_brackets_in_words_are_no_nesting() -> None:
    assert parsed(b'{"reason": "' + b"[" * 100 + b'\\""}', "x") == {"reason": "[" * 100 + '"'}


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_record(tmp_path / "a.hotswap", CONTENT)
    monkeypatch.setattr(records, "MOST_JSON", 10)
    with pytest.raises(DamagedError, match="its JSON is larger than 10 bytes"):
        read_record(tmp_path / "a.hotswap")
    with pytest.raises(StudyError, match="more than 10 bytes"):
        parsed(b" " * 11, "x")


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder.create(tmp_path, "study", {})
    folder.store("unit", {"epoch": 1})
    checkpoints = Checkpoints.of(tmp_path / "checkpoints", "unit", ["run"])
    checkpoints.save(1, {}, {"w": torch.ones(3)})
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(os, "fsync", no_room)
    for write in (
        lambda: folder.store("unit", {"epoch": 2}),
        lambda: checkpoints.save(2, {}, {"w": torch.ones(3)}),
        lambda: folder.fail("unit", "why"),
    ):
        with pytest.raises(StudyError, match=r"The disk is full: .* What was stored before is safe; make room and run"):
            write()
    assert sorted(tmp_path.rglob("*")) == before
    assert Folder.open(tmp_path, "study").units() == {"unit": {"epoch": 1}}


def test_what_a_folder_is_of(tmp_path: Path) -> None:
    Folder.create(tmp_path / "a", "study", {"epochs": 3})
    assert Folder.create(tmp_path / "a", "study", {"epochs": 4}).about == {"kind": "study", "epochs": 3}
    with pytest.raises(StudyError, match="holds a study, and not a benchmark; choose another folder"):
        Folder.create(tmp_path / "a", "benchmark", {})
    with pytest.raises(StudyError, match="holds no benchmark; `hotswap bench run` starts one"):
        Folder.open(tmp_path / "b", "benchmark")
    assert (Folder.kind_of(tmp_path / "a"), Folder.kind_of(tmp_path / "b")) == ("study", None)
    (tmp_path / "ledger.sqlite").touch()
    for use in (lambda: Folder.open(tmp_path, "study"), lambda: Folder.create(tmp_path, "study", {})):
        with pytest.raises(StudyError, match="from before hotswap's first release, and this version does not read it"):
            use()


def test_damaged_units_are_named_and_the_others_read(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path, "study", {})
    for name in ("one", "two", "three"):
        folder.store(name, {"name": name})
    assert set(folder.units()) == {"one", "two", "three"}
    folder.file("two").write_bytes(folder.file("two").read_bytes()[:-1])
    folder.remove("three")
    assert folder.units() == {"one": {"name": "one"}}
    assert list(folder.damaged) == ["two"]
    assert "two.hotswap is damaged" in folder.damaged["two"]
    assert "delete it to have it trained again" in folder.damaged["two"]


def test_names_of_files(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path, "benchmark", {})
    long = "a" * 255
    folder.store(long, {})
    folder.store(long + "b", {})
    assert len(folder.units()) == 2
    for name in ("../a", "a/b", "", "a b", "a\0"):
        with pytest.raises(StudyError, match="cannot be the name of a unit's file"):
            folder.store(name, {})


HOLD = """
import sys, time
from pathlib import Path
from hotswap.store import Folder
with Folder.open(Path(sys.argv[1]), "study").holding("unit"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_unit_has_one_holder_until_its_process_ends(tmp_path: Path) -> None:
    folder = Folder.create(tmp_path, "study", {})
    assert folder.whereabouts("unit") is None
    with child([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert folder.whereabouts("unit") == f"process {process.pid}"
        with pytest.raises(UnitTaken, match=f"by process {process.pid}"), folder.holding("unit"):
            pass
        with folder.holding("another"):
            pass
        process.kill()
        process.wait()
    assert not folder.is_held("unit")
    with folder.holding("unit"):
        folder.tell("unit", where="node-3, process 12", done=4)
        assert folder.whereabouts("unit") == "node-3, process 12"
    assert folder.note("unit")["done"] == 4
    assert folder.whereabouts("unit") is None


@pytest.mark.parametrize("note", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_note_says_nothing(tmp_path: Path, note: bytes) -> None:
    folder = Folder.create(tmp_path, "study", {})
    (tmp_path / "running" / "unit.json").write_bytes(note)
    assert folder.note("unit") == {}


def test_checkpoints_are_the_last_two_and_those_that_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints.of(tmp_path, "sgd-b64", ["a", "b"])
    for epoch in range(1, 5):
        weights = {"w": torch.full((2, 2), float(epoch)), "step": torch.tensor(epoch)}
        if epoch == 2:
            checkpoints.save(epoch, {"seconds": 1.0}, weights, keep=True)
        checkpoints.save(epoch, {"seconds": float(epoch)}, weights)
    names = sorted(path.name for path in checkpoints.folder.iterdir())
    assert names == [f"epoch-00000{name}.hotswap" for name in ("2-kept", "3", "4")]
    latest = checkpoints.latest(print)
    assert latest is not None
    assert (latest.epoch, latest.content) == (4, {"seconds": 4.0})
    assert latest.tensors["w"].tolist() == [[4.0, 4.0], [4.0, 4.0]]
    assert checkpoints.last_epoch() == 4
    kept = checkpoints.kept(2)
    assert kept is not None
    assert kept.tensors["step"] == 2
    assert checkpoints.kept(3) is None
    elsewhere = Checkpoints.of(tmp_path, "sgd-b64", ["a"])
    assert elsewhere.latest(print) is None  # a unit of the same name with other runs
    elsewhere.add_files({**checkpoints.kept_files(), "../outside": b""})
    assert elsewhere.kept(2) is not None
    assert sorted(path.name for path in elsewhere.folder.iterdir()) == ["epoch-000002-kept.hotswap"]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    checkpoints, said = Checkpoints(tmp_path), list[str]()
    for epoch in (1, 2):
        checkpoints.save(epoch, {}, {"w": torch.ones(epoch)})
    file = tmp_path / "epoch-000002.hotswap"
    file.write_bytes(file.read_bytes()[:-7] + b"damaged")
    latest = checkpoints.latest(said.append)
    assert latest is not None
    assert latest.epoch == 1
    assert "epoch-000002.hotswap cannot be used" in said[0]
    write_record(file, {"epoch": 2}, b"no tensors")  # its digests are right
    latest = checkpoints.latest(said.append)
    assert latest is not None
    assert latest.epoch == 1


def test_commands_without_folders() -> None:
    assert without_folders("hotswap study run ../mine.toml --out /home/me/x --from=/data") == (
        "hotswap study run mine.toml --out x --from=data"
    )
    assert without_folders("hotswap 'unmatched") == "hotswap 'unmatched"

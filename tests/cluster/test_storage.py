"""Checkpoints elsewhere: whole or not there, and never in another's way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hotswap.cluster import storage
from hotswap.cluster.storage import Storage, checkpoint_name
from hotswap.cluster.units import Checkpoint, Stored
from hotswap.cluster.worker import StreamDesk
from hotswap.errors import SettingError


def test_a_folder_or_a_uri(tmp_path: Path) -> None:
    for named in (str(tmp_path / "new folder"), (tmp_path / "new folder").as_uri()):
        shelf = Storage.named(named)
        assert shelf.uri == (tmp_path / "new folder").as_uri()
    shelf.write("a/b", b"123")
    assert (tmp_path / "new folder" / "a" / "b").read_bytes() == b"123"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["b"]  # and no trace of the trial


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for named in (str(tmp_path / "file" / "below"), "nowhere://at/all", "s3://"):
        with pytest.raises(SettingError, match=r"--storage .* cannot be written to \(.*\); name a folder that all"):
            Storage.named(named)


def test_what_does_not_answer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Storage, "tried", lambda _: time.sleep(30))
    monkeypatch.setattr(storage, "PATIENCE", 0.1)
    with pytest.raises(SettingError, match=r"cannot be written to \(no answer within 0 s\)"):
        Storage.named(str(tmp_path))


def test_old_ones_are_forgotten_and_later_ones_are_not(tmp_path: Path) -> None:
    shelf = Storage.named(str(tmp_path))
    names = {n: checkpoint_name("study/unit", n, b"%d" % n) for n in (1, 2, 3, 4)}
    for n, name in names.items():
        shelf.write(name, b"%d" % n)
    abandoned = checkpoint_name("study/unit", 3, b"of a worker that was given up")
    shelf.write(abandoned, b"of a worker that was given up")
    shelf.write("study/unit/something-else", b"")
    shelf.forget("study/unit", kept={names[2], names[3]})
    left = {path.name for path in (tmp_path / "study" / "unit").iterdir()}
    assert left == {Path(names[n]).name for n in (2, 3, 4)} | {"something-else"}


def test_a_worker_goes_on_from_the_latest_that_is_whole(tmp_path: Path) -> None:
    shelf = Storage.named(str(tmp_path))
    names = [checkpoint_name("unit", n, b"%d" % n) for n in (1, 2, 3)]
    shelf.write(names[0], b"1")
    shelf.write(names[1], b"something else")
    candidates = [Stored(n, shelf.uri, names[n - 1]) for n in (3, 2, 1)]
    said: list[str] = []
    desk = StreamDesk(candidates, None, "unit", lambda: False)
    assert desk.latest(lambda data: data, said.append) == b"1"
    assert [("not exist" in line or "No such file" in line, "checksum" in line) for line in said] == [
        (True, False),
        (False, True),
    ]
    assert StreamDesk([], None, "unit", lambda: False).latest(bytes, said.append) is None
    assert StreamDesk([Checkpoint(4, b"4")], None, "unit", lambda: False).latest(bytes, said.append) == b"4"


def test_what_is_for_good_comes_back(tmp_path: Path) -> None:
    desk = StreamDesk([], Storage.named(str(tmp_path)), "unit", lambda: False)
    desk.save(1, b"1", keep=True)
    desk.save(2, b"2")
    desk.post("row")
    (_, kept), (_, stored), (kind, row) = desk.take()
    assert kept == Checkpoint(1, b"1", keep=True)
    assert isinstance(stored, Stored)
    assert (kind, row) == ("post", "row")
    assert desk.take() == []

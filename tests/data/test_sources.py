"""Folders and mirrors."""

from __future__ import annotations

import gzip
import io
import tarfile
import threading
import time
import urllib.error
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

import pytest

from hotswap.data.obtain import Cache, obtain
from hotswap.data.sources import Folder, Mirror, MirrorArchive, RawFile
from hotswap.errors import DataError

Files = tuple[RawFile, ...]
Contents = dict[str, bytes]


# --- a folder ---------------------------------------------------------------------------------------------------


def test_a_folder_gives_plain_and_packed_files(files: Files, contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(contents["pictures"])
    (tmp_path / "names.gz").write_bytes(gzip.compress(contents["names"]))
    (tmp_path / "notes.gz").write_bytes(b"damaged")
    (tmp_path / "notes").write_bytes(contents["notes"])
    offers = Folder(tmp_path).fetch(files)
    got = [next(offers) for _ in files]
    assert {file.name: raw for file, raw in got} == contents
    with pytest.raises(DataError, match=r"^notes\.gz is damaged$"):
        next(offers)


def test_a_folder_gives_what_it_can_and_says_what_it_cannot(files: Files, contents: Contents, tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(b"x" + contents["pictures"][1:])
    (tmp_path / "names").write_bytes(contents["names"])
    offers = Folder(tmp_path).fetch(files)
    assert next(offers) == (files[1], contents["names"])
    with pytest.raises(DataError, match=r"^pictures has the wrong checksum; notes is not there$"):
        next(offers)


def test_a_gzip_file_is_never_unpacked_past_the_expected_size(files: Files, tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(10_000_000))
    assert len(files[2].unzip(bomb)) == files[2].size + 1


# --- a mirror ---------------------------------------------------------------------------------------------------


@dataclass
class Web:
    """A web with one site, and a memory of what was asked of it."""

    pages: Contents
    asked: list[str] = field(default_factory=list)
    fail: Callable[[str], None] = lambda url: None

    def open(self, url: str, silence: float) -> IO[bytes]:
        self.asked.append(url)
        self.fail(url)
        return io.BytesIO(self.pages[url.rsplit("/", 1)[1]])


@pytest.fixture
def web(contents: Contents) -> Web:
    return Web({f"{name}.gz": gzip.compress(raw) for name, raw in contents.items()})


def test_a_mirror_gives_its_files_smallest_first(files: Files, contents: Contents, web: Web) -> None:
    mirror = Mirror("https://mirror.example/things/", opener=web.open)
    assert {file.name: raw for file, raw in mirror.fetch(files)} == contents
    assert [url.rsplit("/", 1)[1] for url in web.asked] == ["notes.gz", "names.gz", "pictures.gz"]
    assert mirror.label == "mirror mirror.example"


def not_found(url: str) -> None:
    raise urllib.error.HTTPError(url, 404, "Not Found", Message(), io.BytesIO(b"gone"))


def no_such_host(url: str) -> None:
    raise urllib.error.URLError("Name or service not known")


def hung_up(url: str) -> None:
    raise ConnectionResetError("Connection reset by peer")


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (not_found, "it answered HTTP 404"),
        (no_such_host, r"it cannot be reached \(Name or service not known\)"),
        (hung_up, r"it cannot be reached \(Connection reset by peer\)"),
    ],
)
def test_a_mirror_that_fails_once_is_not_asked_again(
    failure: Callable[[str], None], reason: str, files: Files, web: Web
) -> None:
    web.fail = failure
    with pytest.raises(DataError, match=f"^{reason}$"):
        list(Mirror("https://mirror.example/", opener=web.open).fetch(files))
    assert len(web.asked) == 1


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache" / "things")


def test_a_mirror_that_sends_another_page_is_refused_after_one_file(
    files: Files, web: Web, cache: Cache, lines: list[str]
) -> None:
    web.pages["notes.gz"] = b"<html>Please sign in to this network</html>"
    with pytest.raises(DataError, match=r"mirror\.example: notes\.gz is damaged"):
        obtain("Things", files, [Mirror("https://mirror.example/", opener=web.open)], cache=cache, report=lines.append)
    web.pages["notes.gz"] = gzip.compress(b"m" * 40)
    web.asked.clear()
    with pytest.raises(DataError, match=r"mirror\.example: notes has the wrong checksum"):
        obtain("Things", files, [Mirror("https://mirror.example/", opener=web.open)], cache=cache, report=lines.append)
    assert len(web.asked) == 1


def test_a_mirror_that_never_answers_costs_its_patience_once(files: Files, web: Web) -> None:
    answer = threading.Event()

    def hang(url: str) -> None:
        answer.wait(30)  # like a name lookup that hangs: no socket timeout would end it

    web.fail = hang
    began = time.monotonic()
    with pytest.raises(DataError, match=r"^no answer within 0\.2 s$"):
        list(Mirror("https://mirror.example/", patience=0.2, opener=web.open).fetch(files))
    assert time.monotonic() - began < 5
    assert len(web.asked) == 1
    answer.set()


def packed_tar(members: Contents) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_an_archive_on_the_web_gives_its_files(files: Files, contents: Contents) -> None:
    web = Web({"all.tar.gz": packed_tar({f"things/{name}": raw for name, raw in contents.items()})})
    mirror = MirrorArchive("https://mirror.example/all.tar.gz", inside="things", megabytes=1, opener=web.open)
    assert {file.name: raw for file, raw in mirror.fetch(files)} == contents
    assert web.asked == ["https://mirror.example/all.tar.gz"]
    assert mirror.label == "mirror mirror.example"
    assert mirror.announcement == "fetching 1 MB from mirror mirror.example, which may take a few minutes"


def test_what_is_wrong_with_an_archive_on_the_web(files: Files) -> None:
    web = Web({"all.tar.gz": packed_tar({"things/other": b""})})
    mirror = MirrorArchive("https://mirror.example/all.tar.gz", inside="things", megabytes=1, opener=web.open)
    with pytest.raises(DataError, match=r"^things/pictures is not in its archive$"):
        list(mirror.fetch(files))
    web.pages["all.tar.gz"] = b"<html>Please sign in to this network</html>"
    with pytest.raises(DataError, match=r"^its archive is damaged$"):
        list(mirror.fetch(files))
    web.fail = no_such_host
    with pytest.raises(DataError, match=r"^it cannot be reached \(Name or service not known\)$"):
        list(mirror.fetch(files))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_mirror_over_a_real_socket(
    files: Files, contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")  # a proxy could not reach this machine's own port
    for name in ("notes", "names"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(contents[name]))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        offers = Mirror(f"http://127.0.0.1:{server.server_port}/", patience=10).fetch(files)
        assert next(offers) == (files[2], contents["notes"])
        assert next(offers) == (files[1], contents["names"])
        with pytest.raises(DataError, match=r"^it answered HTTP 404$"):
            next(offers)
        server.shutdown()

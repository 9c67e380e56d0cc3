"""The cache: where it is, and that a file in it is whole or absent."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hotswap.data.obtain import Cache, cache_folder
from hotswap.data.sources import RawFile

HOME = Path.home()


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {}, HOME / ".cache" / "hotswap"),
        ("linux", {"XDG_CACHE_HOME": "/var/shared"}, Path("/var/shared/hotswap")),
        ("linux", {"XDG_CACHE_HOME": "not/absolute"}, HOME / ".cache" / "hotswap"),
        ("linux", {"XDG_CACHE_HOME": "/var/shared", "HOTSWAP_DATA": "/mine"}, Path("/mine")),
        ("linux", {"HOTSWAP_DATA": ""}, HOME / ".cache" / "hotswap"),
        ("linux", {"HOTSWAP_DATA": "~/mine"}, HOME / "mine"),
        ("darwin", {"XDG_CACHE_HOME": "/var/shared"}, HOME / "Library" / "Caches" / "hotswap"),
        ("darwin", {"HOTSWAP_DATA": "/mine"}, Path("/mine")),
        ("win32", {"LOCALAPPDATA": "/local"}, Path("/local/hotswap")),
        ("win32", {}, HOME / "AppData" / "Local" / "hotswap"),
    ],
)
def test_the_folder_is_the_named_one_or_the_platforms(platform: str, variables: dict[str, str], folder: Path) -> None:
    assert cache_folder(variables, platform) == folder


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOTSWAP_DATA", str(tmp_path))
    assert cache_folder() == tmp_path


def test_equal_contents_are_equal_files(tmp_path: Path, files: tuple[RawFile, ...], contents: dict[str, bytes]) -> None:
    for folder in ("one", "two"):
        Cache(tmp_path / folder).keep(files[0], contents["pictures"])
    one = (tmp_path / "one" / "pictures.gz").read_bytes()
    assert one == (tmp_path / "two" / "pictures.gz").read_bytes()
    assert one[4:8] == bytes(4)  # the time field of a gzip file
    assert gzip.decompress(one) == contents["pictures"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
    files: tuple[RawFile, ...],
    contents: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = Cache(tmp_path)
    cache.keep(files[0], b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        cache.keep(files[0], contents["pictures"])
    assert [path.name for path in tmp_path.iterdir()] == ["pictures.gz"]
    assert gzip.decompress((tmp_path / "pictures.gz").read_bytes()) == b"old"


KILLED_WHILE_WRITING = """
import os, sys
from pathlib import Path
from hotswap.data.obtain import Cache
from hotswap.data.sources import RawFile

os.fsync = lambda descriptor: os._exit(9)  # no cleaning up, as with a kill
Cache(Path(sys.argv[1])).keep(RawFile("pictures", 3, ""), b"new")
"""


@pytest.mark.parametrize("before", [None, b"old"])
def test_a_kill_while_writing_leaves_the_old_file_or_none(
    tmp_path: Path, before: bytes | None, files: tuple[RawFile, ...]
) -> None:
    packed = tmp_path / "pictures.gz"
    if before is not None:
        packed.write_bytes(before)
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(tmp_path)], check=False)
    assert killed.returncode == 9
    assert (packed.read_bytes() if packed.exists() else None) == before

    # The part it left is nobody's file, is not removed while it might still be written, and is removed later.
    (part,) = tmp_path.glob(".pictures.gz.*")
    cache = Cache(tmp_path)
    cache.keep(files[0], b"new")
    assert part.exists()
    os.utime(part, (0, 0))
    cache.keep(files[0], b"new")
    assert not part.exists()


def test_many_writers_and_readers_at_once_do_no_harm(
    tmp_path: Path, files: tuple[RawFile, ...], contents: dict[str, bytes]
) -> None:
    cache = Cache(tmp_path)
    wrong: list[BaseException] = []
    cache.keep(files[0], contents["pictures"])

    def work() -> None:
        try:
            for _ in range(20):
                cache.keep(files[0], contents["pictures"])
                ((_, raw),) = cache.fetch(files[:1])
                assert raw == contents["pictures"]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [path.name for path in tmp_path.iterdir()] == ["pictures.gz"]

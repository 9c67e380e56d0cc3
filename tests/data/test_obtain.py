"""Asking one source after another: their order, the checks, and what the cache gets."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hotswap.data import Dataset, load_cifar10, load_fashion_mnist, load_mnist
from hotswap.data import obtain as obtain_module
from hotswap.data.obtain import Cache, Obtained, obtain
from hotswap.data.sources import Fetched, RawFile, Source
from hotswap.errors import DataError, SettingError

Files = tuple[RawFile, ...]
Contents = dict[str, bytes]


@dataclass(frozen=True)
class Fake(Source):
    """Yields what it was given, then fails if it was given a reason."""

    title: str
    offers: Contents
    reason: str | None = None
    news: str | None = None
    asked: list[list[str]] = field(default_factory=list)

    @property
    def label(self) -> str:
        return self.title

    @property
    def announcement(self) -> str | None:
        return self.news

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        self.asked.append([file.name for file in files])
        for file in files:
            if file.name in self.offers:
                yield file, self.offers[file.name]
        if self.reason is not None:
            raise DataError(self.reason)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache" / "things")


def test_the_first_source_that_has_everything_is_the_last_to_be_asked(
    files: Files, contents: Contents, cache: Cache, lines: list[str]
) -> None:
    empty = Fake("empty", {}, "it is empty")
    full = Fake("full", contents)
    never = Fake("never", contents)
    got = obtain("Things", files, [empty, cache, full, never], cache=cache, report=lines.append)
    assert got.files == contents
    assert got.source == "full"
    assert (len(empty.asked), len(full.asked), len(never.asked)) == (1, 1, 0)
    assert lines == [
        "Things: empty: it is empty.",
        f"Things: cache {cache.path}: it has none of the files.",
        "Things: 3 of 3 files from full.",
    ]


def test_a_later_source_is_asked_only_for_what_is_missing(
    files: Files, contents: Contents, cache: Cache, lines: list[str]
) -> None:
    half = Fake("half", {"pictures": contents["pictures"]}, "it broke off")
    full = Fake("full", contents)
    got = obtain("Things", files, [half, full], cache=cache, report=lines.append)
    assert got.files == contents
    assert got.source == "half and full"
    assert full.asked == [["names", "notes"]]


def test_the_second_time_comes_from_the_cache(files: Files, contents: Contents, cache: Cache, lines: list[str]) -> None:
    full = Fake("full", contents)
    obtain("Things", files, [cache, full], cache=cache, report=lines.append)
    lines.clear()
    got = obtain("Things", files, [cache, full], cache=cache, report=lines.append)
    assert got.files == contents
    assert got.source == "cache"
    assert len(full.asked) == 1
    assert lines == [f"Things: 3 of 3 files from cache {cache.path}."]


def test_a_long_transfer_is_announced_before_it_begins(
    files: Files, contents: Contents, cache: Cache, lines: list[str]
) -> None:
    slow = Fake("slow", contents, news="fetching 9 MB from slow")
    obtain("Things", files, [slow, Fake("never", {}, news="never said")], cache=cache, report=lines.append)
    assert lines == ["Things: fetching 9 MB from slow.", "Things: 3 of 3 files from slow."]


@pytest.mark.parametrize("wrong", [b"", b"n" * 39, b"n" * 41, b"m" * 40])
def test_wrong_bytes_are_refused_whoever_offers_them(
    wrong: bytes, files: Files, contents: Contents, cache: Cache, lines: list[str]
) -> None:
    liar = Fake("liar", contents | {"notes": wrong})
    got = obtain("Things", files, [liar, Fake("full", contents)], cache=cache, report=lines.append)
    assert got.files == contents
    assert "Things: liar: notes has the wrong checksum." in lines
    with pytest.raises(DataError, match="notes has the wrong checksum"):
        obtain("Things", files, [liar], cache=cache, report=lines.append)


def test_when_every_source_fails_the_error_lists_each_and_says_what_to_do(
    files: Files, cache: Cache, lines: list[str]
) -> None:
    sources = [Fake("near", {}, "door closed"), cache, Fake("far", {}, "road flooded")]
    with pytest.raises(DataError) as caught:
        obtain("Things", files, sources, cache=cache, report=lines.append)
    assert str(caught.value) == (
        "Things is not to be had from any source:\n"
        "  - near: door closed\n"
        f"  - cache {cache.path}: it has none of the files\n"
        "  - far: road flooded\n"
        "Put the files pictures, names, notes (each as it is or with .gz) in a folder and name it with --from "
        "FOLDER, or set HOTSWAP_DATA to a folder that holds them in a subfolder things."
    )


def test_a_damaged_cache_file_is_noticed_reported_and_replaced(
    files: Files, contents: Contents, cache: Cache, lines: list[str]
) -> None:
    full = Fake("full", contents)
    obtain("Things", files, [cache, full], cache=cache, report=lines.append)
    packed = cache.path / "pictures.gz"
    sound = packed.read_bytes()
    lines.clear()
    for damaged in (sound[:-10], b"not gzip at all", b"", gzip.compress(b"something else")):
        packed.write_bytes(damaged)
        got = obtain("Things", files, [cache, full], cache=cache, report=lines.append)
        assert got.files == contents
        assert got.source == "cache and full"
        assert full.asked[-1] == ["pictures"]
        assert packed.read_bytes() == sound
    assert [line for line in lines if "2 of 3" not in line and "1 of 3" not in line] == [
        *[f"Things: cache {cache.path}: pictures.gz is damaged."] * 2,
        *[f"Things: cache {cache.path}: pictures has the wrong checksum."] * 2,
    ]


def test_what_a_named_folder_gives_is_kept_but_renews_nothing(
    files: Files, contents: Contents, cache: Cache, lines: list[str]
) -> None:
    cache.path.mkdir(parents=True)
    (cache.path / "notes.gz").write_bytes(b"left alone: nobody has looked at it")
    obtain("Things", files, [Fake("named", contents), cache], cache=cache, report=lines.append)
    assert gzip.decompress((cache.path / "pictures.gz").read_bytes()) == contents["pictures"]
    assert (cache.path / "notes.gz").read_bytes().startswith(b"left alone")


def test_a_cache_that_cannot_be_written_costs_a_line_and_not_the_data(
    files: Files, contents: Contents, tmp_path: Path, lines: list[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file" / "things")  # below a plain file no folder can be made
    got = obtain("Things", files, [cache, Fake("full", contents)], cache=cache, report=lines.append)
    assert got.files == contents
    assert sum("was kept in" in line for line in lines) == 3


@pytest.mark.parametrize("load_", [load_mnist, load_fashion_mnist, load_cifar10])
def test_the_named_folder_comes_first_then_the_cache(
    load_: Callable[..., Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def none(title: str, files: Files, sources: Sequence[Source], **_: object) -> Obtained:
        asked.extend(str(source) for source in sources)
        raise DataError("nothing is asked")

    monkeypatch.setattr(obtain_module, "obtain", none)
    monkeypatch.setenv("HOTSWAP_DATA", str(tmp_path))
    with pytest.raises(DataError):
        load_(tmp_path)
    name = load_.__name__.removeprefix("load_")
    assert asked[:2] == [f"named folder {tmp_path}", f"cache {tmp_path / name}"]
    with pytest.raises(
        SettingError, match=rf"^{load_.__name__}\(folder='.*gone'\): folder must be a folder that exists"
    ):
        load_(tmp_path / "gone")


def test_a_source_is_closed_as_soon_as_it_is_refused(files: Files, cache: Cache, lines: list[str]) -> None:
    closed: list[bool] = []

    class Holding(Fake):
        def fetch(self, files: Sequence[RawFile]) -> Fetched:
            try:
                yield from super().fetch(files)
            finally:
                closed.append(True)

    with pytest.raises(DataError):
        obtain("Things", files, [Holding("h", {"pictures": b"no"})], cache=cache, report=lines.append)
    assert closed == [True]

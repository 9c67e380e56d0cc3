"""Where the bytes of a data set come from.

A *source* is a place that may have the raw files of a data set: a folder, a mirror on the web, a package in a
registry. Sources differ in how they fetch and in how they fail, and agree on one method:

    fetch(files)    yields (file, its raw bytes) for each of `files`, and where it cannot, raises a DataError
                    that says why in a few words

What a source yields is a claim, not yet a fact: `hotswap.data.obtain` checks it. A source that fails half-way
has still helped with what it yielded before.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
import urllib.error
import urllib.request
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlsplit

from hotswap.errors import DataError

__all__ = [
    "Fetched",
    "Folder",
    "Mirror",
    "MirrorArchive",
    "Opener",
    "RawFile",
    "Report",
    "Source",
    "files_of_archive",
    "long_fetch",
    "read_member",
]

T = TypeVar("T")

Report = Callable[[str], None]
"""Takes one line of news. The room never prints: who calls it decides where the line goes."""


@dataclass(frozen=True)
class RawFile:
    """A file as it was published, before any compression.

    Attributes:
        name: Its name without `.gz`.
        size: Its length in bytes. Nothing longer is ever unpacked, so a bomb stays small.
        md5: Its fingerprint. MD5 is what the publishers print; it guards against accidents and mix-ups.
    """

    name: str
    size: int
    md5: str

    def check(self, raw: bytes) -> None:
        """Raise a DataError unless `raw` is this file, byte for byte."""
        if len(raw) != self.size or hashlib.md5(raw, usedforsecurity=False).hexdigest() != self.md5:
            raise DataError(f"{self.name} has the wrong checksum")

    def unzip(self, packed: bytes) -> bytes:
        """Return what the gzip file `packed` holds; raise a DataError if it is damaged."""
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
                # One byte more than expected makes the reader meet the end, and so the gzip file's own check.
                return stream.read(self.size + 1)
        except (OSError, EOFError, zlib.error):
            raise DataError(f"{self.name}.gz is damaged") from None


Fetched = Generator[tuple[RawFile, bytes], None, None]


class Source(ABC):
    """A place that may have the files of a data set."""

    @property
    @abstractmethod
    def label(self) -> str:
        """A short name, without any path: fit to be stored with results."""

    @abstractmethod
    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield each of `files` with its raw bytes, in any order.

        Raises:
            DataError: Some could not be had. The message is a few words, to follow "this source: ".
        """

    @property
    def announcement(self) -> str | None:
        """What to tell the user before this source is asked, where that may take minutes."""
        return None

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Folder(Source):
    """A folder that holds the files as `x.gz` or as `x`.

    Files are looked for one by one: a damaged one does not hide its sound neighbours.
    """

    path: Path
    title: str = "named folder"

    @property
    def label(self) -> str:
        """What kind of folder it is; `str(folder)` also says where."""
        return self.title

    def __str__(self) -> str:
        return f"{self.title} {self.path}"

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield each file that is there and sound, then raise if any was not."""
        absent: list[str] = []
        damage: list[str] = []
        for file in files:
            raw = self._read(file, damage)
            if raw is not None:
                yield file, raw
            elif not self._candidates(file):
                absent.append(file.name)
        if len(absent) == len(files) > 1:
            raise DataError("it has none of the files")
        if absent or damage:
            raise DataError("; ".join([*damage, *(f"{name} is not there" for name in absent)]))

    def _candidates(self, file: RawFile) -> list[Path]:
        # Packed first: the cache writes that, so once repaired it never trips over an old unpacked file.
        both = (self.path / f"{file.name}.gz", self.path / file.name)
        return [path for path in both if path.is_file()]

    def _read(self, file: RawFile, damage: list[str]) -> bytes | None:
        """Return the first sound candidate, adding a few words to `damage` for each that is not."""
        for path in self._candidates(file):
            try:
                content = path.read_bytes()
                raw = file.unzip(content) if path.suffix == ".gz" else content
                file.check(raw)
            except DataError as error:
                damage.append(str(error))
            except OSError as error:
                damage.append(f"{path.name} cannot be read ({error.strerror or error})")
            else:
                return raw
        return None


Opener = Callable[[str, float], IO[bytes]]
"""Opens a web address, given the longest silence in seconds to put up with."""


def open_url(url: str, silence: float) -> IO[bytes]:
    """Open a web address with the standard library, which also honours the usual proxy variables."""
    response: IO[bytes] = urllib.request.urlopen(url, timeout=silence)
    return response


@dataclass(frozen=True)
class Mirror(Source):
    """A folder on the web that holds the files as `x.gz`.

    The smallest file goes first and must arrive within `patience` seconds: a few kilobytes answer whether the
    mirror can be reached at all. The others may take `transfer` seconds each. The first failure ends the
    mirror, so an unreachable one costs its patience once, however many files there are.
    """

    url: str
    patience: float = 3.0
    transfer: float = 120.0
    opener: Opener = open_url

    @property
    def label(self) -> str:
        """The mirror's host."""
        return f"mirror {urlsplit(self.url).hostname}"

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files, smallest first, until one does not come."""
        seconds = self.patience
        for file in sorted(files, key=lambda file: file.size):
            yield file, self._download(file, seconds)
            seconds = self.transfer

    def _download(self, file: RawFile, seconds: float) -> bytes:
        def download() -> bytes:
            with self.opener(f"{self.url}{file.name}.gz", self.patience) as response:
                return response.read(file.size)  # packed is shorter than raw, or it is not our file

        return file.unzip(_ask(seconds, download))


@dataclass(frozen=True)
class MirrorArchive(Source):
    """A tar file on the web, compressed, that holds the files in one of its folders.

    The answer must begin within `patience` seconds and be complete within `transfer` seconds. Nothing longer than
    `megabytes` is fetched.
    """

    url: str
    inside: str
    megabytes: int
    patience: float = 3.0
    transfer: float = 1200.0
    opener: Opener = open_url

    @property
    def label(self) -> str:
        """The mirror's host."""
        return f"mirror {urlsplit(self.url).hostname}"

    @property
    def announcement(self) -> str | None:
        """See `Source.announcement`."""
        return long_fetch(self.label, self.megabytes)

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files once the whole archive has arrived."""
        with _ask(self.patience, lambda: self.opener(self.url, self.patience)) as response:
            packed = _ask(self.transfer, lambda: response.read(self.megabytes * 10**6))
        yield from files_of_archive(io.BytesIO(packed), self.inside, files)


def long_fetch(label: str, megabytes: int | None) -> str | None:
    """Return what a source of so many megabytes announces, which is nothing where nobody said how many."""
    return None if megabytes is None else f"fetching {megabytes} MB from {label}, which may take a few minutes"


def files_of_archive(archive: Path | IO[bytes], inside: str, files: Sequence[RawFile]) -> Fetched:
    """Yield files out of a folder of a tar file; raise a DataError if one is not there or the archive is damaged."""
    try:
        with tarfile.open(archive) if isinstance(archive, Path) else tarfile.open(fileobj=archive) as opened:
            for file in files:
                yield file, read_member(opened, f"{inside}/{file.name}", file.size)
    except (tarfile.TarError, EOFError, zlib.error):
        raise DataError("its archive is damaged") from None


def read_member(archive: tarfile.TarFile, name: str, size: int) -> bytes:
    """Read one file of an archive into memory: nothing is extracted, so no path in it can do harm.

    A file that is longer than `size` is cut off one byte later.
    """
    try:
        stream = archive.extractfile(name)
    except KeyError:
        stream = None
    if stream is None:
        raise DataError(f"{name} is not in its archive")
    with stream:
        return stream.read(size + 1)


def _ask(seconds: float, action: Callable[[], T]) -> T:
    """Return what `action` gets from the web; raise a DataError with a few words if it does not within the seconds."""
    try:
        return _within(seconds, action)
    except TimeoutError:
        raise DataError(f"no answer within {seconds:g} s") from None
    except urllib.error.HTTPError as error:
        error.close()  # the error is itself an open response
        raise DataError(f"it answered HTTP {error.code}") from None
    except (OSError, HTTPException) as error:
        raise DataError(f"it cannot be reached ({getattr(error, 'reason', error)})") from None


def _within(seconds: float, action: Callable[[], T]) -> T:
    """Return `action()`, or raise TimeoutError after so many seconds of the wall clock.

    A socket's own timeout is not enough: it leaves out the name lookup, and starts anew for each address of
    the host. The thread is a daemon because nobody waits for it once its time is up.
    """
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(action())
        except BaseException as error:  # whatever it is, it belongs to who asked
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer.result(timeout=seconds)

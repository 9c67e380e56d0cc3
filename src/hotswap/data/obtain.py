"""Asking one source after another, the one gate that every byte passes, and the cache behind it."""

from __future__ import annotations

import gzip
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from hotswap.data.sources import Folder, RawFile, Report, Source
from hotswap.errors import DataError, SettingError
from hotswap.files import replacing

__all__ = ["Cache", "Obtained", "cache_folder", "obtain", "obtain_by_name"]

_HOUR = 3600.0


def cache_folder(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Return the folder that holds every data set's cache: `$HOTSWAP_DATA`, or else the platform's own place.

    Args:
        environment: Variables to look in; the process's own if not given.
        platform: As in `sys.platform`.
    """
    variables = os.environ if environment is None else environment
    chosen = variables.get("HOTSWAP_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if platform == "win32":
        local = variables.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "hotswap"
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hotswap"
    # The XDG specification says that a relative path there is to be ignored.
    shared = variables.get("XDG_CACHE_HOME", "")
    return (Path(shared) if shared.startswith("/") else Path.home() / ".cache") / "hotswap"


@dataclass(frozen=True)
class Cache(Folder):
    """A folder that we also write, whole files only: a reader sees the old one or the new one, never half."""

    title: str = "cache"

    def holds(self, file: RawFile) -> bool:
        """Say whether there is a copy, sound or not."""
        return self._packed(file).is_file()

    def keep(self, file: RawFile, raw: bytes) -> None:
        """Write a copy, replacing any that is there.

        Processes that keep the same file at the same time write to different temporary files, and whoever is last
        replaces equal bytes by equal bytes.

        Raises:
            OSError: The folder cannot be written. Nothing is left behind.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._sweep(file)
        with replacing(self._packed(file)) as part:
            part.write_bytes(gzip.compress(raw, compresslevel=6, mtime=0))  # without the time, equal contents are equal

    def _packed(self, file: RawFile) -> Path:
        return self.path / f"{file.name}.gz"

    def _sweep(self, file: RawFile) -> None:
        """Remove what a killed process left behind: parts too old to be still written by anyone."""
        for part in self.path.glob(f".{file.name}.gz.*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _HOUR:
                    part.unlink()


@dataclass(frozen=True)
class Obtained:
    """Raw files, all of them sound.

    Attributes:
        files: Raw bytes by file name.
        source: The labels of the sources that helped.
    """

    files: dict[str, bytes]
    source: str


def obtain_by_name(
    name: str,
    title: str,
    files: Sequence[RawFile],
    further: Callable[[], Sequence[Source]],
    folder: str | os.PathLike[str] | None,
    report: Report | None,
) -> Obtained:
    """Get every file of the data set `name`, whose cache is the subfolder of that name: what loaders have in common.

    The folder that the user names is asked first, then the cache, then the `further` sources.

    Raises:
        SettingError: `folder` is not a folder.
        DataError: See `obtain`.
    """
    if folder is not None and not Path(folder).is_dir():
        raise SettingError(f"load_{name}(folder={os.fspath(folder)!r}): folder must be a folder that exists.")
    cache = Cache(cache_folder() / name)
    named = [] if folder is None else [Folder(Path(folder))]
    return obtain(title, files, [*named, cache, *further()], cache=cache, report=report or _silent)


def _silent(line: str) -> None:
    """Report to nobody."""


def obtain(
    title: str, files: Sequence[RawFile], sources: Sequence[Source], *, cache: Cache, report: Report
) -> Obtained:
    """Get every file from the first source that has it.

    Args:
        title: The data set's name in messages.
        files: The files to get.
        sources: Whom to ask, in order. `cache` is usually one of them.
        cache: The cache that keeps a copy of each file from another source.
        report: Is told which source gave how much, why a source did not, and of a long transfer before it begins.

    Raises:
        DataError: Some file is not to be had anywhere. The message lists each source and its reason.
    """
    found: dict[str, bytes] = {}
    helped: list[str] = []
    failures: list[str] = []
    for place, source in enumerate(sources):
        missing = [file for file in files if file.name not in found]
        if not missing:
            break
        # Once the cache has been asked, what it did not give it lacks or has damaged: write it anew.
        renew = cache in sources[:place]
        gained = 0
        if source.announcement:
            report(f"{title}: {source.announcement}.")
        try:
            with closing(source.fetch(missing)) as offers:
                for file, raw in offers:
                    file.check(raw)
                    found[file.name] = raw
                    gained += 1
                    if source is not cache and (renew or not cache.holds(file)):
                        _keep(cache, file, raw, report)
        except (DataError, OSError) as error:
            failures.append(f"{source}: {error}")
            report(f"{title}: {failures[-1]}.")
        if gained:
            helped.append(source.label)
            report(f"{title}: {gained} of {len(files)} files from {source}.")
    if len(found) < len(files):
        raise DataError(_nowhere(title, files, failures, cache))
    return Obtained(found, " and ".join(helped))


def _keep(cache: Cache, file: RawFile, raw: bytes, report: Report) -> None:
    try:
        cache.keep(file, raw)
    except OSError as error:
        # The bytes are good all the same; only the next time will be slower.
        report(f"No copy of {file.name} was kept in {cache.path} ({error.strerror or error}).")


def _nowhere(title: str, files: Sequence[RawFile], failures: Sequence[str], cache: Cache) -> str:
    reasons = "\n".join(f"  - {failure}" for failure in failures)
    names = ", ".join(file.name for file in files)
    return (
        f"{title} is not to be had from any source:\n{reasons}\n"
        f"Put the files {names} (each as it is or with .gz) in a folder and name it with --from FOLDER, "
        f"or set HOTSWAP_DATA to a folder that holds them in a subfolder {cache.path.name}."
    )
